"""How fast this machine is, in five lines."""

from __future__ import annotations

from typing import Any

from dinosaur_ad.profile.document import MEASURED, Document

Method = dict[str, Any]

# Stages as they are shown, and those of a profile that they are made of.
_SHOWN = {
    "encode": ("encode",),
    "score": ("route", "score"),
    "encode and score": ("model",),
    "read": ("decode", "resize"),
    "map": ("map",),
    "other": ("rest",),
}


def summary(profile: Document) -> list[str]:
    """The lines for a profile of one method; of several, two lines each."""
    methods = profile["methods"]
    if len(methods) == 1:
        return _whole(methods[0], profile)
    return [f"{method['name']}: {line}" for method in methods for line in _short(method)]


def _whole(method: Method, profile: Document) -> list[str]:
    if method["status"] != MEASURED:
        return _short(method)
    hint = _hint(method, profile)
    return [_speed(method), _learning(method), _memory(method), _encoder(method, profile), *([hint] if hint else [])]


def _short(method: Method) -> list[str]:
    if method["status"] != MEASURED:
        return [f"{method['status']}: {method['reason']}"]
    return [_speed(method), f"{_learning(method)}; {_memory(method)}"]


def _speed(method: Method) -> str:
    stages, latency = method["stages_ms"], method["latency_ms"]
    parts = {name: sum(stages.get(stage, {}).get("p50", 0.0) for stage in of) for name, of in _SHOWN.items()}
    shown = ", ".join(f"{name} {ms:.0f}" for name, ms in parts.items() if round(ms))
    return f"one image in {_ms(latency['p50'])} ms ({_rate(latency['fps'])} a second){': ' if shown else ''}{shown}"


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _learning(method: Method) -> str:
    learning = method["learning"]
    if learning["seconds"] is None:
        return f"learning was not measured: {learning['skipped']}"
    epochs = "" if learning["epochs"] is None else f" for {learning['epochs']} epoch{'s'[: learning['epochs'] != 1]}"
    return f"learning {learning['images']} images{epochs} takes {_ms(learning['seconds'])} s"


def _memory(method: Method) -> str:
    memory = method["memory"]
    shown = [
        f"{memory[key] / 1e6:.0f} MB {word}"
        for key, word in (("inspect_peak_bytes", "inspecting"), ("learn_peak_bytes", "learning"))
        if memory[key] is not None
    ]
    start = method["cold_start"]["seconds"]
    return f"memory {', '.join(shown) or 'not known'}; first result {start:.1f} s after the start"


def _encoder(method: Method, profile: Document) -> str:
    made = method["made_with"]
    cores = made.get("threads") or profile["machine"]["cores"]
    threads = f", {cores} thread{'s'[: cores != 1]}" if cores else ""
    fallback = f" (instead of what was asked for: {made['fallback']})" if made.get("fallback") else ""
    random = "; random weights, which does not change the speed" if any("random" in n for n in method["notes"]) else ""
    return (
        f"encoder {made.get('encoder', 'of its own')} on {made.get('provider', 'cpu')} in "
        f"{made.get('precision', 'float32')}{threads}{fallback}{random}"
    )


def _hint(method: Method, profile: Document) -> str | None:
    """What would probably be faster on this machine; None where nothing is known."""
    from dinosaur_ad.encoders.providers import DEFAULT_PROVIDER, available
    from dinosaur_ad.errors import install_command

    if method["made_with"].get("provider") != DEFAULT_PROVIDER or "provider" in profile["settings"]["encoder_options"]:
        return None
    others = [name for name in available() if name not in (DEFAULT_PROVIDER, "torch")]
    if others:
        return f"probably faster here: --provider auto ({', '.join(others)} installed)"
    if profile["machine"]["system"].lower().endswith(("x86_64", "amd64")):
        return f"probably faster here: {install_command('openvino')}, then --provider auto"
    return None
