"""The verb health: can this box inspect? For people, for monitoring, and for the health check of a container."""

from __future__ import annotations

import argparse
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad import __version__
from dinosaur_ad.cli._console import EXIT_ERROR, EXIT_OK, say, show, show_json
from dinosaur_ad.cli._parser import Subparsers, add_encoder_options, add_verb, encoder_options
from dinosaur_ad.cli._steps import Steps
from dinosaur_ad.errors import DinosaurError, EncoderError, StoreError

if TYPE_CHECKING:
    from dinosaur_ad.store import Store

# A graph is as large as its weights (87 MB by default), and a change is written beside what it replaces.
LEAST_FREE_BYTES = 256_000_000


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(
        verbs,
        "health",
        health,
        "Check that this box can inspect: weights, encoder, store, disk. Nothing is downloaded, no store changed.\n"
        "Light enough to run every minute: one image is encoded and what describes the tasks is\n"
        "read; --verify also reads all banks and weights and compares them with their hashes.",
    )
    parser.add_argument("--verify", action="store_true", help="read every file and compare it with its hash")
    parser.add_argument("--store", metavar="DIR", type=Path, help="check this store too, and the encoder it needs")
    parser.add_argument("--json", action="store_true", help="one JSON object, and nothing else")
    add_encoder_options(parser)


@dataclass
class Findings:
    """What was found, a section each, and a sentence for every problem."""

    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def section(self) -> Iterator[None]:
        """Turn whatever goes wrong into a sentence, so that the other sections are still looked at."""
        try:
            yield
        except DinosaurError as error:
            if str(error) not in self.problems:  # no home folder is one problem, whatever wants it
                self.problems.append(str(error))
        except Exception as error:  # a run time or a driver that breaks is what this verb is there to find
            reason = " ".join(str(error).split())[:200] or "no reason given"
            self.problems.append(
                f"A part of the run time failed ({type(error).__name__}: {reason}); reinstall it, or choose another."
            )


def health(arguments: argparse.Namespace) -> int:
    """Check everything, print the result and return the exit code."""
    with Steps("checking weights, encoder, store and disk", quiet=True):
        findings = examine(arguments.store, encoder_options(arguments), verify=arguments.verify)
    healthy = not findings.problems
    if arguments.json:
        show_json({"healthy": healthy, **findings.facts, "problems": findings.problems})
    else:
        for name, facts in findings.facts.items():
            show(f"{name:<8}  {_WORDS[name](facts)}")
        for problem in findings.problems:
            say(f"dinosaur: {problem}")
        show("healthy" if healthy else "not healthy")
    return EXIT_OK if healthy else EXIT_ERROR


def examine(store: Path | None, options: Mapping[str, Any], *, verify: bool = False) -> Findings:
    """Check everything that inspecting needs; the store is left as it is and nothing is downloaded.

    ``options`` say how the encoder runs, as for :class:`~dinosaur_ad.detector.Dinosaur`. With ``verify``, banks and
    weights are compared with their hashes: that reads all of them, and so is nothing for every minute.
    """
    from dinosaur_ad.encoders import DEFAULT_ENCODER

    findings = Findings(facts={"version": _versions()})
    opened, usable = None, store is None
    with findings.section():
        opened = _open(store) if store else None
        usable = True
    if usable:
        with findings.section():
            name = opened.header["encoder"]["encoder"] if opened else DEFAULT_ENCODER
            findings.facts["weights"] = _weights(name, options, verify)
            findings.facts["encoder"] = _encodes(store, options)  # not without weights: it would download them
    if usable and store:
        findings.facts["store"] = _tasks(store, opened, findings, verify)
    with findings.section():
        findings.facts["disk"] = _free(store, findings)
    return findings


def _open(path: Path) -> Store | None:
    """The store; None for an empty folder, as a new volume is: nothing has been taught there yet."""
    from dinosaur_ad.store import Store

    if not path.is_dir():
        raise StoreError(f"There is no folder {path}; check the path, or learn a task to make a store there.")
    return Store.find(path)


def _versions() -> dict[str, str]:
    found = {"dinosaur": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in ("onnxruntime", "onnxruntime-gpu", "openvino"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _weights(name: str, options: Mapping[str, Any], verify: bool) -> dict[str, Any]:
    """Look for the weights in the cache; those of a file or an export are checked where they are loaded."""
    from dinosaur_ad.encoders.pair import part_names
    from dinosaur_ad.encoders.weights import local as weights

    if own := options.get("weights") or options.get("export"):
        return {"encoder": name, "state": f"from {own}", "bytes": 0, "sha256": "", "verified": False}
    parts: list[dict[str, Any]] = []
    for part in part_names(name):
        status = weights.status(part)
        whole = status.state in ("ready", "built in")
        if verify or not whole:  # what is missing or of another size gets its sentence there
            status = weights.verify(part)
        parts.append({"encoder": part, "state": status.state, "bytes": status.bytes, "sha256": status.sha256})
    if len(parts) == 1:
        return parts[0] | {"verified": verify}
    both = {"state": "ready", "bytes": sum(each["bytes"] for each in parts), "sha256": weights.ensure(name).sha256}
    return {"encoder": name, **both, "verified": verify, "parts": parts}


def _encodes(store: Path | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Encode one image with the encoder that the store, or a new one, would use; the tokens must be numbers."""
    import numpy as np

    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.encoders.options import EncoderOptions

    started = time.perf_counter()
    encoder = Dinosaur(
        store, options=EncoderOptions(**options)
    ).encoder  # refuses weights that the store was not made with
    loaded = time.perf_counter()
    tokens = encoder.encode([np.random.default_rng(0).integers(0, 256, (encoder.size, encoder.size, 3), np.uint8)])
    done = time.perf_counter()
    info = encoder.info()
    if not (np.isfinite(tokens.cls).all() and np.isfinite(tokens.patches).all()):
        raise EncoderError(
            f"The encoder '{encoder.name}' gives tokens that are no numbers on {info['provider']} in "
            f"{info['precision']}; choose another provider or precision."
        )
    kept = ("encoder", "backend", "provider", "precision", "fallback", "fingerprint")
    times = {"load_ms": round(1e3 * (loaded - started), 1), "encode_ms": round(1e3 * (done - loaded), 1)}
    return {key: info.get(key) for key in kept} | times


def _tasks(path: Path, store: Store | None, findings: Findings, verify: bool) -> dict[str, Any]:
    """Read what describes the tasks, or all that was taught."""
    from dinosaur_ad.bank.verdict import check_task
    from dinosaur_ad.presets import Preset

    names, before, size = store.names() if store else [], len(findings.problems), 0
    for name in names:
        assert store is not None
        with findings.section():
            if verify:
                store.verify(name)
                check_task(Preset.from_json(store.header["preset"]), store, store.record(name))
            else:
                _check_sizes(store, name)
            size += store.bytes(name)
    damaged = len(findings.problems) - before
    return {"path": str(path), "tasks": len(names), "damaged": damaged, "bytes": size, "verified": verify}


def _check_sizes(store: Store, name: str) -> None:
    """Read what describes a task and compare the sizes of its files with it; none of them is read."""
    from dinosaur_ad.store.names import array_path

    record = store.record(name)
    for file, info in record.files.items():
        place = array_path(name, record.version, file)
        try:
            found = (store.path / place).lstat().st_size
        except OSError:
            found = None
        if found != info.bytes and store.record(name).id == record.id:  # and not replaced by a newer version just now
            raise StoreError(
                f"The file {place} of the store {store.path} has {'no' if found is None else found} bytes instead of "
                f"{info.bytes}; restore it from a backup, undo or forget the task, or learn it anew with --replace."
            )


def _free(store: Path | None, findings: Findings) -> dict[str, int]:
    """Free bytes where weights and the store lie."""
    from dinosaur_ad.encoders.weights.weight_folder import cache_home

    places = {"cache": cache_home()} | ({"store": store} if store else {})
    free = {name: shutil.disk_usage(_existing(path)).free for name, path in places.items()}
    for name, path in places.items():
        if free[name] < LEAST_FREE_BYTES:
            findings.problems.append(
                f"Only {free[name] / 1e6:.0f} MB are free where {path} lies, and {LEAST_FREE_BYTES / 1e6:.0f} MB are "
                "needed to write a change safely; free some space."
            )
    return free


def _existing(path: Path) -> Path:
    """The nearest folder above that is there."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _version_words(facts: dict[str, str]) -> str:
    others = (f"{name} {version}" for name, version in facts.items() if name != "machine")
    return f"{', '.join(others)} on {facts['machine']}"


def _weights_words(facts: dict[str, Any]) -> str:
    if not facts["bytes"]:  # built in, or not in the cache
        return f"{facts['encoder']}: {facts['state']}"
    state = "intact" if facts["verified"] else "here"
    return f"{facts['encoder']}: {state}, {facts['bytes'] / 1e6:.0f} MB, sha256 {facts['sha256'][:12]}"


def _encoder_words(facts: dict[str, Any]) -> str:
    return (  # a fallback was said when it happened
        f"{facts['provider']}, {facts['precision']}: loaded in {facts['load_ms']:.0f} ms, "
        f"first image in {facts['encode_ms']:.0f} ms"
    )


def _store_words(facts: dict[str, Any]) -> str:
    if not facts["tasks"]:
        return f"{facts['path']}: nothing has been taught yet"
    count = "1 task" if facts["tasks"] == 1 else f"{facts['tasks']} tasks"
    whole = "intact" if facts["verified"] else "readable (--verify also checks their banks)"
    state = f"{facts['damaged']} damaged" if facts["damaged"] else whole
    return f"{facts['path']}: {count}, {facts['bytes'] / 1e6:.1f} MB, {state}"


def _disk_words(facts: dict[str, int]) -> str:
    return ", ".join(f"{free / 1e9:.1f} GB free for the {name}" for name, free in facts.items())


_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "version": _version_words,
    "weights": _weights_words,
    "encoder": _encoder_words,
    "store": _store_words,
    "disk": _disk_words,
}
