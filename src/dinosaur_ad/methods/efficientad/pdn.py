"""The networks of EfficientAD: the patch description network (PDN-S), the autoencoder, and where a teacher comes from.

All are plain ``torch.nn.Sequential``, made by functions so that importing this module does not import torch. Images are
``(N, 3, S, S)`` with S a multiple of 32, normalised by ImageNet's mean and deviation. Features are ``(N, C, S/4,
S/4)``, or 8 cells smaller a side when the convolutions are not padded (56 instead of 64 at 256 pixels).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad.encoders.weights.weight_folder import cache_home
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch

RANDOM = "random"
PDN_WIDTHS = (128, 256)
AE_WIDTHS = (32, 64)
CHANNELS = 384
UNPADDED_MARGIN = 4  # cells that an unpadded network loses at each side
# Where the convolutions lie in the sequence; others number them from 1.
_CONVOLUTIONS = {"conv1": "0", "conv2": "3", "conv3": "6", "conv4": "8"}


def build_pdn(
    channels: int = CHANNELS, widths: tuple[int, int] = PDN_WIDTHS, *, padded: bool = True
) -> torch.nn.Module:
    """PDN-S: four convolutions and two poolings, ``channels`` numbers a cell of four by four pixels.

    With 384 channels it has 2,694,144 parameters (the teacher), with 768 it has 4,267,392 (the student).
    """
    nn = import_torch().nn
    from dinosaur_ad.methods.efficientad.layers import Halve

    first, second = widths
    three, one = (3, 1) if padded else (0, 0)
    return nn.Sequential(
        nn.Conv2d(3, first, 4, padding=three),
        nn.ReLU(),
        Halve(one),
        nn.Conv2d(first, second, 4, padding=three),
        nn.ReLU(),
        Halve(one),
        nn.Conv2d(second, second, 3, padding=one),
        nn.ReLU(),
        nn.Conv2d(second, channels, 4),
    )


def build_autoencoder(
    channels: int = CHANNELS,
    widths: tuple[int, int] = AE_WIDTHS,
    *,
    size: int = 256,
    padded: bool = True,
    halving: bool = True,
) -> torch.nn.Module:
    """The autoencoder: an image down to one vector of ``widths[1]`` numbers and up to a description.

    The decoder ends on twice the grid of the description. It is halved by a convolution (``halving``: 1,112,768
    parameters, the paper's count) or resized bilinearly (1,096,320, the original).
    """
    nn = import_torch().nn
    narrow, wide = widths
    encoder: list[Any] = []
    for before, after in pairwise((3, narrow, narrow, wide, wide, wide)):
        encoder += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.ReLU()]
    encoder.append(nn.Conv2d(wide, wide, size // 32))  # down to one cell
    decoder: list[Any] = []
    for side in decoder_sides(size):
        decoder += [
            nn.Upsample(size=side, mode="bilinear"),
            nn.Conv2d(wide, wide, 4, padding=2),
            nn.ReLU(),
            nn.Dropout(0.2),
        ]
    grid = size // 4 - (0 if padded else 2 * UNPADDED_MARGIN)
    # Replaces a resize, which is linear: hence no ReLU.
    decoder.append(nn.Conv2d(wide, wide, 2, stride=2) if halving else nn.Upsample(size=grid, mode="bilinear"))
    if halving and not padded:
        raise InputError("An autoencoder that halves its map by a convolution describes the padded grid only.")
    decoder += [nn.Conv2d(wide, wide, 3, padding=1), nn.ReLU(), nn.Conv2d(wide, channels, 3, padding=1)]
    return nn.Sequential(*encoder, *decoder)


def decoder_sides(size: int) -> tuple[int, ...]:
    """The sides to which the decoder resizes before its six convolutions, each of which adds one.

    >>> decoder_sides(256)
    (3, 8, 15, 32, 63, 127)
    """
    if size < 32 or size % 32:
        raise InputError(f"EfficientAD's image size must be a positive multiple of 32, got {size}.")
    sides = (size // 64 - 1, size // 32, size // 16 - 1, size // 8, size // 4 - 1, size // 2 - 1)
    return tuple(max(1, side) for side in sides)


def build_seeded(build: Callable[[], torch.nn.Module], seed: int, device: str) -> torch.nn.Module:
    """``build()`` with weights drawn from ``seed``, the same on every device; torch's own generator is not changed."""
    torch = import_torch()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        # Channels last is the layout of tensor cores; otherwise every convolution converts its input.
        return build().to(device, memory_format=torch.channels_last)


# --- the teacher ---


@dataclass(frozen=True)
class Teacher:
    """A frozen PDN, and the origin of its weights."""

    network: torch.nn.Module
    description: str
    sha256: str
    source: str


def default_teacher() -> Path:
    """The default file of the teacher."""
    return cache_home() / "teachers" / "pdn-small.safetensors"


def load_teacher(
    place: str, *, channels: int, widths: tuple[int, int], padded: bool, device: str, seed: int = 0
) -> Teacher:
    """The teacher in the file ``place``, the usual one when it is empty, or one of random weights (``"random"``)."""
    import_torch()  # or raise an error that says what to install
    from dinosaur_ad.encoders.backends.torch_backend import check_device

    check_device(device)
    network = build_seeded(lambda: build_pdn(channels, widths, padded=padded), seed, device)
    network.eval().requires_grad_(False)
    if place == RANDOM:
        words = f"PDN with random weights (seed {seed}) as teacher: it has learned nothing"
        return Teacher(network, words, _state_sha256(network), f"seed:{seed}")
    path = Path(place).expanduser() if place else default_teacher()
    tensors, metadata = _read(path)
    _fill(network, tensors, path)
    words = metadata.get("description", f"PDN from the file {path.name}, which does not say how it was trained")
    return Teacher(network, words, _state_sha256(network), f"file:{path.name}")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise EncoderError(
            f"EfficientAD's teacher {path} is not here; make one with: dinosaur bench teacher --images DIR "
            f"--encoder NAME --out {path}, or name another file with the setting 'teacher'."
        )
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {
                _CONVOLUTIONS.get(layer, layer) + dot + kind: file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118
                for layer, dot, kind in [name.rpartition(".")]
            }
            return tensors, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise EncoderError(f"EfficientAD's teacher {path} cannot be read ({error}); make it again.") from error


def _fill(network: torch.nn.Module, tensors: dict[str, Any], path: Path) -> None:
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if wanted != found:
        different = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise EncoderError(
            f"The file {path} is no teacher of these widths: '{different[0]}' is {found.get(different[0])} there and "
            f"{wanted.get(different[0])} here; use another file or change 'channels' and 'widths'."
        )
    network.load_state_dict({name: value.float() for name, value in tensors.items()})


def _state_sha256(network: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


# --- channel statistics ---


def channel_statistics(outputs: Iterable[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation ``(C,)`` of each channel over all places of all batches ``(N, C, H, W)``.

    Batches are merged by Welford's method in double precision. A constant channel gets the deviation 1.
    """
    torch = import_torch()
    count, mean_C, squares_C = 0, None, None
    for output_NCHW in outputs:
        points_CP = output_NCHW.transpose(0, 1).flatten(1).double()
        batch_mean_C = points_CP.mean(1)
        batch_squares_C = (points_CP - batch_mean_C[:, None]).square().sum(1)
        size = points_CP.shape[1]
        if mean_C is None or squares_C is None:
            mean_C, squares_C = batch_mean_C, batch_squares_C
        else:
            shift_C = batch_mean_C - mean_C
            squares_C = squares_C + batch_squares_C + shift_C.square() * (count * size / (count + size))
            mean_C = mean_C + shift_C * (size / (count + size))
        count += size
    if mean_C is None or squares_C is None:
        raise InputError("Expected at least one image to measure the channels of, got none.")
    deviation_C = (squares_C / count).sqrt()
    deviation_C = torch.where(deviation_C > 1e-6, deviation_C, torch.ones_like(deviation_C))
    return mean_C.float(), deviation_C.float()


def standardise(output_NCHW: torch.Tensor, mean_C: torch.Tensor, deviation_C: torch.Tensor) -> torch.Tensor:
    """Each channel with the mean 0 and the deviation 1 that :func:`channel_statistics` found."""
    return (output_NCHW - mean_C[:, None, None]) / deviation_C[:, None, None]
