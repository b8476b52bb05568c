"""From a method's name to the job that measures it: with which settings, which weights, which store.

Where the weights of a method are not on this machine, random ones of the same architecture are used and noted: the
speed does not depend on the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad.errors import EncoderError, InputError, install_command
from dinosaur_ad.profile.document import SKIPPED
from dinosaur_ad.profile.measured_methods import SubjectJob

if TYPE_CHECKING:
    from dinosaur_ad.methods import MethodChoice
    from dinosaur_ad.profile.profiling import ProfilePlan

# --- weights ---


RANDOM_WEIGHTS = "random weights: speed only"


def stand_in_weights(settings: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], str | None]:
    """Settings to change where the weights they name are not here: random ones of the same architecture; and a note.

    ``settings`` are those of a method (``backbone``, ``encoder``, ``weights``, ``teacher``); others are left alone.

    >>> stand_in_weights({"backbone": "tiny-resnet", "weights": ""}, Path("nowhere"))
    ({}, None)
    """
    if settings.get("teacher") == "":
        from dinosaur_ad.methods.efficientad import pdn

        return ({}, None) if pdn.default_teacher().is_file() else ({"teacher": pdn.RANDOM}, RANDOM_WEIGHTS)
    name = settings.get("backbone") or settings.get("encoder")
    if not name or settings.get("weights") or _weights_are_here(name):
        return {}, None
    from safetensors.numpy import save_file

    from dinosaur_ad.encoders.weights.sources import random_tensors

    path = folder / f"random-{name}.safetensors"
    if not path.is_file():
        save_file(random_tensors(replace(_spec(name), source="seed:0")), path)
    return {"weights": str(path)}, RANDOM_WEIGHTS


def _weights_are_here(name: str) -> bool:
    from dinosaur_ad.encoders import list_specs
    from dinosaur_ad.encoders.weights.local import ensure, status
    from dinosaur_ad.encoders.weights.weight_folder import cache_home
    from dinosaur_ad.methods.shared.vit_weights import VITS

    if name in VITS:
        spec = VITS[name]
        return spec.source.startswith("seed:") or (cache_home() / "encoders" / name / spec.file).is_file()
    if name not in list_specs() or status(name).state in ("ready", "built in"):
        return True  # or a backbone that only its method knows, which reports itself what is missing
    try:
        ensure(name)  # downloads what needs no account
    except EncoderError:
        return False
    return True


def _spec(name: str) -> Any:
    from dinosaur_ad.encoders import get_spec
    from dinosaur_ad.methods.shared.vit_weights import VITS

    return VITS[name] if name in VITS else get_spec(name)


# --- jobs ---


DETECTOR = "dinosaur"
NEEDS_TORCH = f"it computes with torch, which is not installed here: {install_command('bench')}"
EPOCHS = 1
"""How long methods that train are trained for a profile; what more epochs would take is not claimed."""


@dataclass
class MethodRun:
    """A method to measure, and what was measured so far.

    ``notes`` are what a reader of its numbers must know; ``without`` is status and reason where there are no numbers.
    """

    name: str
    job: SubjectJob
    notes: tuple[str, ...] = ()
    without: tuple[str, str] | None = None
    learned: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def job_of(self, turn: int) -> SubjectJob:
        """The job with the folder that it learns into for the ``turn``-th time."""
        return replace(self.job, folder=str(Path(self.job.folder, f"turn-{turn}")))


def prepare_method(choice: MethodChoice, plan: ProfilePlan, folder: Path) -> MethodRun:
    """The job of a method: random weights where there are none, one epoch of training. ``folder`` is for its files."""
    own = folder / choice.name.replace(":", "-")
    if choice.spec.name == DETECTOR:
        return _prepare_detector(choice, plan, own)
    job = SubjectJob(str(own), choice.name, device=plan.device, seed=plan.seed)
    if find_spec("torch") is None:
        return MethodRun(choice.name, job, without=(SKIPPED, NEEDS_TORCH))
    config, notes = asdict(choice.config), []
    if "epochs" in config:
        usual, config["epochs"] = config["epochs"], min(EPOCHS, config["epochs"])
        notes.append(f"learning is {config['epochs']} epoch, measured; its own schedule has {usual}")
    changes, note = stand_in_weights(config, folder)
    return MethodRun(choice.name, replace(job, config=config | changes), (*notes, *([note] if note else [])))


def _prepare_detector(choice: MethodChoice, plan: ProfilePlan, own: Path) -> MethodRun:
    """The detector as it ships: with the reserve for updates, which the benchmark's form of it leaves out."""
    from dinosaur_ad.methods.dinosaur import DinosaurConfig
    from dinosaur_ad.presets import get_preset

    config, options, notes = choice.config, dict(plan.options), []
    assert isinstance(config, DinosaurConfig)
    encoder = config.encoder
    preset: Mapping[str, Any] = replace(config.to_preset(), reserve=get_preset(config.preset).reserve).to_json()
    store = plan.store if choice.name == DETECTOR else None
    if store is not None:
        encoder, preset = _settings_of(store)
        notes.append("inspected with the store that was given; learned into a new one of the same settings")
    options["weights"] = options.get("weights") or config.weights or None
    changes, note = stand_in_weights(
        {"encoder": encoder, "weights": options["weights"] or options.get("export")}, own.parent
    )
    if store is not None and changes:
        raise InputError(f"The store was made with '{encoder}', whose weights are not here; see: dinosaur weights.")
    job = SubjectJob(
        str(own),
        encoder=encoder,
        preset=preset,
        options={key: _plain(value) for key, value in (options | changes).items() if value is not None},
        store=None if store is None else str(store),
        seed=plan.seed,
    )
    return MethodRun(choice.name, job, (*notes, *([note] if note else [])))


def _settings_of(store: Path) -> tuple[str, Mapping[str, Any]]:
    """Encoder and preset of a store; one without tasks has nothing to inspect with."""
    from dinosaur_ad.store import Store

    opened = Store.open(store)
    if not opened.names():
        raise InputError(f"The store {store} has no task to inspect with; teach one with: dinosaur learn.")
    return str(opened.header["encoder"]["encoder"]), opened.header["preset"]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
