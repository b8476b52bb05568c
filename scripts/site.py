"""What the build of the site adds to MkDocs (see mkdocs.yml): links out of docs/, and docstrings as Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

# Files beside docs/ that pages link to, and the page of the site that has the same content.
PAGE_OF = {"../README.md": "index.md", "../CHANGELOG.md": "changelog.md"}
ROLE = re.compile(r":(?:attr|class|func|meth|mod):`~?([^`]+)`")
# A doctest: its first prompt, and all lines up to the next blank one.
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", flags=re.M)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs/ to pages of the site, or to no page where the site has none."""
    if page.file.src_uri == "changelog.md":  # CHANGELOG.md lies beside docs/ and links into it
        markdown = page.file.content_string.replace('--8<-- "CHANGELOG.md"', _changelog())
    for target, there in PAGE_OF.items():
        markdown = markdown.replace(f"]({target})", f"]({there})")
    # A comment begins a block of HTML that ends with the next blank line: a list or a table right after it would be text.
    return re.sub(r"^(<!-- begin: .+ -->)\n", r"\1\n\n", markdown, flags=re.M)


def _changelog() -> str:
    with open("CHANGELOG.md", encoding="utf-8") as file:
        return file.read().replace("](docs/", "](")


def markdown_of(docstring: str) -> str:
    """The docstring with examples in fences and cross-references as code.

    >>> print(markdown_of("See :func:`~a.b`.\\n\\n>>> 1 + 1\\n2"))
    See `b`.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    text = ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", docstring)
    return EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)


class Docstrings(griffe.Extension):
    """Applies :func:`markdown_of` to every docstring of the package."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = markdown_of(obj.docstring.value)
