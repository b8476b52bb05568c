"""Every block of docs/python.md runs, in order, on an encoder of random parameters."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import dinosaur_ad
from detector_helpers import TINY, product, spoil
from dinosaur_ad import Dinosaur

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text("utf-8")


class TinyDinosaur(Dinosaur):
    """What the page calls Dinosaur."""

    def __init__(self, store: Any, **options: Any) -> None:
        super().__init__(store, **options | {"encoder": "tiny-dinov2", "preset": TINY})


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.chdir(tmp_path)
    for folder in ("photos/screw/good", "photos/today"):
        Path(folder).mkdir(parents=True)
    for number, image in enumerate(product(0, 30)):
        Image.fromarray(image).save(f"photos/screw/good/{number:03d}.png")
    fine = product(0, 1, seed=7)[0]
    Image.fromarray(fine).save("photos/today/fine.png")
    Image.fromarray(spoil(fine)).save("photos/today/scratched.png")
    monkeypatch.setattr(dinosaur_ad, "Dinosaur", TinyDinosaur, raising=False)
    opencv = SimpleNamespace(imread=lambda path: np.asarray(Image.open(path))[..., ::-1])
    monkeypatch.setitem(sys.modules, "cv2", opencv)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=SimpleNamespace))  # type: ignore[arg-type]

    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.+?)```", PAGE, flags=re.S)
    for block in blocks[:2]:
        exec(compile(block, "docs/python.md", "exec"), names)
    capsys.readouterr()
    for block in blocks[2:]:
        exec(compile(block, "docs/python.md", "exec"), names)
    printed = capsys.readouterr().out
    assert printed.startswith("<Inspection anomalous: task screw, score ")
    assert f"look at {Path('photos/today/scratched.png')}" in printed
    assert "There is a task 'screw' already" in printed
    assert names["where"].any()
    assert names["picture"].dtype == np.uint8
    assert list(names["table"]["verdict"]) == ["normal", "anomalous"]


def test_every_public_name_is_on_the_page() -> None:
    beside = {"__version__", "Inspection", "Learned", "WorstPatch", "overlay", "load_encoder"}  # seen, not imported
    for name in set(dinosaur_ad.__all__) - beside:
        assert re.search(rf"\b{name}\b", PAGE), name
