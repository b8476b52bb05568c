"""Pretrain EfficientAD's teacher: distil a small network (PDN-S) from a large one.

The large network is any registered backbone. Its features of an image of twice the size, resized to the small
network's grid and number of channels and standardised channel by channel, are the regression target. The images should
be many and various; the originals take ImageNet.

Published: 60,000 iterations of 16 images, one in ten made grey. The benchmark's paper distils a ResNet-34 (stages 2 and
3: 384 channels, just as many as the teacher has) with Adam 1e-3 and decay 1e-4; the original a WideResNet-101 with 1e-4
and 1e-5 and features averaged 3x3. Both are in ``RECIPES``.

A stopped run resumes from a checkpoint beside the result: everything random is drawn from the number of the iteration.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Pixels, find_images
from dinosaur_ad.methods.efficientad.pdn import build_pdn, build_seeded, channel_statistics, standardise
from dinosaur_ad.methods.efficientad.teacher_parts import RECIPES, Recipe, Target, TeacherImages
from dinosaur_ad.methods.shared.torch_tools import import_torch, to_images

if TYPE_CHECKING:
    import torch

SAVE_EVERY = 60.0  # seconds
SAY_EVERY = 10.0
LOG_EVERY = 500  # iterations whose losses become one number of the record
Say = Callable[[str], None]


@dataclass(frozen=True)
class Pretrained:
    """A finished pretraining: ``losses`` are means over :data:`LOG_EVERY` iterations, ``unreadable`` counts files."""

    path: Path
    description: str
    images: int
    unreadable: int
    losses: list[float] = field(repr=False)


def pretrain_teacher(
    images: str | Path,
    encoder: str,
    out: str | Path,
    *,
    recipe: Recipe | Literal["paper", "original"] = "paper",
    weights: str | None = None,
    device: str = "cpu",
    seed: int = 0,
    say: Say = lambda text: None,
) -> Pretrained:
    """Teach a PDN the features of ``encoder`` on the images below a folder, and write it to ``out`` (safetensors).

    ``weights`` takes the encoder's weights from a file. A run that was stopped goes on when it is started again with
    the same settings; its position lies beside ``out`` until it is done.
    """
    chosen = RECIPES[recipe] if isinstance(recipe, str) else recipe
    out = Path(out).expanduser()
    if out.exists():
        raise InputError(f"{out} exists already; remove it or choose another file for the teacher.")
    gallery = TeacherImages(find_images([images], strict=True), seed, chosen)
    target = Target(encoder, chosen, weights, device)
    words = (
        f"PDN-S distilled from {target.description} with {len(gallery.paths)} images of '{Path(images).name}', "
        f"{chosen.iterations} iterations of {chosen.batch}, Adam {chosen.rate:g}"
    )
    training = _Distillation(chosen, target, gallery, out, device, seed, say)
    with closing(gallery), _enough_memory(device, chosen.batch):
        training.finish()
    metadata = {"description": words, "recipe": json.dumps(asdict(chosen)), "losses": json.dumps(training.losses)}
    write_atomic(out, _packed(training.network.state_dict(), metadata))
    training.partial.unlink(missing_ok=True)
    return Pretrained(out, words, len(gallery.paths), len(gallery.unreadable), training.losses)


@contextmanager
def _enough_memory(device: str, batch: int) -> Iterator[None]:
    try:
        yield
    except import_torch().OutOfMemoryError as error:
        raise InputError(f"{batch} images at a time need more memory than '{device}' has; use less.") from error


class _Distillation:
    """The state of one pretraining: network, optimiser, position."""

    def __init__(
        self, recipe: Recipe, target: Target, gallery: TeacherImages, out: Path, device: str, seed: int, say: Say
    ) -> None:
        self.losses: list[float] = []
        self.partial = out.with_name(f"{out.name}.partial")
        self.network = build_seeded(lambda: build_pdn(recipe.channels, recipe.widths), seed, device)
        self._optimiser = import_torch().optim.Adam(
            self.network.parameters(), lr=recipe.rate, weight_decay=recipe.decay
        )
        self._recipe, self._target, self._gallery, self._device, self._say = recipe, target, gallery, device, say
        self._statistics: tuple[torch.Tensor, torch.Tensor] | None = None
        self._iteration = 0
        self._whole = True  # whether network, optimiser and position belong together
        self._saved = self._said = time.monotonic()
        self._recent: list[float] = []
        self._identity = {
            "recipe": json.loads(json.dumps(asdict(recipe))),
            "encoder": target.sha256,
            "images": gallery.sha256(),
            "seed": seed,
        }

    def finish(self) -> None:
        """Measure the features, then learn them, from the start or from the position on disk."""
        self._resume()
        if self._statistics is None:
            self._statistics = self._measure()
        try:
            # One thread prepares the next batch while this one is learned.
            with ThreadPoolExecutor(1, thread_name_prefix="teacher-batch") as pool:
                upcoming = pool.submit(self._gallery.batch, self._iteration, self._target.size)
                while self._iteration < self._recipe.iterations:
                    small, large = upcoming.result()
                    upcoming = pool.submit(self._gallery.batch, self._iteration + 1, self._target.size)
                    self._step(small, large)
                    self._pause()
        except BaseException:
            if self._whole:
                self._save()
            raise
        if self._recent:
            self._log()

    def _measure(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and deviation of each channel of the features over the first images."""
        count, batch = min(self._recipe.measured, len(self._gallery.paths)), self._recipe.batch
        self._say(f"measuring the features of {count} images")
        starts = range(0, count, batch)
        with import_torch().no_grad():
            return channel_statistics(
                self._target(self._gallery.plain(start, min(batch, count - start), self._target.size))
                for start in starts
            )

    def _step(self, small: Pixels, large: Pixels) -> None:
        assert self._statistics is not None
        with import_torch().no_grad():
            wanted = standardise(self._target(large), *self._statistics)
        loss = (self.network(to_images(small, self._device)) - wanted).square().mean()
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        value = float(loss.detach())
        self._whole = False
        self._optimiser.step()
        self._iteration += 1
        self._recent.append(value)
        if len(self._recent) == LOG_EVERY:
            self._log()
        self._whole = True

    def _log(self) -> None:
        self.losses.append(sum(self._recent) / len(self._recent))
        self._recent = []

    def _pause(self) -> None:
        now = time.monotonic()
        if now - self._said > SAY_EVERY:
            self._said = now
            latest = self._recent[-1] if self._recent else self.losses[-1]
            self._say(f"{self._iteration} of {self._recipe.iterations} iterations, loss {latest:.4f}")
        if now - self._saved > SAVE_EVERY:
            self._save()
            self._saved = time.monotonic()

    def _save(self) -> None:
        """Network, optimiser, statistics and position, in one file that is there whole or not at all."""
        if self._statistics is None:
            return
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for index, state in self._optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{name}": value for name, value in state.items()}
        tensors |= {"mean": self._statistics[0], "deviation": self._statistics[1]}
        facts = {"iteration": self._iteration, "losses": self.losses, "recent": self._recent}
        metadata = {"identity": json.dumps(self._identity), "position": json.dumps(facts)}
        write_atomic(self.partial, _packed(tensors, metadata))

    def _resume(self) -> None:
        from safetensors import SafetensorError, safe_open

        if not self.partial.is_file():
            return
        try:
            with safe_open(self.partial, framework="pt", device=self._device) as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            identity, position = json.loads(metadata["identity"]), json.loads(metadata["position"])
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise InputError(f"{self.partial} is no half-made teacher ({error}); remove it to begin anew.") from error
        if identity != self._identity:
            raise InputError(
                f"{self.partial} is a half-made teacher of other settings or images; remove it or choose another file."
            )
        self.network.load_state_dict({name[8:]: each for name, each in tensors.items() if name.startswith("network.")})
        self._restore_optimiser({name[5:]: each for name, each in tensors.items() if name.startswith("adam.")})
        self._statistics = tensors["mean"], tensors["deviation"]
        self._iteration, self.losses, self._recent = position["iteration"], position["losses"], position["recent"]
        self._say(f"going on after {self._iteration} iterations")

    def _restore_optimiser(self, tensors: dict[str, torch.Tensor]) -> None:
        states: dict[int, dict[str, Any]] = {}
        for name, value in tensors.items():
            index, _, key = name.partition(".")
            states.setdefault(int(index), {})[key] = value
        self._optimiser.load_state_dict(self._optimiser.state_dict() | {"state": states})


def _packed(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> bytes:
    from safetensors.torch import save

    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    packed: bytes = save(plain, metadata=metadata)
    return packed
