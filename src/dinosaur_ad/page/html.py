"""Building blocks of a self-contained page: text is escaped, pictures are embedded, nothing is fetched."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from PIL import Image

from dinosaur_ad.images.loading import Pixels


class Html(str):
    """Markup that is safe to place in a page; anything else is escaped on the way in."""

    __slots__ = ()


def text(content: object) -> Html:
    """Anything as escaped text; markup made here passes unchanged.

    >>> text("a < b"), text(Html("<b>"))
    ('a &lt; b', '<b>')
    """
    return content if isinstance(content, Html) else Html(escape(str(content)))


def element(name: str, *content: object, **attributes: object) -> Html:
    """One element; a trailing underscore keeps attribute names apart from Python's words, None leaves one out.

    >>> element("p", "1 < 2", class_="note")
    '<p class="note">1 &lt; 2</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{join(content)}</{name}>")


def join(parts: Iterable[object]) -> Html:
    """Parts one after another, each escaped unless it is markup."""
    return Html("".join(text(part) for part in parts))


def section(title: str, lead: object, *content: object) -> Html:
    """A headline, a sentence that says how to read what follows, and what follows."""
    return element("section", element("h2", title), element("p", lead, class_="lead") if lead else "", *content)


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """A plain table; see :func:`number` for cells that line up on the right."""
    head = element("thead", element("tr", *(element("th", cell, scope="col") for cell in header)))
    body = (element("tr", *(cell if _is_cell(cell) else element("td", cell) for cell in row)) for row in rows)
    return element("div", element("table", head, element("tbody", *body)), class_="scroll")


def number(value: float | str | None) -> Html:
    """A table cell that lines up on the right: a number, numbers in words, or a dash where there is none."""
    shown = "–" if value is None else value if isinstance(value, str) else f"{value:.3f}"
    return element("td", shown, class_="number")


def tile(value: str, label: str, note: str) -> Html:
    """One big number with what it is and what it is not."""
    return element("div", element("b", value), element("span", label), element("small", note), class_="tile")


def image(pixels: Pixels, alternative: str, *, class_: str | None = None) -> Html:
    """A picture, RGB or RGBA uint8 ``(H, W, 3 or 4)``, inside the page; drawings, which are RGBA, keep every line."""
    height, width = pixels.shape[:2]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "WEBP", quality=80, lossless=pixels.shape[2] == 4)
    source = "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    markup = f'<img src="{source}" alt="{escape(alternative)}" width="{width}" height="{height}"'
    return Html(markup + (f' class="{escape(class_)}">' if class_ else ">"))


def page(title: str, *content: object, generator: str = "DINOSaur") -> Html:
    """A whole document with its style sheet inside; ``generator`` marks which command made it."""
    style = files("dinosaur_ad.page").joinpath("style.css").read_text("utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">{generator_mark(generator)}'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    body = element("main", *content)
    return Html(f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n')


def generator_mark(generator: str) -> Html:
    """The element in the head of a page by which the command that made it knows its own file again."""
    return Html(f'<meta name="generator" content="{escape(generator)}">')


def _is_cell(part: object) -> bool:
    return isinstance(part, Html) and part.startswith(("<td", "<th"))
