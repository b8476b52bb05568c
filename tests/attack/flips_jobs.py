"""What a child does with flipped bits: flip, inspect with one encoder for all, flip back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attack.compare import opinions_problem
from attack.flips import flip_bit
from attack.jobs import contents, opinion, pixels
from dinosaur_ad import Dinosaur, EncoderOptions
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.errors import DinosaurError

Opinions = dict[str, dict[str, Any]]


class Judge:
    """The encoder, the fixed images, and what intact stores say about them."""

    def __init__(self, root: Path, encoder: Encoder) -> None:
        self.root, self.encoder = root, encoder
        fixed = root / "fixed"
        self.names, self.images = [path.name for path in sorted(fixed.iterdir())], pixels(fixed)
        self._known: dict[tuple[str, str], list[tuple[Opinions, Any]]] = {}

    def inspect(self, store: Path) -> Opinions:
        """What a store says, by image."""
        results = Dinosaur(store, encoder=self.encoder).inspect(self.images)
        return {name: opinion(each) for name, each in zip(self.names, results, strict=True)}

    def then(self, what: str, store: Path) -> Opinions:
        """Change the task a, check every byte, and inspect."""
        detector = Dinosaur(store, encoder=self.encoder)
        detector.update("a", self.root / "new" / "a") if what == "update" else detector.undo("a")
        for name in detector.store.names():
            detector.store.verify(name)
        return self.inspect(store)

    def contents(self, store: Path) -> Any:
        """What the task a holds."""
        return next((contents(record) for record in Dinosaur(store).tasks() if record.name == "a"), None)

    def honest(self, what: str, store: str, place: Path) -> list[tuple[Opinions, Any]]:
        """What an intact store says after the same change, and what its task a then holds.

        An undo may also mend the damage itself, and give back the version that counted before it.
        """
        if (what, store) not in self._known:
            copy = _copy(self.root / store, place / "intact")
            opinions = self.inspect(copy) if what == "inspect" else self.then(what, copy)
            self._known[what, store] = [(opinions, self.contents(copy))]
            if what == "undo":
                self._known[what, store] += self.honest("inspect", store, place)
        return self._known[what, store]

    def judge(self, flip: Mapping[str, Any], place: Path) -> str | None:
        """What is wrong with what happens after one flip."""
        what, store = flip["then"], flip["store"]
        honest = self.honest(what, store, place)
        damaged = place / f"{what}-{store}-{os.getpid()}"
        if what != "inspect" or not damaged.exists():  # an inspection leaves it as it was, a change does not
            _copy(self.root / store, damaged)
        flip_bit(damaged / flip["file"], flip["byte"], flip["bit"])
        try:
            found = self.inspect(damaged) if what == "inspect" else self.then(what, damaged)
            openly = any(each["left_out"] for each in found.values())  # the exit code is seen by the command line
            held = None if openly or what == "inspect" else self.contents(damaged)
        except DinosaurError as error:
            return None if len(str(error)) > 30 else f"refused without a sentence: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            if what == "inspect":
                flip_bit(damaged / flip["file"], flip["byte"], flip["bit"])
        if held and held not in [contents for _, contents in honest]:
            return f"{what} took damaged data over, and every hash is right"
        problems = [opinions_problem(opinions, found, openly=openly) for opinions, _ in honest]
        return None if None in problems else problems[0]


def _copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return shutil.copytree(source, target)


def judge(root: str, place: str, flips: Sequence[Mapping[str, Any]], journal: str) -> int:
    """Judge flips one after the other; each is written down at once, so that it is known which one ended the child."""
    base = Path(root)
    judge = Judge(base, Dinosaur(base / "store", options=EncoderOptions(threads=1)).encoder)
    with Path(journal).open("a", encoding="utf-8") as file:
        for flip in flips:
            problem = judge.judge(flip, Path(place))
            file.write(json.dumps({"problem": problem}) + "\n")
            file.flush()
    return 0
