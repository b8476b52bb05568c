"""The wheel, installed into an empty environment without torch, does everything that a box has to do.

The wheel is built and the environment made once, from the package index that this machine is set up for. Without any
index the tests skip; where ``CI=true`` they fail instead, because there the environment is what is being checked.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from dinosaur_ad.datasets.synthetic import SyntheticSample
from dinosaur_ad.encoders.weights.local import ensure
from dinosaur_ad.errors import EncoderError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "ray", "scipy")
LIMIT = 400  # seconds for the slowest step; many times what it takes
# An encoder of a few thousand random numbers, with a preset that any process knows.
TINY = ("--encoder", "tiny-dinov2", "--preset", "paper")


def variables() -> dict[str, str]:
    """The surroundings of a process on the box: pip's settings as they are, nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return kept | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def command(*words: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command; a wrong exit code shows what it said."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=variables(), capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == code, f"{' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"
    return done


class Box:
    """A virtual environment with our wheel, the run time and OpenVINO, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"

    @property
    def wheel(self) -> Path:
        """What was installed."""
        (wheel,) = (self.folder / "dist").glob("dinosaur_ad-*.whl")
        return wheel

    def dinosaur(self, *words: str | Path, code: int = 0) -> str:
        """What ``dinosaur`` prints on this box."""
        return command(self.bin / "dinosaur", *words, cwd=self.folder, code=code).stdout

    def python(self, program: str) -> str:
        """What a program prints on this box."""
        return command(self.bin / "python", "-c", program, cwd=self.folder).stdout


def _check_index(pip: tuple[str | Path, ...], folder: Path) -> None:
    """Skip where no package index answers; asked for one small wheel, without patience."""
    words = (*pip, "download", "--quiet", "--no-deps", "--no-cache-dir", "--retries", "0", "--timeout", "20")
    answer = subprocess.run(
        [*map(str, words), "--dest", str(folder / "probe"), "packaging"],
        cwd=folder,
        env=variables(),
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        reason = "no package index can be reached, so the environment without torch cannot be made"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}: {answer.stderr[-500:]}")
        pytest.skip(reason)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Box:
    """The environment with the wheel of this source and the extra for OpenVINO."""
    box = Box(tmp_path_factory.mktemp("box"))
    command(sys.executable, "-m", "venv", box.bin.parent, cwd=box.folder)
    pip = (box.bin / "python", "-m", "pip")
    _check_index(pip, box.folder)
    command(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", ROOT, cwd=box.folder)
    command(*pip, "install", "--quiet", "--no-compile", f"{box.wheel}[openvino]", cwd=box.folder)
    return box


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn gears: normal ones to learn, more of them to add, and one normal and one spoiled to inspect."""
    folder = tmp_path_factory.mktemp("photos")
    for part, indices in {"good": range(20), "more": range(20, 24), "today": range(24, 25)}.items():
        (folder / part).mkdir()
        for index in indices:
            Image.fromarray(SyntheticSample("gear", index=index).image()).save(folder / part / f"{index:03d}.png")
    spoiled = SyntheticSample("gear", index=25).image().copy()
    spoiled[90:140, 90:140] = (250, 10, 240)
    Image.fromarray(spoiled).save(folder / "today" / "spoiled.png")
    return folder


@pytest.fixture(scope="module")
def store(box: Box, photos: Path) -> Path:
    """A store that the box has taught itself."""
    store = box.folder / "line"
    assert "learned 'gear' from 20 images" in box.dinosaur("learn", "gear", photos / "good", "--store", store, *TINY)
    assert "now 24" in box.dinosaur("update", "gear", photos / "more", "--store", store)
    return store


def inspected(box: Box, store: Path, photos: Path, *options: str | Path) -> dict[str, dict[str, object]]:
    """Inspections by file name."""
    lines = box.dinosaur("inspect", photos / "today", "--store", store, "--json", *options).splitlines()
    return {Path(found["path"]).name: found for found in map(json.loads, lines)}


def test_the_wheel_has_every_file_and_says_what_it_needs(box: Box) -> None:
    packed = zipfile.ZipFile(box.wheel)
    names = {name for name in packed.namelist() if name.startswith("dinosaur_ad/")}
    sources = (path for path in (ROOT / "src" / "dinosaur_ad").rglob("*") if path.is_file())
    assert names == {path.relative_to(ROOT / "src").as_posix() for path in sources if "__pycache__" not in path.parts}
    assert "dinosaur_ad/py.typed" in names
    (folder,) = {name.partition("/")[0] for name in packed.namelist()} - {"dinosaur_ad"}
    said = {name: packed.read(f"{folder}/{name}").decode() for name in ("METADATA", "entry_points.txt")}
    assert "dinosaur = dinosaur_ad.cli:main" in said["entry_points.txt"]
    needed = set(re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", said["METADATA"], flags=re.M))
    assert {"numpy", "onnxruntime", "pillow"} <= needed
    assert not needed & set(HEAVY)
    assert {f"{folder}/licenses/LICENSE", f"{folder}/licenses/NOTICE"} <= set(packed.namelist())


def test_the_box_has_our_package_and_nothing_heavy(box: Box) -> None:
    program = (
        "import json, importlib.util as u, dinosaur_ad\n"
        f"found = {{name: u.find_spec(name) is not None for name in {(*HEAVY, 'openvino', 'onnxruntime')!r}}}\n"
        "print(json.dumps({'file': dinosaur_ad.__file__, **found}))"
    )
    found = json.loads(box.python(program))
    assert Path(found["file"]).is_relative_to(box.folder)
    assert [name for name in HEAVY if found[name]] == []
    assert found["openvino"]
    assert found["onnxruntime"]


def test_learn_update_and_inspect(box: Box, store: Path, photos: Path) -> None:
    found = inspected(box, store, photos)
    assert found.keys() == {"024.png", "spoiled.png"}
    assert {each["task"] for each in found.values()} == {"gear"}
    assert found["spoiled.png"]["verdict"] == "anomalous"
    assert found["spoiled.png"]["score"] > found["024.png"]["score"]  # type: ignore[operator]


def test_the_box_is_healthy(box: Box, store: Path) -> None:
    found = json.loads(box.dinosaur("health", "--store", store, "--json"))
    assert (found["healthy"], found["store"]["tasks"], found["problems"]) == (True, 1, [])


@pytest.mark.parametrize("form", ["onnx", "openvino"])
def test_export_and_inspect_with_what_was_exported(box: Box, store: Path, photos: Path, form: str) -> None:
    out = box.folder / f"export-{form}"
    box.dinosaur("export", "--format", form, "--precision", "float32", "--store", store, "--out", out)
    suffix = {"onnx": ".onnx", "openvino": ".xml"}[form]
    assert [path for path in out.rglob("*") if path.suffix == suffix]
    expected, found = inspected(box, store, photos), inspected(box, store, photos, "--export", out)
    assert found.keys() == expected.keys()
    for name, inspection in found.items():
        assert inspection["verdict"] == expected[name]["verdict"]
        assert inspection["score"] == pytest.approx(expected[name]["score"], rel=1e-3)


def test_profile(box: Box, store: Path) -> None:
    out = box.folder / "profile.json"
    counts = ("--repeats", "1", "--runs", "3", "--warm-up", "1", "--learn-images", "6")
    printed = box.dinosaur("profile", "--store", store, "--device-name", "a box", *counts, "--out", out)
    assert re.match(r"one image in [\d.]+ ms \([\d.]+ a second\)", printed)
    assert json.loads(out.read_text())["device_name"] == "a box"
    (method,) = json.loads(out.read_text())["methods"]
    assert method["status"] == "measured"


def test_demo(box: Box) -> None:
    try:
        ensure("dinov2s-focus")
    except EncoderError as error:
        pytest.skip(f"the default encoder's weights cannot be had: {error}")
    printed = box.dinosaur("demo", "--quick", "--out", "demo")
    assert "DINOSaur demo: 3 synthetic products" in printed
    assert (box.folder / "demo" / "report.html").is_file()
    rows = json.loads((box.folder / "demo" / "results.json").read_text())["rows"]
    assert len(rows) > 50
    assert all(math.isfinite(row["score"]) for row in rows)


def test_the_steps_of_the_image(box: Box, tmp_path: Path) -> None:
    """What the Dockerfile does in its build stage, from nothing but what it copies."""
    context = tmp_path / "context"
    for rule in (ROOT / ".dockerignore").read_text().splitlines():
        source = ROOT / rule.removeprefix("!")
        if rule.startswith("!") and source.is_dir():
            shutil.copytree(source, context / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif rule.startswith("!"):
            (context / source.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, context / source.relative_to(ROOT))
    python = box.bin / "python"
    show = (python, "scripts/check_wheels.py", "--show", "results/edge/wheels.json", "--pins", "--only")
    pins = command(*show, "x86_64/3.12+openvino", cwd=context).stdout
    names = {line.partition("==")[0].lower() for line in pins.splitlines()}
    assert {"onnxruntime", "openvino"} <= names
    assert not names & set(HEAVY)
    command(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", ".", cwd=context)
    (wheel,) = (context / "dist").glob("dinosaur_ad-*.whl")
    assert zipfile.ZipFile(wheel).namelist() == zipfile.ZipFile(box.wheel).namelist()
    command(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=context)


def test_where_torch_is_installed_a_box_still_loads_none_of_it(photos: Path, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from dinosaur_ad.cli import main\n"
        f"store = {str(tmp_path / 'line')!r}\n"
        f"assert main(['learn', 'gear', {str(photos / 'more')!r}, '--store', store, *{TINY!r}]) == 0\n"
        f"assert main(['inspect', {str(photos / 'today')!r}, '--store', store]) == 0\n"
        "assert main(['health', '--store', store]) == 0\n"
        f"sys.exit(', '.join({set(HEAVY)!r} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
