"""Nothing leaves the box: what this package imports is told to send nothing, before it is imported.

ONNX Runtime (from 1.31 on) writes a device identifier into the user's cache when it is imported and sends events to its
maker a few seconds later; OpenVINO sends one when it is imported; Ray and the hub's client count their uses. The
package imports this module before anything else, so it does not matter which part of it is imported first. A user who
switched such a report on by its own environment variable keeps it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple


class _Switch(NamedTuple):
    """An environment variable that a library reads when it is imported: the value for off, and those for on."""

    off: str
    on: tuple[str, ...]


_NO = ("0", "false", "no", "off")
SWITCHES = {
    "ORT_DISABLE_TELEMETRY": _Switch("1", _NO),
    "HF_HUB_DISABLE_TELEMETRY": _Switch("1", _NO),
    "RAY_USAGE_STATS_ENABLED": _Switch("0", ("1",)),
}


def switch_off() -> None:
    """Switch off what is not imported yet; of what is, and has begun to send, say so."""
    late = _started_before()
    for name, switch in SWITCHES.items():
        if os.environ.get(name, "").strip().lower() not in switch.on:
            os.environ[name] = switch.off
    if "onnxruntime" in sys.modules:
        silence(sys.modules["onnxruntime"])
    if "openvino" not in sys.modules:
        # It has no variable, only a file in the home folder; as if the package that sends were not installed, OpenVINO
        # uses a stand-in of its own that does nothing.
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    if late:
        import logging

        logging.getLogger(__name__).warning(
            "%s: imported before dinosaur_ad, so its use is reported to its maker; import dinosaur_ad first%s.",
            " and ".join(late),
            ", or set ORT_DISABLE_TELEMETRY=1" if "onnxruntime" in late else "",
        )


def silence(onnxruntime: Any) -> None:
    """Switch events off by ONNX Runtime's own function: on Windows it may be a build that reads no variable."""
    disable = getattr(onnxruntime, "disable_telemetry_events", None)
    if disable is not None and os.environ.get("ORT_DISABLE_TELEMETRY") == SWITCHES["ORT_DISABLE_TELEMETRY"].off:
        disable()


def _started_before() -> list[str]:
    """Libraries that were imported before this one, without having been switched off, and send."""
    late = []
    if "onnxruntime" in sys.modules and not os.environ.get("ORT_DISABLE_TELEMETRY"):
        late.append("onnxruntime")
    session = getattr(sys.modules.get("openvino.tools.ovc"), "telemetry", None)
    if getattr(session, "consent", False):
        late.append("openvino")
    return late


switch_off()
