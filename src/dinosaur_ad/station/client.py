"""A client of a station's API, with nothing but the standard library.

    station = StationClient("http://127.0.0.1:8765", token="dino_...")
    part = station.inspect("part-0117.png")
    if part.verdict != "normal":
        reject(part.reason or part.task)

What the station refuses raises a :class:`StationError` with the station's own sentence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.client_transport import Json, StationError, StationTransport, form_with_files, next_line, whole

__all__ = ["PartResult", "ProposedProduct", "StationClient", "StationError", "StationEvent", "TeachingJob"]

_QUIET_SECONDS = 45.0  # a stream that says nothing for so long, not even a heartbeat, is broken


@dataclass(frozen=True)
class PartResult:
    """A part as the station judged it. ``id`` is None where it is not recorded yet; ``raw`` is the whole answer."""

    key: str
    verdict: str
    task: str | None
    score: float | None
    threshold: float | None
    p_value: float | None
    reason: str
    taken: str
    id: int | None = None
    answer: str | None = None
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @property
    def regions(self) -> list[Json]:
        """What was found, of all views: contour, box, area and peak of each region."""
        found = [(view.get("inspection") or {}).get("regions", []) for view in self.raw.get("views", [])]
        return [region for regions in found for region in regions]


@dataclass(frozen=True)
class TeachingJob:
    """Teaching that waits, runs or has ended; ``result`` has the numbers."""

    id: int
    kind: str
    task: str
    state: str
    done: int
    total: int | None
    sentence: str
    result: Json | None

    @property
    def ended(self) -> bool:
        """Whether nothing follows any more."""
        return self.state not in ("waiting", "running")


@dataclass(frozen=True)
class ProposedProduct:
    """A product that the station proposes: ``kind`` is "product", "merge" or "split" (of ``products``).

    ``status`` is "open", "learning", "adopted" or "dismissed". ``promised_rate`` is what learning it promises; ``raw``
    is the whole answer, with all pictures.
    """

    id: int
    kind: str
    status: str
    task: str
    since: str | None
    promised_rate: float | None
    products: list[str]
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @property
    def parts(self) -> list[int]:
        """The recorded parts that would be learned."""
        shown = (each["part"] for each in self.raw.get("pictures", []) if not each["suspect"])
        return [part for part in shown if part is not None]


@dataclass(frozen=True)
class StationEvent:
    """Something that happened in the station: "part", "recorded", "job", "warning", "source", "sink", "change"..."""

    kind: str
    body: Json


class StationClient(StationTransport):
    """The API of the station at ``url``. ``ca_file`` has the certificate of a station that signs its own."""

    # --- pictures in, verdicts out ---

    def inspect(
        self,
        picture: str | Path | bytes,
        *,
        task: str | None = None,
        key: str = "",
        part: str = "",
        source: str = "upload",
    ) -> PartResult:
        """Have a picture (a file, or its bytes) judged now."""
        answer = self._send_picture("/inspect", picture, task, key, part, source)
        return _part(answer)

    def give(
        self,
        picture: str | Path | bytes,
        *,
        task: str | None = None,
        key: str = "",
        part: str = "",
        source: str = "upload",
    ) -> str:
        """Give a picture to a source, to be judged when it is its turn; returns its key."""
        return str(self._send_picture("/pictures", picture, task, key, part, source)["key"])

    def trigger(self, source: str, part: str = "") -> None:
        """Have a camera take a picture now."""
        self._ask("POST", f"/sources/{quote(source, safe='')}/trigger", {"part": part})

    # --- what was recorded ---

    def parts(self, **query: Any) -> Iterator[PartResult]:
        """Recorded parts, the newest first: ``task``, ``verdict``, ``source``, ``answer``, ``since``, ``until``,
        ``text``; ``limit`` is how many are asked for at a time."""
        page: Json = {"next_before": query.pop("before_id", None)}
        while True:
            wanted = query if page["next_before"] is None else query | {"before_id": page["next_before"]}
            page = self._ask("GET", "/parts", wanted)
            yield from map(_part, page["parts"])
            if page["next_before"] is None:
                return

    def part(self, number: int) -> PartResult:
        """One recorded part."""
        return _part(self._ask("GET", f"/parts/{int(number)}"))

    def picture(self, part: PartResult, view: int = 0, kind: str = "picture") -> bytes:
        """A picture of a recorded part as bytes: "picture", "thumbnail" or "overlay"."""
        if kind not in ("picture", "thumbnail", "overlay") or part.id is None:
            raise InputError("There is a picture, a thumbnail or an overlay of every part that was recorded.")
        number = part.raw["views"][view]["id"]
        with self._open("GET", f"/parts/{part.id}/views/{number}/{kind}") as answer:
            return whole(answer)

    def say(self, part: int, answer: str, *, product: str | None = None, note: str = "") -> int:
        """Say what a part really is: "fine", "defect", "not sure", "other product"; returns the feedback's number."""
        said = self._ask(
            "POST", f"/parts/{int(part)}/feedback", body={"answer": answer, "product": product, "note": note}
        )
        return int(said["id"])

    # --- products and teaching ---

    def products(self) -> list[Json]:
        """All products with their settings and counts."""
        return self._list("/products")

    def learn(
        self, name: str, pictures: Sequence[str | Path] = (), *, parts: Sequence[int] = (), force: bool = False
    ) -> TeachingJob:
        """Teach a new product from files of normal pictures, or from recorded parts."""
        path, query = f"/products/{quote(name, safe='')}/learn", {"force": "true"} if force else {}
        if not pictures:
            return _job(self._ask("POST", path, query, body={"parts": list(parts)}))
        kind, data = form_with_files([_read(picture) for picture in pictures])
        return _job(self._ask("POST", path, query, data=data, kind=kind))

    def recalibrate(self, name: str, parts: Sequence[int], *, force: bool = False) -> TeachingJob:
        """Take the threshold of a product from recorded parts that are fine."""
        body = {"parts": list(parts), "force": force}
        return _job(self._ask("POST", f"/products/{quote(name, safe='')}/recalibrate", body=body))

    def tray(self) -> list[Json]:
        """The feedback that waits to be taught."""
        return self._list("/tray")

    def approve(self, feedback: Sequence[int], *, force: bool = False) -> TeachingJob:
        """Teach feedback of the tray."""
        return _job(self._ask("POST", "/tray/approve", body={"feedback": list(feedback), "force": force}))

    def job(self, number: int) -> TeachingJob:
        """How far a job is."""
        return _job(self._ask("GET", f"/jobs/{int(number)}"))

    def wait(self, job: TeachingJob, timeout: float = 600.0, every: float = 0.5) -> TeachingJob:
        """Wait until a job has ended.

        :raises StationError: it has not within ``timeout`` seconds.
        """
        ends = time.monotonic() + timeout
        while not job.ended:
            if time.monotonic() > ends:
                raise StationError(f"The job {job.id} ({job.kind} of '{job.task}') is still {job.state}.")
            time.sleep(every)
            job = self.job(job.id)
        return job

    def configure(self, name: str, **settings: float | bool) -> Json:
        """Set a product: sensitivity, false_alarms, threshold, preset_sensitivity, smallest_area."""
        return self._ask("PATCH", f"/products/{quote(name, safe='')}/settings", body=dict(settings))

    def undo(self, name: str) -> str:
        """Take back the last change of a product; which it was."""
        return str(self._ask("POST", f"/products/{quote(name, safe='')}/undo")["undone"])

    def redo(self, name: str) -> str:
        """Make the change again that was taken back last; which it was."""
        return str(self._ask("POST", f"/products/{quote(name, safe='')}/redo")["redone"])

    # --- proposals ---

    def proposals(self) -> list[ProposedProduct]:
        """The products that are proposed, then those that were decided last."""
        return [_proposed(each) for each in self._list("/proposals")]

    def proposal(self, number: int) -> ProposedProduct:
        """One of them."""
        return _proposed(self._ask("GET", f"/proposals/{int(number)}"))

    def proposal_picture(self, number: int, picture: int) -> bytes:
        """A picture of a proposal, by its id in ``raw["pictures"]``."""
        with self._open("GET", f"/proposals/{int(number)}/pictures/{int(picture)}") as answer:
            return answer.read()

    def accept(self, proposal: int, name: str) -> TeachingJob:
        """Learn a proposed product under a name, or make one product of two."""
        return _job(self._ask("POST", f"/proposals/{int(proposal)}/accept", body={"name": name}))

    def dismiss(self, proposal: int) -> None:
        """Put a proposal aside."""
        self._ask("POST", f"/proposals/{int(proposal)}/dismiss")

    def ask_again(self, proposal: int) -> None:
        """Take back that a proposal was put aside."""
        self._ask("POST", f"/proposals/{int(proposal)}/ask-again")

    def undo_merge(self, proposal: int) -> None:
        """Take back a merge."""
        self._ask("POST", f"/proposals/{int(proposal)}/undo")

    # --- the station ---

    def ready(self) -> bool:
        """Whether parts are judged and recorded now."""
        try:
            return bool(self._ask("GET", "/ready")["ready"])
        except StationError as error:
            if error.status == 503:
                return False
            raise

    def state(self) -> Json:
        """All there is to say of the station now."""
        return self._ask("GET", "/state")

    def warnings(self) -> list[Json]:
        """The warnings that are open."""
        return self._list("/warnings")

    def changes(self, task: str | None = None) -> list[Json]:
        """Who changed what of the products, the newest first."""
        return self._list("/changes", {} if task is None else {"task": task})

    def events(self) -> Iterator[StationEvent]:
        """What happens from now on, until the station or the caller ends it."""
        with self._open("GET", "/events", timeout=_QUIET_SECONDS) as stream:
            kind, data = "message", ""
            while line := next_line(stream):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                if text.startswith("event: "):
                    kind = text[7:]
                elif text.startswith("data: "):
                    data += text[6:]
                elif not text and data:
                    yield StationEvent(kind, json.loads(data))
                    kind, data = "message", ""

    def _send_picture(
        self, path: str, picture: str | Path | bytes, task: str | None, key: str, part: str, source: str
    ) -> Json:
        name, data = ("", picture) if isinstance(picture, bytes) else _read(picture)
        query = {"source": source, "key": key, "part": part, "name": name} | ({} if task is None else {"task": task})
        return self._ask("POST", path, query, data=data, kind="application/octet-stream")


def _read(picture: str | Path | bytes) -> tuple[str, bytes]:
    if isinstance(picture, bytes):
        return "", picture
    path = Path(picture)
    try:
        return path.name, path.read_bytes()
    except OSError as error:
        raise InputError(f"The picture '{printable(path)}' cannot be read ({error.strerror}).") from None


def _part(answer: Json) -> PartResult:
    known = {name: answer.get(name) for name in PartResult.__dataclass_fields__ if name != "raw"}
    return PartResult(**known, raw=answer)  # type: ignore[arg-type]


def _proposed(answer: Json) -> ProposedProduct:
    known = {name: answer.get(name) for name in ProposedProduct.__dataclass_fields__ if name != "raw"}
    return ProposedProduct(**known, raw=answer)  # type: ignore[arg-type]


def _job(answer: Json) -> TeachingJob:
    return TeachingJob(**{name: answer.get(name) for name in TeachingJob.__dataclass_fields__})  # type: ignore[arg-type]
