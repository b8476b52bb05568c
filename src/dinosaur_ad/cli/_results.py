"""Results of inspect on stdout: as text, as JSON lines, as CSV."""

from __future__ import annotations

import os
import shlex
import sys
from abc import ABC, abstractmethod
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad._text import columns, escaped, odds, printable
from dinosaur_ad.cli._console import report_rejected, show, show_csv, show_json

if TYPE_CHECKING:
    from dinosaur_ad.cluster import Fleet
    from dinosaur_ad.core.drift import ShiftNotice
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.inspection import Inspection, Rejected

NORMAL, ANOMALOUS, UNKNOWN = "normal", "anomalous", "unknown"
"""The first two are a judgement; any other verdict says that there is none."""
_COLOURS = {ANOMALOUS: "\x1b[31m", NORMAL: "\x1b[32m"}
_YELLOW, _PLAIN = "\x1b[33m", "\x1b[0m"

COLUMNS = (
    *("path", "verdict", "task", "score", "threshold", "p_value", "false_alarms"),
    *("worst_left", "worst_top", "worst_right", "worst_bottom", "reason", "overlay", "time", "ms"),
    *("encoder", "provider", "precision", "left_out", "light"),
)
"""The columns of the CSV format."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet compute a cell


class Writer(ABC):
    """One way to print results, made before the first of them."""

    def __init__(self, detector: Dinosaur | Fleet) -> None:
        self.detector = detector

    @abstractmethod
    def inspection(self, result: Inspection, overlay: Path | None) -> None:
        """Print the result of one image; ``overlay`` is the picture that was written for it."""

    @abstractmethod
    def rejected(self, result: Rejected) -> None:
        """Print that an image could not be read."""


class TextWriter(Writer):
    """A line per image for people; what could not be read goes to stderr."""

    def __init__(self, detector: Dinosaur | Fleet) -> None:
        super().__init__(detector)
        self._width = max(map(columns, detector.store.names()), default=0)
        self._coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def inspection(self, result: Inspection, overlay: Path | None) -> None:
        """Verdict, task, score / threshold, p-value in figures and words, path; of an unknown image how far it is."""
        verdict = f"{result.verdict:<{len(ANOMALOUS)}}"
        task = result.task + " " * (self._width - columns(result.task))
        why = (
            f"{result.score:7.3f} / {result.threshold:.3f}  p {result.p_value:.4f} ({odds(result.p_value)})"
            if result.verdict != UNKNOWN
            else f"is nearest, but all of it differs, {result.level_ratio:.1f} times as much as a good part"
        )
        light = f"; the image is {result.light}" if result.light else ""
        after = f"  {task}  {why}{light}  {printable(result.path)}"
        if self._coloured:
            show(after, before=f"{_COLOURS.get(result.verdict, _YELLOW)}{printable(verdict)}{_PLAIN}")
        else:
            show(verdict + after)

    def rejected(self, result: Rejected) -> None:
        """A sentence on stderr."""
        report_rejected([result])


class JsonWriter(Writer):
    """A JSON object a line per image."""

    def __init__(self, detector: Dinosaur | Fleet) -> None:
        super().__init__(detector)
        self._made_by: dict[str, Any] = {}

    def inspection(self, result: Inspection, overlay: Path | None) -> None:
        """Everything but the map, with the time, the overlay and what made the result."""
        self._made_by = self._made_by or self.detector.info()  # after the first image: it needs the encoder
        about = {"overlay": None if overlay is None else str(overlay), "time": _now(), "made_by": self._made_by}
        show_json(result.to_json() | about)

    def rejected(self, result: Rejected) -> None:
        """The path, the error and the time."""
        show_json({"path": result.path, "error": result.reason, "time": _now()})


class CsvWriter(Writer):
    """A header, then a row per image, safe to open in a spreadsheet."""

    def __init__(self, detector: Dinosaur | Fleet) -> None:
        super().__init__(detector)
        show_csv(COLUMNS)

    def inspection(self, result: Inspection, overlay: Path | None) -> None:
        """A row of :data:`COLUMNS`."""
        fields = result.to_json() | dict(zip(COLUMNS[7:11], result.worst.box, strict=True))
        fields |= {"overlay": overlay or "", "time": _now(), "ms": result.ms.get("total", "")}
        self._row(fields | {"left_out": "; ".join(result.left_out)})

    def rejected(self, result: Rejected) -> None:
        """A row with the path, the verdict "rejected" and the reason."""
        self._row({"path": result.path, "verdict": "rejected", "reason": result.reason, "time": _now()})

    def _row(self, fields: dict[str, Any]) -> None:
        show_csv([_cell(fields.get(column, "")) for column in COLUMNS])


WRITERS: dict[str, type[Writer]] = {"text": TextWriter, "json": JsonWriter, "csv": CsvWriter}


def _cell(value: Any) -> str:
    r"""A value for a spreadsheet: text that it would take for a formula gets a quote in front.

    >>> _cell("=1+1"), _cell(-0.5), _cell("a\nb")
    ("'=1+1", '-0.5', 'a\\nb')
    """
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return escaped(f"'{text}" if text.startswith(_FORMULA) else text)


def _now() -> str:
    """The time on the clock of this machine, with its zone."""
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


def shifted_sentence(name: str, notice: ShiftNotice) -> str:
    """That the parts of a task no longer look like those it learned, and what to do."""
    what, unless = f"the good parts of '{name}' look different from those learned", ""
    if not notice.passing:
        what = f"nearly all images of '{name}' differ from those learned all over, not in a part"
        unless = " and the parts are good"
    return (
        f"{what} (scores higher by about {notice.deviations or 0.0:.1f} deviations, noticed with its image "
        f"{notice.noticed_at}): if light or camera changed{unless}, teach it with: "
        f"dinosaur recalibrate {shlex.quote(name)} IMAGES"
    )
