"""Whether a reading of what an image is composed of would help with logical anomalies: tried, and left out.

The patches of the normals are clustered; an image is what share of its patches belongs to each cluster, in the whole
image or in each quarter of it. Its reading is the Mahalanobis distance of the square roots of these shares to those of
the normals, made a number of deviations by normals that were left out, and fused with the readings of ``default``.

    python -m benchmarks.composition run --data DIR --out results/composition.json --cache runs/composition
    python -m benchmarks.composition table results/composition.json

Each product is learned alone from all of its normals and named. What an encoder and the detector say of a product is
kept in ``--cache``. On two cores it takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans  # type: ignore[import-untyped]
from sklearn.covariance import LedoitWolf  # type: ignore[import-untyped]

from benchmarks.moved_parts import prepared
from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.core.exposure import Exposure, measure_exposure, usual_exposure
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.core.readings import SPREAD, WEIGHT
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.images.loading import read_image
from dinosaur_ad.presets import DEFAULT

Floats = NDArray[np.float32]
PRODUCTS = ("juice_bottle", "bottle", "cable", "transistor", "screw")
GOOD, BAD = 60, 90
"""Test images of a product of MVTec-AD at the most, the bad ones evenly spread; of juice_bottle all."""
CLUSTERS, GRIDS = (16, 32, 64, 128), (1, 2)
CHANNELS, DRAWN, FOLDS = 64, 40_000, 5
"""Principal directions of the patches that are clustered, patches that both are found from, parts left out in turn."""


def files_of(data: Path, product: str) -> tuple[list[Path], list[Path], list[Path]]:
    """Normals to learn, normals for the threshold (none: of those learned), and test images."""
    folder = data / ("mvtec_loco" if product == "juice_bottle" else "mvtec_ad") / product
    normals, tests = sorted((folder / "train" / "good").iterdir()), sorted((folder / "test").glob("*/*"))
    if product == "juice_bottle":
        return normals, sorted((folder / "validation" / "good").iterdir()), tests
    bad = [path for path in tests if path.parent.name != "good"]
    spread = np.unique(np.linspace(0, len(bad) - 1, min(BAD, len(bad))).round().astype(int)).tolist()
    return normals, [], [path for path in tests if path.parent.name == "good"][:GOOD] + [bad[n] for n in spread]


def observed(data: Path, product: str, options: EncoderOptions, cache: Path) -> dict[str, NDArray[Any]]:
    """Features of normals and of test images ``(N, H, W, C)``, the scores and readings of ``default``, and labels."""
    path = cache / f"{product}.npz"
    if not path.exists():
        normals, held_out, tests = files_of(data, product)
        detector = Dinosaur(preset=DEFAULT, options=options)
        detector.learn(product, normals, held_out=held_out or None, force=True)
        results = detector.inspect(tests, task=product)
        extractor = FeatureExtractor(DEFAULT, lambda: detector.encoder)
        pixels = {"train": pixels_of(normals), "test": pixels_of(tests)}
        exposure = usual_exposure(measure_exposure(pixels["train"]))
        found: dict[str, Any] = {name: features(extractor, each, exposure) for name, each in pixels.items()}
        found["readings"] = np.asarray([list(each.readings.values()) for each in results])
        found["score"] = np.asarray([each.score for each in results])
        found["encoder"] = "{description}; {provider} {precision}".format(**detector.encoder.info())
        found["lab"] = np.asarray([path.parent.name != "good" for path in tests])
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, **found)
    with np.load(path) as stored:
        return {name: stored[name] for name in stored}


def pixels_of(paths: Sequence[Path]) -> NDArray[np.uint8]:
    """Images at the size they are encoded at."""
    return np.stack(prepared([read_image(path) for path in paths]))


def features(extractor: FeatureExtractor, pixels_NHWC: NDArray[np.uint8], exposure: Exposure) -> NDArray[np.float16]:
    """Patch features, a few images at a time."""
    parts = [extractor.features(pixels_NHWC[n : n + 16], exposure)[1] for n in range(0, len(pixels_NHWC), 16)]
    return np.concatenate(parts).astype(np.float16)


def shares(patches_NHWK: Floats, centre_QK: Floats, sharpness: float, grid: int) -> Floats:
    """Square roots of the share of each cluster in each cell of a grid over the image ``(N, cells x Q)``.

    A patch belongs to several clusters, the less the farther they are; ``sharpness`` is in squared distances.
    """
    count, height, width, channels = patches_NHWK.shape
    near_PQ = squared(patches_NHWK.reshape(-1, channels), centre_QK)
    near_PQ = np.exp(-(near_PQ - near_PQ.min(axis=1, keepdims=True)) * sharpness)
    near_NHWQ = (near_PQ / near_PQ.sum(axis=1, keepdims=True)).reshape(count, height, width, -1)
    rows, columns = (np.linspace(0, side, grid + 1).astype(int) for side in (height, width))
    cells = [
        near_NHWQ[:, rows[i] : rows[i + 1], columns[j] : columns[j + 1]].mean(axis=(1, 2))
        for i in range(grid)
        for j in range(grid)
    ]
    return np.asarray(np.sqrt(np.concatenate(cells, axis=1)), np.float32)


def squared(patches_PK: Floats, centre_QK: Floats) -> Floats:
    """Squared distances ``(P, Q)``."""
    lengths = (patches_PK**2).sum(axis=1)[:, None] + (centre_QK**2).sum(axis=1)
    return np.asarray(lengths - 2 * patches_PK @ centre_QK.T, np.float32)


def mahalanobis(normal_ND: Floats, asked_ND: Floats) -> NDArray[np.float64]:
    """How far compositions lie from those of normals."""
    gaussian = LedoitWolf().fit(normal_ND)
    return np.asarray(np.sqrt(gaussian.mahalanobis(asked_ND)), np.float64)


def compared(seen: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """AUROC of the default, of its readings, and of each composition alone and fused with them."""
    generator, labels = np.random.default_rng(0), seen["lab"].tolist()
    train_NHWC, test_NHWC = seen["train"].astype(np.float32), seen["test"].astype(np.float32)
    flat_PC = train_NHWC.reshape(-1, train_NHWC.shape[-1])
    drawn_PC, middle_C = flat_PC[generator.choice(len(flat_PC), DRAWN)], flat_PC.mean(axis=0)
    directions_CK = np.linalg.svd(drawn_PC - middle_C, full_matrices=False)[2][:CHANNELS].T
    train_NHWK, test_NHWK = ((each - middle_C) @ directions_CK for each in (train_NHWC, test_NHWC))
    drawn_PK = (drawn_PC - middle_C) @ directions_CK
    default_N = np.log(seen["score"]) / SPREAD
    rows = []
    for clusters in CLUSTERS:
        centre_QK = MiniBatchKMeans(clusters, n_init=2, random_state=0, batch_size=4096).fit(drawn_PK).cluster_centers_
        sharpness = 2 / float(np.median(squared(drawn_PK, centre_QK).min(axis=1)))
        for grid in GRIDS:
            normal_ND, asked_ND = (shares(each, centre_QK, sharpness, grid) for each in (train_NHWK, test_NHWK))
            unseen_N = np.zeros(len(normal_ND))
            for fold in np.array_split(generator.permutation(len(normal_ND)), FOLDS):
                unseen_N[fold] = mahalanobis(np.delete(normal_ND, fold, axis=0), normal_ND[fold])
            log_N = np.log(unseen_N)
            variance = (len(log_N) * log_N.var() + WEIGHT * SPREAD**2) / (len(log_N) + WEIGHT)
            own_N = (np.log(mahalanobis(normal_ND, asked_ND)) - log_N.mean()) / np.sqrt(variance)
            # The default is the log-mean-exp of two readings: this is that of three.
            fused_N = np.logaddexp(default_N + np.log(2), own_N)
            rows.append(
                {"clusters": clusters, "grid": grid, "alone": area(own_N, labels), "fused": area(fused_N, labels)}
            )
    readings = {name: area(seen["readings"][:, n], labels) for n, name in enumerate(DEFAULT.readings)}
    return {"default": area(seen["score"], labels), "readings": readings, "compositions": rows}


def area(scores_N: NDArray[Any], labels: list[bool]) -> float:
    """Image AUROC, as it is stored."""
    return round(float(auroc(scores_N.tolist(), labels)), 5)


def table(document: dict[str, Any]) -> list[str]:
    """The default, its coarse reading, and the means of all compositions and the best of them by hindsight."""
    lines = [
        "| product | default | its coarse reading alone | with a composition, mean of all | the best by hindsight |",
        "|---|--:|--:|--:|--:|",
    ]
    for product, found in document["products"].items():
        fused = [row["fused"] for row in found["compositions"]]
        lines.append(
            f"| {product} | {found['default']:.3f} | {found['readings']['coarse']:.3f} | {np.mean(fused):.3f} "
            f"| {max(fused):.3f} |"
        )
    return [*lines, "", f"{document['encoder']}."]


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("--data", type=Path, required=True, help="the folder of mvtec_ad and mvtec_loco")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--cache", type=Path, default=Path("runs/composition"))
    run.add_argument("--products", nargs="+", default=PRODUCTS)
    run.add_argument("--provider", help="what the encoder runs on (default: onnx-cpu)")
    run.add_argument("--precision", help="of the encoder (default: float32)")
    verbs.add_parser("table").add_argument("result", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "table":
        print("\n".join(table(json.loads(arguments.result.read_text()))))
        return
    options = EncoderOptions(provider=arguments.provider, precision=arguments.precision)
    document: dict[str, Any] = {"products": {}}
    for product in arguments.products:
        seen = observed(arguments.data, product, options, arguments.cache)
        document["encoder"] = str(seen["encoder"])
        document["products"][product] = compared(seen)
        write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
        print(f"{product}: done", file=sys.stderr, flush=True)
    print("\n".join(table(document)))


if __name__ == "__main__":
    main()
