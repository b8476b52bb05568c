"""What an encoder can run on, in which precision, and what of that this machine has.

A provider is one way to run the same graph: ONNX Runtime on the CPU (always there), OpenVINO (extra ``openvino``), or
what the installed build of ONNX Runtime brings for a GPU or a phone chip. Nothing is imported before it is needed.
"""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import dataclass
from functools import cache
from typing import Literal

from dinosaur_ad._cpu import cpu_flags
from dinosaur_ad._text import first_line
from dinosaur_ad.core.threads import allotted_threads, usable_threads
from dinosaur_ad.errors import EncoderError, install_command

PRECISIONS = ("float32", "bfloat16", "float16", "int8")
OLD_PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Spellings of earlier versions, still accepted."""
DEFAULT_PROVIDER, DEFAULT_PRECISION = "onnx-cpu", "float32"
MOST_THREADS = 1024
"""No box has more cores; run times fail on much larger numbers in ways of their own."""

# What a CPU calls its instructions for bfloat16 products: x86 with AVX-512 or AMX, then ARM.
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
_DOT_PRODUCT_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}


@dataclass(frozen=True)
class Provider:
    """One way to run a graph. ``execution`` is ONNX Runtime's own name for it, ``needs`` is how to install it."""

    name: str
    backend: Literal["onnx", "openvino", "torch"]
    precisions: tuple[str, ...]
    needs: str
    execution: str = ""


_BUILD = "needs a build of ONNX Runtime that has it"

PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider("onnx-cpu", "onnx", ("float32", "int8"), "comes with dinosaur-ad", "CPUExecutionProvider"),
        Provider("openvino", "openvino", ("float32", "bfloat16", "int8"), f"needs: {install_command('openvino')}"),
        Provider("cuda", "onnx", ("float32", "float16"), _BUILD, "CUDAExecutionProvider"),
        Provider("tensorrt", "onnx", ("float32", "float16"), _BUILD, "TensorrtExecutionProvider"),
        Provider("coreml", "onnx", ("float32",), _BUILD, "CoreMLExecutionProvider"),
        Provider("xnnpack", "onnx", ("float32",), _BUILD, "XnnpackExecutionProvider"),
        Provider("acl", "onnx", ("float32",), _BUILD, "ACLExecutionProvider"),
        Provider("torch", "torch", ("float32",), f"needs: {install_command('bench')}"),
    )
}


class UnavailableError(EncoderError):
    """A provider or precision that exists but cannot be used on this machine; ``reason`` is why, without a stop."""

    def __init__(self, provider: str, precision: str, reason: str) -> None:
        self.provider, self.precision, self.reason = provider, precision, reason
        super().__init__(f"{provider} cannot run in {precision} here: {reason}; available: {listing()}.")

    def fallback(self) -> str:
        """The sentence for carrying on without it."""
        instead = f"{DEFAULT_PROVIDER} {DEFAULT_PRECISION}"
        return f"{self.provider} cannot run in {self.precision} here ({self.reason}), so {instead} runs instead."


def get_provider(name: str) -> Provider:
    """The provider of that name; an unknown one is an error that lists the known ones.

    >>> get_provider("onnx-cpu").precisions
    ('float32', 'int8')
    """
    if name not in PROVIDERS:
        raise EncoderError(f"There is no provider '{name}'; choose one of: auto, {', '.join(PROVIDERS)}.")
    return PROVIDERS[name]


def check_precision(precision: str) -> str:
    """The name of a precision, also for its older spelling; an unknown one is an error that lists those there are.

    >>> check_precision("float16"), check_precision("fp16")
    ('float16', 'float16')
    """
    name = OLD_PRECISIONS.get(precision, precision)
    if name not in PRECISIONS:
        raise EncoderError(f"There is no precision '{precision}'; choose one of: {', '.join(PRECISIONS)}.")
    return name


def why_not(name: str, precision: str) -> str | None:
    """Why the provider cannot run in that precision on this machine, or None when it can."""
    provider = get_provider(name)
    if absent := _absence(provider):
        return absent
    if check_precision(precision) not in provider.precisions:
        return f"it knows {' and '.join(provider.precisions)} only"
    if name == "openvino" and precision == "bfloat16" and not _has_bfloat16():
        return "this CPU has no bfloat16 products, which would be emulated and slow"
    return None


def available() -> dict[str, tuple[str, ...]]:
    """Precisions by provider, of all that is here, the default first.

    >>> available()["onnx-cpu"]
    ('float32', 'int8')
    """
    offered = {
        name: tuple(precision for precision in provider.precisions if why_not(name, precision) is None)
        for name, provider in PROVIDERS.items()
    }
    return {name: precisions for name, precisions in offered.items() if precisions}


def listing() -> str:
    """All that is here, for the end of a sentence."""
    return ", ".join(f"{name} ({', '.join(precisions)})" for name, precisions in available().items())


def first_with(precision: str) -> str:
    """The provider that runs a precision when none was named; the default one when nothing here can."""
    preferred = sorted(available().items(), key=lambda item: item[0] != "openvino")  # quickest wherever it is, measured
    return next((name for name, offered in preferred if precision in offered), DEFAULT_PROVIDER)


def thread_count(threads: int | None) -> int | None:
    """The CPU threads to use: those requested, else OMP_NUM_THREADS, else None for all cores."""
    # A number beyond the cores gains nothing, and thousands of threads would take minutes to start.
    return threads or (None if allotted_threads() is None else usable_threads())


def has_int8_dot_product() -> bool:
    """Whether this CPU sums products of bytes without overflow; x86 before VNNI saturates at 16 bits."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    return bool(cpu_flags() & _DOT_PRODUCT_FLAGS)


@cache
def openvino_capabilities() -> frozenset[str] | str:
    """The capabilities of OpenVINO's CPU device, or the reason why there are none."""
    try:
        import openvino

        return frozenset(openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
    except ImportError as error:
        return f"openvino is not installed ({first_line(error)}); {PROVIDERS['openvino'].needs}"
    except Exception as error:  # a broken installation fails in its own ways
        return f"openvino does not start here ({first_line(error)})"


def _absence(provider: Provider) -> str | None:
    """Why nothing of a provider can be used here, or None."""
    if provider.backend == "openvino":
        found = openvino_capabilities()
        return found if isinstance(found, str) else None
    if provider.backend == "torch":
        missing = [name for name in ("torch", "transformers") if not _is_installed(name)]
        return f"{' and '.join(missing)} missing; {provider.needs}" if missing else None
    import onnxruntime

    here = provider.execution in onnxruntime.get_available_providers()
    return None if here else f"this ONNX Runtime was built without it; {provider.needs}"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # blocked: set to None in sys.modules
        return False


def _has_bfloat16() -> bool:
    capabilities, flags = openvino_capabilities(), cpu_flags()
    # OpenVINO also lists what it emulates with AVX-512, so the flags of the CPU decide where the system lists them.
    return "BF16" in capabilities and (not flags or bool(flags & _BFLOAT16_FLAGS))


def require_torch(name: str, device: str) -> None:
    """Refuse in a sentence a network that runs on torch where torch, or the device, is not there."""
    try:
        from dinosaur_ad.encoders.backends.torch_backend import check_device
    except ImportError as error:
        raise EncoderError(
            f"'{name}' runs on torch and transformers ({error.name or 'one'} is missing); install them with: "
            f"{install_command('bench')}."
        ) from error
    check_device(device)
