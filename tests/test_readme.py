"""What the README tells people to type works as written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from dinosaur_ad.cli import main
from dinosaur_ad.datasets.synthetic import SyntheticSample
from dinosaur_ad.encoders.weights.local import ensure
from dinosaur_ad.errors import EncoderError

README = (Path(__file__).parents[1] / "README.md").read_text()


def commands_of(title: str) -> list[str]:
    """What a section tells people to type after ``dinosaur``."""
    section = README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^    dinosaur (.+?)(?:\s+#.*)?$", section, flags=re.M)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders the README speaks of, with drawn products in the place of photographs."""
    try:
        ensure("dinov2s-focus")
    except EncoderError as error:
        pytest.skip(f"the default encoder's weights cannot be had: {error}")
    monkeypatch.chdir(tmp_path)
    for name, product in {"screw": "steel", "cap": "blister", "nut": "gear"}.items():
        save([SyntheticSample(product, index=index) for index in range(8)], f"photos/{name}/good")
    save([SyntheticSample("gear", "extra_hole", 50), SyntheticSample("steel", index=51)], "photos/today")
    save([SyntheticSample("blister", index=52)], "photos/today/fine-after-all")
    return tmp_path


def save(samples: list[SyntheticSample], folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for sample in samples:
        Image.fromarray(sample.image()).save(Path(folder) / f"{sample.name}.png")


def test_the_commands_and_the_python_lines(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = commands_of("Your own images")
    assert len(commands) == 5
    assert [main(shlex.split(command)) for command in commands] == [0] * 5
    assert len(list((photos / "seen").rglob("*.png"))) == 3

    (code,) = re.findall(r"```python\n(.+?)```", README, flags=re.S)
    capsys.readouterr()
    exec(compile(code, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[1] for line in lines) == ["cap", "nut", "screw"]
    assert len(commands) + len(code.strip().splitlines()) < 20  # under ten lines each


@pytest.mark.slow
def test_the_commands_of_the_edge(photos: Path) -> None:
    commands = commands_of("On the edge")
    assert [command.split()[0] for command in commands] == ["learn", "inspect", "profile", "export", "health"]
    few = "profile --learn-images 4 --repeats 1 --runs 2 --warm-up 1"
    assert [main(shlex.split(command.replace("profile", few))) for command in commands] == [0] * 5
    assert (photos / "nut-int8" / "model.onnx").is_file()


def test_the_commands_of_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the baselines compute with torch (extra: bench)")
    monkeypatch.chdir(tmp_path)
    commands = commands_of("Which detector is really better?")
    assert commands == ["bench run --suite quick", "bench report runs/bench"]
    seconds_not_minutes = [command.replace("quick", "tiny") for command in commands]
    assert [main(shlex.split(command)) for command in seconds_not_minutes] == [0, 0]
    assert "patchcore" in (tmp_path / "runs/bench/report/report.html").read_text("utf-8")
