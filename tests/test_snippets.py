"""Every command and every Python block of the README and of the site runs, page by page and in order.

Each page runs in a folder of its own that holds made-up photos, with an encoder of random parameters in place of the
default one. What cannot run here is still checked (its options, its targets, its syntax): a block after the comment
``<!-- not run: WHY -->``, and commands that contain a word of ``NOT_HERE`` or begin with one of ``OTHER_PROGRAMS``.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import dinosaur_ad
from detector_helpers import product, spoil
from dinosaur_ad.cli import main
from dinosaur_ad.encoders import registry
from dinosaur_ad.encoders.providers import why_not

ROOT = Path(__file__).parents[1]
SITE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", *SITE]

OTHER_PROGRAMS = {
    "pip": "installs packages; test_without_torch.py does so in an empty environment",
    "make": "installs packages or takes minutes; the target must exist",
    "python": "takes minutes; the module or file must exist",
    "python3": "makes an environment",
    "docker": "there is no Docker here; test_dockerfile.py checks the Dockerfile",
    "ray": "starts a cluster; tests of cluster/ start one",
    "sudo": "needs root on the device",
    "vcgencmd": "a program of the Raspberry Pi",
    "grep": "reads a file of the Jetson",
    "echo": "writes a setting of the Raspberry Pi",
    ".": "enters an environment",
    "git": "changes a repository",
    "chromium": "a browser",
}
NOT_HERE = {
    "fetch": "downloads weights",
    "station": "stays until it is stopped; tests/cli/test_cli_station.py runs it",
    "add": "needs a file of weights that is not here",
    "dinov3-small": "needs weights that are not here",
    "cuda": "needs a GPU",
    "tensorrt": "needs a GPU",
    "line-3-trt": "needs a GPU",
    "ray": "tests of cluster/ run it",
    "--data": "needs the datasets",
    "grid": "takes minutes; tests of bench/ run a small one",
    "mvtec-ad": "needs the dataset",
    "brightness,dinosaur": "tests/bench/test_adding_a_method.py runs it",
    "runs/mine": "tests/bench/test_adding_a_method.py runs it",
    "results": "takes long; test_published_numbers.py compares what it prints",
    "results-apart": "takes long; tests of bench/ verify the results",
    "runs/replay-50": "needs the dataset",
    "all": "profiles every method, which takes minutes",
    "compare": "needs a profile of another machine; tests of profile/ compare two",
    "--labelled": "needs labelled images; tests of export/ run it",
    "demo": "takes a minute; test_demo.py and test_without_torch.py run it",
    "profile": "starts processes with the real encoder; test_without_torch.py runs it",
}
# What is run instead: less of the same, and no child process, which would know nothing of the small encoder.
SMALLER = {"--suite quick": "--suite tiny", "--provider auto": "--provider onnx-cpu"}
NOT_RUN = re.compile(r"<!-- not run: (?P<why>.{10,}) -->")
TAUGHT = ("line-3", "box", "STORE")


@dataclass(frozen=True)
class Snippet:
    """A block of a page."""

    page: str
    line: int
    language: str
    code: str
    not_run: str = ""

    @property
    def commands(self) -> Iterator[list[str]]:
        """The words of each command of a block of the shell, without comments."""
        for line in self.code.replace("\\\n", " ").splitlines():
            for long, short in SMALLER.items():
                line = line.replace(long, short)
            if words := shlex.split(line, comments=True):
                yield words


def snippets(page: str) -> list[Snippet]:
    """The fenced blocks of a page in the languages that run, and indented blocks that begin with a command."""
    found: list[Snippet] = []
    lines = (ROOT / page).read_text("utf-8").splitlines()
    reason, at = "", 0
    while at < len(lines):
        first, start = lines[at], at
        at += 1
        if mark := NOT_RUN.fullmatch(first.strip()):
            reason = mark["why"]
            continue
        if first.startswith("```"):
            language = first.removeprefix("```").strip()
            while lines[at] != "```":
                at += 1
            code, at = lines[start + 1 : at], at + 1
        elif first.startswith("    ") and (start == 0 or not lines[start - 1]):
            while at < len(lines) and lines[at].startswith("    "):
                at += 1
            code = [line.removeprefix("    ") for line in lines[start:at]]
            language = "bash" if code[0].split()[0] in {"dinosaur", *OTHER_PROGRAMS} else ""
        else:
            reason = reason if not first else ""
            continue
        if language in ("bash", "python"):
            found.append(Snippet(page, start + 1, language, "\n".join(code) + "\n", reason))
        reason = ""
    return found


class Camera:
    """What OpenCV's camera gives: three frames, then no more."""

    def __init__(self, _: int) -> None:
        self._frames = iter(product(0, 3, seed=11))

    def read(self) -> tuple[bool, Any]:
        frame = next(self._frames, None)
        return frame is not None, None if frame is None else frame[..., ::-1]


OPENCV = SimpleNamespace(VideoCapture=Camera, imread=lambda path: np.asarray(Image.open(path))[..., ::-1])


def save(folder: str, images: list[np.ndarray], *names: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, image in zip(names or map("{:03d}".format, count()), images, strict=False):
        Image.fromarray(image).save(Path(folder) / f"{name}.png")


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folders that the pages speak of, and a taught store; the default encoder is a small random one meanwhile."""
    folder = tmp_path_factory.mktemp("sandbox")
    tiny = replace(registry.get_spec("tiny-dinov2"), name="dinov2s-focus", depth=12, native_size=224)  # type: ignore[call-arg]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._REGISTRY, "dinov2s-focus", tiny)
        patch.setenv("DINOSAUR_HOME", str(tmp_path_factory.mktemp("weights")))
        patch.chdir(folder)
        for kind, name in enumerate(("screw", "cap", "nut")):
            save(f"photos/{name}/good", product(kind, 24))
        for name in ("normals", "train/good", "IMAGES"):
            save(name, product(0, 24))
        fine, late = product(0, 1, seed=7)[0], product(1, 2, seed=9)
        save("photos/today", [fine, spoil(fine)], "fine", "scratched")
        save("photos/fine-after-all", late)
        save("photos/known-defects", [spoil(fine, 10, 10)])
        save("photos/known-good", product(0, 6, seed=31))
        save("photos/screw/later", product(0, 3, seed=32))
        save("photos/screw/new-lamp", product(0, 8, seed=33))
        assert main(["learn", "screw", "photos/screw/good", "--store", "taught"]) == 0
        yield folder


def run_shell(snippet: Snippet, patch: pytest.MonkeyPatch, learned: set[tuple[str, ...]]) -> None:
    """Run each command of a block, or check of one that cannot run what can be checked."""
    for words in snippet.commands:
        where = f"{snippet.page}:{snippet.line}: {shlex.join(words)}"
        if words[0] == "export" and "=" in words[1]:
            patch.setenv(*words[1].split("=", 1))
        elif words[0] in OTHER_PROGRAMS:
            check_program(words, where)
        else:
            assert words[0] == "dinosaur", f"{where}: add the program to OTHER_PROGRAMS, with the reason"
            command, _, output = shlex.join(words[1:]).partition(" '>' ")
            arguments = shlex.split(command)
            if snippet.not_run or NOT_HERE.keys() & {part for word in arguments for part in (word, word.split(":")[0])}:
                check_options(arguments, where)
            else:
                run_command(arguments, output, where, learned)


def run_command(arguments: list[str], output: str, where: str, learned: set[tuple[str, ...]]) -> None:
    if arguments[0] == "learn":  # the same product again shows another option
        task = (arguments[1], *arguments[arguments.index("--store") :][1:2])
        arguments += ["--replace"] if task in learned else []
        learned.add(task)
    if arguments[0] == "export" and "--out" in arguments:
        shutil.rmtree(arguments[arguments.index("--out") + 1], ignore_errors=True)
    printed = StringIO()
    with redirect_stdout(printed):
        code = main(arguments)
    allowed = {0, 1} if "--exit-code" in arguments else {0}
    if arguments[0] == "export" and "bfloat16" in arguments and why_not("openvino", "bfloat16"):
        allowed = {2}  # this CPU cannot run what it would have to check, and says so
    assert code in allowed, where
    if output:
        Path(output).write_text(printed.getvalue(), "utf-8")


def check_options(arguments: list[str], where: str) -> None:
    """The verb and its options exist: the parser refuses others before it comes to --help."""
    end = arguments.index("...") if "..." in arguments else len(arguments)
    with pytest.raises(SystemExit) as ended, redirect_stdout(StringIO()):
        main([*arguments[:end], "--help"])
    assert ended.value.code == 0, where


def check_program(words: list[str], where: str) -> None:
    if words[0] == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.M)
        assert {word for word in words[1:] if "=" not in word} <= set(targets), where
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]), where
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), where


def run_python(snippet: Snippet, names: dict[str, Any]) -> None:
    """Run a block in the namespace of its page; one with prompts is a doctest."""
    where = f"{snippet.page}:{snippet.line}"
    if snippet.not_run:
        compile(snippet.code, where, "exec")
    elif ">>>" in snippet.code:
        test = doctest.DocTestParser().get_doctest(snippet.code, names, where, snippet.page, snippet.line)
        complaints: list[str] = []
        outcome = doctest.DocTestRunner(verbose=False).run(test, out=complaints.append, clear_globs=False)
        names.update(test.globs)
        assert outcome.failed == 0, "".join(complaints)
    else:
        exec(compile("\n" * snippet.line + snippet.code, snippet.page, "exec"), names)


def check_readme(names: dict[str, Any], printed: str) -> None:
    """The Python block prints a line for each image; overlays are where the command said."""
    assert len(list(Path("seen").rglob("*.overlay.png"))) == 2  # one for each photo of today
    assert len(names["detector"]) == 3


def check_python_page(names: dict[str, Any], printed: str) -> None:
    """What its comments say is printed is printed."""
    assert "<Inspection anomalous: task screw, score " in printed
    assert f"look at {Path('photos/today/scratched.png')}" in printed
    assert "There is a task 'screw' already" in printed
    assert names["where"].any()
    assert names["picture"].dtype == np.uint8
    assert {"normal", "anomalous"} <= set(names["table"]["verdict"])


CHECKS: dict[str, Callable[[dict[str, Any], str], None]] = {
    "README.md": check_readme,
    "docs/python.md": check_python_page,
}


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)])
def test_the_page_runs(
    page: str, sandbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if page == "docs/python.md":
        pytest.importorskip("pandas", reason="pandas is not installed")
    if any("bench run" in snippet.code or "bench import" in snippet.code for snippet in snippets(page)):
        pytest.importorskip("torch", reason="the baselines of the benchmark need torch (extra: bench)")
    shutil.copytree(sandbox, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for module in (OPENCV, SimpleNamespace(Detections=SimpleNamespace)):
        monkeypatch.setitem(sys.modules, "cv2" if module is OPENCV else "supervision", module)  # type: ignore[arg-type]
    blocks = snippets(page)
    code = "".join(block.code for block in blocks)
    if "--store" in code and "learn " not in code:
        for store in TAUGHT:
            shutil.copytree("taught", store)
    names: dict[str, Any] = {"__name__": "page"}
    learned: set[tuple[str, ...]] = set()
    for block in blocks:
        if block.language == "python":
            run_python(block, names)
        else:
            run_shell(block, monkeypatch, learned)
    CHECKS.get(page, lambda *_: None)(names, capsys.readouterr().out)


@pytest.mark.parametrize("notebook", sorted((ROOT / "docs").rglob("*.ipynb")), ids=lambda path: path.name)
def test_the_notebook_runs(notebook: Path, sandbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells run in order, and the stored outputs are of the same kinds and small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "scripts")
    stored = notebook.read_text("utf-8")
    document = importlib.import_module("run_notebook").run(json.loads(stored))
    shown, expected = (
        [[(output["output_type"], *output.get("data", ())) for output in cell.get("outputs", [])] for cell in cells]
        for cells in (document["cells"], json.loads(stored)["cells"])
    )
    assert shown == expected
    assert len(stored) < 100_000


def test_every_public_name_is_on_the_python_page() -> None:
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    beside = {"__version__", "Inspection", "Learned", "WorstPatch", "overlay", "load_encoder"}  # seen, not imported
    for name in set(dinosaur_ad.__all__) - beside:
        assert re.search(rf"\b{name}\b", page), name


def test_the_equations_name_functions_that_exist() -> None:
    named = re.findall(r"`(core\.\w+)\.(\w+)`", (ROOT / "docs" / "equations.md").read_text("utf-8"))
    assert len(named) >= 10
    for module, function in named:
        assert hasattr(importlib.import_module(f"dinosaur_ad.{module}"), function), f"{module}.{function}"


def test_blocks_are_found_and_a_reason_holds_for_one_block_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = "<!-- not run: it would need a GPU -->\n\n    dinosaur a \\\n        b  # c\n"
    page = f"# T\n\n{shell}\n```python\n1\n```\n\n    other\n"
    (tmp_path / "page.md").write_text(page)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    first, second = snippets("page.md")
    assert (first.not_run, list(first.commands)) == ("it would need a GPU", [["dinosaur", "a", "b"]])
    assert (second.not_run, second.language, second.code) == ("", "python", "1\n")
