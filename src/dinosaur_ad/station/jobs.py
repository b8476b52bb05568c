"""Work that takes a while: one thread does one job after another, and each says how far it is."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from dinosaur_ad._text import first_line
from dinosaur_ad.errors import DinosaurError, TeachingRefusedError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.priority import background_thread

log = logging.getLogger(__name__)

REMEMBERED = 200
"""Jobs that are listed; older ones that have ended are forgotten. What they changed is in the history."""
EVERY_SECONDS = 0.2
"""How often progress is told."""


@dataclass
class Job:
    """Teaching that waits, runs or has ended.

    ``state`` is "waiting", "running", "done", "refused" (the guard: ``result["suspects"]`` are the pictures in
    question) or "failed"; ``sentence`` says how it ended. ``done`` of ``total`` pictures are through (None: not known).
    """

    id: int
    kind: str
    task: str
    by: str
    state: str = "waiting"
    done: int = 0
    total: int | None = None
    sentence: str = ""
    result: dict[str, Any] | None = None
    _told: float = field(default=0.0, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether nothing follows any more."""
        return self.state not in ("waiting", "running")

    def to_json(self) -> dict[str, Any]:
        """As the page and the API show it."""
        return {key: value for key, value in asdict(self).items() if not key.startswith("_")}


@dataclass(frozen=True)
class Outcome:
    """How a job ended well: a sentence, and what the page shows of it."""

    sentence: str
    result: dict[str, Any] = field(default_factory=dict)


class JobQueue:
    """Does jobs in the order in which they were added, in a thread of its own; each change is told as "job"."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._numbers = itertools.count(1)
        self._waiting: queue.SimpleQueue[tuple[Job, Callable[[Job], Outcome]] | None] = queue.SimpleQueue()
        self._jobs: dict[int, Job] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin to work."""
        self._stopping = False
        self._thread = background_thread(self._run, "station-teaching")
        self._thread.start()

    def stop(self, timeout: float = 30.0) -> None:
        """Finish the job that is running, and leave the others undone."""
        self._stopping = True
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join(timeout)

    def add(self, kind: str, task: str, by: str, work: Callable[[Job], Outcome]) -> Job:
        """Have ``work`` done after what waits already; it is given the job, for :meth:`progress`."""
        with self._changed:
            job = Job(next(self._numbers), kind, task, by)
            self._jobs[job.id] = job
            for number in [each.id for each in self._jobs.values() if each.ended][:-REMEMBERED]:
                del self._jobs[number]
        self._tell(job)
        self._waiting.put((job, work))
        return job

    def jobs(self) -> list[Job]:
        """The jobs, the newest first."""
        with self._changed:
            return list(self._jobs.values())[::-1]

    def job(self, number: int) -> Job | None:
        """A job by its number."""
        with self._changed:
            return self._jobs.get(number)

    def wait(self, job: Job, timeout: float) -> bool:
        """Wait until a job has ended; whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: job.ended, timeout)

    def progress(self, job: Job) -> Callable[[int, int | None], None]:
        """What to call with the pictures that are done, and in all."""

        def report(done: int, total: int | None) -> None:
            job.done, job.total = done, total
            if time.monotonic() - job._told >= EVERY_SECONDS:
                self._tell(job)

        return report

    def say(self, job: Job, sentence: str) -> None:
        """Tell what a running job is doing."""
        job.sentence = sentence
        self._tell(job)

    def _tell(self, job: Job) -> None:
        job._told = time.monotonic()
        with self._changed:
            self._changed.notify_all()
        self._bus.publish("job", job.to_json())

    def _run(self) -> None:
        while (taken := self._waiting.get()) is not None and not self._stopping:
            self._do(*taken)

    def _do(self, job: Job, work: Callable[[Job], Outcome]) -> None:
        job.state = "running"
        self._tell(job)
        state = "done"
        try:
            outcome = work(job)
        except TeachingRefusedError as error:
            state, outcome = "refused", Outcome(str(error), {"suspects": [{"path": path} for path in error.paths]})
        except DinosaurError as error:
            state, outcome = "failed", Outcome(str(error))
        except Exception as error:  # a job that fails must not end the thread: the others would wait for ever
            log.exception("The job %s of the product %r failed", job.kind, job.task)
            state, outcome = "failed", Outcome(f"An error in the program: {first_line(error)}; the log has more.")
        job.sentence, job.result = outcome.sentence, outcome.result
        job.state = state
        self._tell(job)
