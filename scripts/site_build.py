"""What the build of the site adds to MkDocs (see mkdocs.yml): links out of docs/, notebooks, docstrings as Markdown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import griffe

# Links that leave docs/, and the page of the site that has the same content.
PAGE_OF = {"../README.md": "index.md", "../CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
FILE, NOTEBOOK = re.compile(r"<!-- file: (\S+) -->"), re.compile(r"<!-- notebook: (\S+) -->")
ROLE = re.compile(r":(?:attr|class|func|meth|mod):`~?([^`]+)`")
# A doctest: its first prompt, and all lines up to the next blank one.
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", flags=re.M)


def on_config(config: Any) -> Any:
    """Add the page of every method to the navigation, so that a new method is listed nowhere but in its own files."""
    pages = sorted(Path("docs/methods").glob("*.md"), key=lambda path: (path.stem != "index", path.stem))
    (benchmark,) = (section["Benchmark"] for section in config["nav"] if "Benchmark" in section)
    benchmark.append({"Methods": [f"methods/{path.name}" for path in pages]})
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Insert the files and notebooks that a page names; point links that leave docs/ to pages of the site."""
    markdown = FILE.sub(lambda name: Path(name[1]).read_text("utf-8").replace("](docs/", "]("), markdown)
    markdown = NOTEBOOK.sub(lambda name: _notebook(Path("docs") / name[1]), markdown)
    for target, there in PAGE_OF.items():
        markdown = markdown.replace(f"]({target})", f"]({there})")
    # A comment begins a block of HTML that ends with the next blank line: a list right after it would be text.
    return re.sub(r"^(<!-- begin: .+ -->)\n", r"\1\n\n", markdown, flags=re.M)


def _notebook(path: Path) -> str:
    """The cells of a notebook and what they show, as Markdown."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": "".join(output.get("text", ""))})
            if "image/jpeg" in data:
                parts.append(f'<img alt="what the cell shows" src="data:image/jpeg;base64,{data["image/jpeg"]}">')
            else:
                parts.append(f"```text\n{data['text/plain'].rstrip()}\n```")
    return "\n\n".join(parts)


def markdown_of(docstring: str) -> str:
    """The docstring with examples in fences and cross-references as code."""
    text = ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", docstring)
    return EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)


class Docstrings(griffe.Extension):
    """Applies :func:`markdown_of` to every docstring of the package."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = markdown_of(obj.docstring.value)
