"""What is under the camera (a :class:`Surface`) and how it becomes a photograph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dinosaur_ad.datasets.synthetic.raster import Field, Point, Rng, Window, whole, window

Colour = tuple[float, float, float]


def linear(colour: Colour) -> Field:
    """A display colour (0..1) as linear light (3, 1, 1); the camera's gamma is 2."""
    return np.array(colour, dtype=np.float32)[:, None, None] ** 2


@dataclass
class Surface:
    """Layers of one scene, all float32: ``albedo`` (3, S, S) and the others (S, S).

    ``albedo`` is linear, plane by plane because NumPy is slow on a last axis of 3; ``height`` is in units;
    ``gloss`` is the strength of highlights; ``lit`` is the share of light that arrives (1 = no shadow);
    ``glare`` is light added on top, as a clear cover does. Defects change these layers before the light falls
    on them, so they share the shading of the material they are in.
    """

    albedo: Field
    height: Field
    gloss: Field
    lit: Field
    glare: Field

    @classmethod
    def plain(cls, size: int, colour: Colour, gloss: float = 0.0) -> Surface:
        """A flat, evenly coloured surface of ``size`` × ``size`` pixels."""
        albedo = np.empty((3, size, size), dtype=np.float32)
        albedo[:] = linear(colour)
        zeros = np.zeros((size, size), dtype=np.float32)
        return cls(albedo, zeros, np.full_like(zeros, gloss), np.ones_like(zeros), zeros.copy())

    @property
    def size(self) -> int:
        """Pixels along a side."""
        return len(self.height)

    @property
    def whole(self) -> Window:
        """The window that is the whole surface."""
        return whole(self.size)

    def near(self, centre: Point, reach: float) -> Window:
        """The window around ``centre``."""
        return window(self.size, centre, reach)

    def paint(self, area: Window, alpha: Field, colour: Colour | Field, gloss: float | None = None) -> None:
        """Blend in a coat by ``alpha``: a display colour, or linear albedo (3, h, w)."""
        target = self.albedo[:, area.rows, area.cols]
        coat = colour if isinstance(colour, np.ndarray) else linear(colour)
        target += alpha * (coat - target)
        if gloss is not None:
            shine = self.gloss[area.rows, area.cols]
            shine += alpha * (np.float32(gloss) - shine)

    def tint(self, area: Window, factor: Field) -> None:
        """Multiply the albedo by ``factor`` (h, w)."""
        self.albedo[:, area.rows, area.cols] *= factor

    def lift(self, area: Window, amount: Field) -> None:
        """Add ``amount`` (units, may be negative) to the height."""
        self.height[area.rows, area.cols] += amount

    def level(self, area: Window, alpha: Field, height: Field | float) -> None:
        """Replace the height by ``height`` where ``alpha`` is 1."""
        target = self.height[area.rows, area.cols]
        target += alpha * (height - target)

    def shadow(self, area: Window, amount: Field) -> None:
        """Take away the share ``amount`` (0..1) of the light."""
        self.lit[area.rows, area.cols] *= np.float32(1.0) - amount

    def shine(self, area: Window, amount: Field) -> None:
        """Add light reflected by a clear cover."""
        self.glare[area.rows, area.cols] += amount


@dataclass(frozen=True)
class Lighting:
    """A lamp towards ``direction`` (x, y, z up), the ``ambient`` share, and how tight highlights are."""

    direction: tuple[float, float, float] = (-0.45, -0.55, 0.9)
    ambient: float = 0.45
    shininess: int = 16  # a power of two


def photograph(surface: Surface, lighting: Lighting, rng: Rng) -> npt.NDArray[np.uint8]:
    """Light the surface and take its picture: uint8 (S, S, 3).

    ``rng`` decides what changes between two shots on a line: lamp angle, gain, white balance, fall-off,
    focus, noise.
    """
    light = _light(surface, lighting, rng)
    light *= _illumination(surface, rng)
    light *= rng.normal(1.0, 0.012, (3, 1, 1)).astype(np.float32)  # white balance
    light = _defocus(light, rng.uniform(0.45, 0.85) / surface.whole.step)
    np.maximum(light, 0, out=light)
    shot = np.sqrt(light, out=light)  # gamma 2; it also makes photon noise even over the range
    shot *= 255.0
    shot += rng.standard_normal(shot.shape, dtype=np.float32) * np.float32(rng.uniform(1.2, 2.6))
    shot += 0.5
    planes = np.clip(shot, 0, 255, out=shot).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(planes, 0, -1))


def _light(surface: Surface, lighting: Lighting, rng: Rng) -> Field:
    direction = np.array(lighting.direction) + rng.normal(0.0, 0.03, 3)
    lx, ly, lz = (direction / np.linalg.norm(direction)).astype(np.float32)
    step = np.float32(1.0 / surface.whole.step)
    slope_x, slope_y = np.zeros_like(surface.height), np.zeros_like(surface.height)
    slope_x[:, 1:-1] = (surface.height[:, 2:] - surface.height[:, :-2]) * (step / 2)
    slope_y[1:-1] = (surface.height[2:] - surface.height[:-2]) * (step / 2)
    normal_z = 1.0 / np.sqrt(1.0 + slope_x * slope_x + slope_y * slope_y)
    facing = np.maximum((lz - slope_x * lx - slope_y * ly) * normal_z, 0) / lz  # 1 on a flat part
    half = np.array([lx, ly, lz + 1.0])
    hx, hy, hz = (half / np.linalg.norm(half)).astype(np.float32)
    highlight = np.maximum((hz - slope_x * hx - slope_y * hy) * normal_z, 0)
    for _ in range(lighting.shininess.bit_length() - 1):
        highlight *= highlight
    diffuse = (np.float32(lighting.ambient) + np.float32(1 - lighting.ambient) * facing) * surface.lit
    light: Field = surface.albedo * diffuse + (surface.gloss * highlight * surface.lit + surface.glare)
    return light


def _illumination(surface: Surface, rng: Rng) -> Field:
    area = surface.whole
    gain = rng.normal(1.0, 0.06)
    tilt_x, tilt_y = rng.normal(0.0, 0.05, 2)
    x, y = (area.x - 128) / 128, (area.y - 128) / 128
    falloff = np.float32(rng.uniform(0.05, 0.12))
    lamp = np.float32(gain) + np.float32(tilt_x) * x + np.float32(tilt_y) * y
    return lamp * (1 - falloff * (x * x + y * y) / 2)


def _defocus(light: Field, sigma: float) -> Field:
    """Gaussian blur of five taps a side, edges repeated."""
    taps = np.exp(-0.5 * (np.arange(3) / sigma) ** 2)
    taps = (taps / (taps[0] + 2 * taps[1:].sum())).astype(np.float32)
    padded = np.pad(light, ((0, 0), (2, 2), (0, 0)), mode="edge")
    n = light.shape[1]
    rows = [padded[:, i : i + n] for i in range(5)]
    light = rows[2] * taps[0] + (rows[1] + rows[3]) * taps[1] + (rows[0] + rows[4]) * taps[2]
    padded = np.pad(light, ((0, 0), (0, 0), (2, 2)), mode="edge")
    columns = [padded[:, :, i : i + n] for i in range(5)]
    light = columns[2] * taps[0] + (columns[1] + columns[3]) * taps[1] + (columns[0] + columns[4]) * taps[2]
    return light
