"""The site builds without a warning, has every page, and needs nothing from elsewhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dinosaur_ad

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason=f"{package} is not installed (it comes with the extra 'docs')")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    surroundings = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_docstrings_become_markdown(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    written = "See :func:`~a.b`.\n\n>>> 1 + 1\n2\n\nMore."
    expected = "See `b`.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."
    assert importlib.import_module("site_build").markdown_of(written) == expected


def test_a_browser_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link|iframe)[^>]+(?:src|href)=[\"']?(?:https?:)?//[^>]*", path.read_text("utf-8")
        )
        assert [tag for tag in loaded if 'rel="canonical"' not in tag] == [], path.name


def test_every_public_name_is_in_the_api(site: Path) -> None:
    page = (site / "api.html").read_text("utf-8")
    for name in set(dinosaur_ad.__all__) - {"__version__"}:
        assert f'id="dinosaur_ad.{name}"' in page, name
    assert ":meth:" not in page
    assert ":func:" not in page


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_xml_with_a_background_of_their_own(picture: Path) -> None:
    """Legible on a light and on a dark page."""
    drawing = ElementTree.parse(picture).getroot()
    rectangles = [each for each in drawing.iter() if each.tag.endswith("rect")]
    assert any(each.get("fill", "none") != "none" for each in rectangles[:1])
