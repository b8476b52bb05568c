"""Where the attack happens: a new folder with made-up products, a store that has learned them, and a canary.

::

    images/a, b, c     normal images of three products       more/, new/     some more of each, for updates
    fixed/             what is inspected again and again: a normal image and a defect of each product
    store/             a (learned, updated), b (int8), c (within a budget, update undone), gone (forgotten)
    canary/            files that nobody has any business with; so are the images and cwd/
    home/, cwd/, tmp/  what the children take for theirs       work/           a folder a case, removed after it
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attack.runner import Done, Pool

SEED = 20260
PRODUCTS = ("a", "b", "c")
UNTOUCHED = ("canary", "images", "more", "new", "fixed", "cwd", "store", "small")


@dataclass(frozen=True, eq=False)
class Arena:
    """The folder, the servers, and what the untouched store says about the fixed images."""

    root: Path
    pool: Pool
    seed: int
    # As inspect --json gives them, by file name.
    expected: Mapping[str, Mapping[str, Any]]
    untouched: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def random(self, attack: str, case: int) -> random.Random:
        """The dice of one case: the same whatever else is tried."""
        return random.Random(f"{self.seed}/{attack}/{case}")

    @property
    def store(self) -> Path:
        """The store that everything starts from; nothing may change it."""
        return self.root / "store"

    @property
    def fixed(self) -> Path:
        """The images that are inspected again and again."""
        return self.root / "fixed"

    @contextmanager
    def place(self, store: Path | None = None) -> Iterator[Path]:
        """A folder for one case with a copy of the store in it."""
        folder = self.root / "work" / f"{next(self._numbers):06d}"
        shutil.copytree(store or self.store, folder / "store")
        try:
            yield folder
        finally:
            remove(folder)

    def inspect(self, store: Path, *images: object, **options: Any) -> Done:
        """Inspect the fixed images, or others, through the command line."""
        return self.pool.cli("inspect", *(images or [self.fixed]), "--store", store, "--json", *ONE, **options)

    def touched(self) -> str | None:
        """What changed that is no store of a case: a sentence, or None."""
        if fingerprint(self.root, UNTOUCHED) == self.untouched:
            return None
        return "files outside of the store were changed"


ONE = ("--threads", "1")
"""A child that shares two cores with others works on one."""


@contextmanager
def arena(size: int = 2, seed: int = SEED, folder: Path | None = None) -> Iterator[Arena]:
    """Make the folder, start the servers, teach the products; afterwards everything is gone."""
    if folder is None and os.access("/dev/shm", os.W_OK):
        folder = Path("/dev/shm")  # thousands of small files: what a disk does with them is not what is attacked
    with tempfile.TemporaryDirectory(dir=folder, prefix="dinosaur-attack-", ignore_cleanup_errors=True) as name:
        root = Path(name).resolve()
        for child in ("home", "cwd", "tmp", "work", "canary/deep"):
            (root / child).mkdir(parents=True)
        for number in range(5):
            (root / "canary" / ("deep" if number % 2 else ".") / f"{number}.txt").write_text(f"canary {number}\n")
        pool = Pool(size, root / "jobs", root / "cwd", environment(root))
        try:
            pool.ask("attack.jobs:prepare", root=str(root))
            made = Arena(root, pool, seed, {}, fingerprint(root, UNTOUCHED))
            results = made.inspect(made.store)
            expected = {Path(each["path"]).name: each for each in judged(results)}
            if results.crash() or results.code or expected.keys() != {path.name for path in made.fixed.iterdir()}:
                raise RuntimeError(f"the untouched store cannot be inspected: {results.crash() or results.last_line()}")
            yield replace(made, expected=expected)
        finally:
            pool.close()
            remove(root)


def environment(root: Path) -> dict[str, str]:
    """What a child may know: a home of its own, one thread, and nothing of ours."""
    kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV") if key in os.environ}
    own = {"HOME": str(root / "home"), "TMPDIR": str(root / "tmp"), "DINOSAUR_HOME": str(root / "home" / "dinosaur")}
    return (
        kept
        | own
        | {"LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    )


def judged(done: Done) -> list[dict[str, Any]]:
    """The results that inspect --json printed; what cannot be understood is an error of its own."""
    return [json.loads(line) for line in done.out.splitlines()]


def fingerprint(root: Path, names: Sequence[str] = (".",)) -> str:
    """A hash of everything below: names, kinds, contents, where links lead. Locks, which say nothing, are left out."""
    digest = hashlib.sha256()
    for name in names:
        for parent, folders, files in os.walk(root / name):
            folders.sort()
            for each in sorted(files + folders):
                path = Path(parent, each)
                mode = path.lstat().st_mode
                if each in (".lock", ".writer") and stat.S_ISREG(mode):
                    continue
                digest.update(f"{path.relative_to(root)}\0{stat.S_IFMT(mode)}\0".encode(errors="surrogateescape"))
                if stat.S_ISLNK(mode):
                    digest.update(str(path.readlink()).encode())
                elif stat.S_ISREG(mode):
                    digest.update(path.read_bytes())
    return digest.hexdigest()


def remove(folder: Path) -> None:
    """Remove a folder, whatever permissions an attack has left in it."""
    for parent, folders, _ in os.walk(folder):
        for each in folders:
            path = Path(parent, each)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
