"""The registered methods, by name and variant.

``dinosaur`` is a method in its default variant, ``dinosaur:paper`` the same method with other settings.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Config, Method, Workbench

DEFAULT_VARIANT = "default"


@dataclass(frozen=True)
class MethodSpec:
    """One entry: the class, its settings by variant, and one line about it."""

    name: str
    method: type[Method]
    variants: Mapping[str, Config]
    summary: str
    replay: bool
    control: bool
    """Whether it is a control for comparisons that is not meant to be deployed."""
    tiny: Mapping[str, Any]
    """Settings for tests: small, random, needing no downloads."""
    tiny_variants: Mapping[str, Mapping[str, Any]]
    """Differences of some variants from ``tiny``."""
    chosen_on: Mapping[str, Sequence[str]]
    """The scenarios whose test images the settings of some variants were chosen on."""


@dataclass(frozen=True)
class MethodChoice:
    """A method in one variant with all its settings: what a benchmark runs."""

    spec: MethodSpec
    variant: str
    config: Config

    @property
    def name(self) -> str:
        """As on the command line: ``dinosaur`` or ``dinosaur:paper``."""
        return _full_name(self.spec.name, self.variant)

    @property
    def summary(self) -> str:
        """One line about the method with these settings."""
        return self.spec.method.summary_with(self.config) or self.spec.summary

    def build(self, workbench: Workbench) -> Method:
        """A new instance that has learned nothing yet."""
        return self.spec.method(self.config, workbench)

    def tiny(self) -> MethodChoice:
        """The same with the small settings for tests."""
        return self.with_settings({**self.spec.tiny, **self.spec.tiny_variants.get(self.variant, {})})

    def with_settings(self, settings: Mapping[str, str | Any]) -> MethodChoice:
        """The same with some settings changed; strings are read as the field's type."""
        hints = get_type_hints(type(self.config))
        values = {key: _read(value, hints[key], f"{self.name}.{key}") for key, value in settings.items()}
        return replace(self, config=replace(self.config, **values))


def _full_name(name: str, variant: str) -> str:
    return name if variant == DEFAULT_VARIANT else f"{name}:{variant}"


_REGISTRY: dict[str, MethodSpec] = {}


def register(
    name: str,
    *,
    variants: Mapping[str, Config],
    summary: str,
    replay: bool = False,
    control: bool = False,
    tiny: Mapping[str, Any] | None = None,
    tiny_variants: Mapping[str, Mapping[str, Any]] | None = None,
    chosen_on: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[type[Method]], type[Method]]:
    """Class decorator: make a method available by name. ``variants`` has at least ``"default"``.

    ``summary`` is one line about the method; :meth:`Method.summary_with` where it depends on the settings. Names are
    letters, digits and ``_.+-``, because they are folder names of results. ``chosen_on`` names, by variant, the
    scenarios whose test images its settings were chosen on; every table says so.
    """
    for word in (name, *variants):
        if not re.fullmatch(r"\w[\w.+-]{0,99}", word):
            raise InputError(f"'{word[:60]}' cannot be the name of a method or variant; use letters, digits, _.+-.")
    if name in _REGISTRY:
        raise InputError(f"A method named '{name}' is registered already; choose another name.")
    if DEFAULT_VARIANT not in variants:
        raise InputError(f"The method '{name}' has no variant '{DEFAULT_VARIANT}'; give it one.")

    def add(method: type[Method]) -> type[Method]:
        settings = dict(variants), summary, replay, control, dict(tiny or {}), dict(tiny_variants or {})
        _REGISTRY[name] = MethodSpec(name, method, *settings, dict(chosen_on or {}))
        return method

    return add


def unregister(name: str) -> None:
    """Remove a method; for tests and notebooks that define one twice."""
    _REGISTRY.pop(name, None)


def list_methods() -> Mapping[str, MethodSpec]:
    """All methods by name, in the order of their registration."""
    return dict(_REGISTRY)


def get_method(name: str) -> MethodChoice:
    """The method called ``name`` or ``name:variant``; an unknown name raises an error that lists the known ones."""
    base, _, variant = name.partition(":")
    if base not in _REGISTRY:
        known = ", ".join(_full_name(each, variant) for each, spec in _REGISTRY.items() for variant in spec.variants)
        raise InputError(f"There is no method '{base}'; choose from: {known}.")
    spec, variant = _REGISTRY[base], variant or DEFAULT_VARIANT
    if variant not in spec.variants:
        raise InputError(f"'{base}' has no variant '{variant}'; choose from: {', '.join(spec.variants)}.")
    return MethodChoice(spec, variant, spec.variants[variant])


def choose_methods(names: Sequence[str], settings: Mapping[str, str]) -> list[MethodChoice]:
    """The methods called ``names``, with ``settings`` applied.

    A key is a field of a method's settings, either of one method (``patchcore.replay``) or of all that have it
    (``encoder``). A key that none of the chosen methods has raises an error that lists their keys.
    """
    choices = [get_method(name) for name in names]
    if len({choice.name for choice in choices}) < len(choices):
        raise InputError(f"A method is named twice in '{','.join(names)}'; name each once.")
    unused = set(settings)
    changed = []
    for choice in choices:
        own = {}
        for key, value in settings.items():
            scope, _, setting = key.rpartition(".")
            if scope in ("", choice.spec.name, choice.name) and setting in _setting_names(choice.config):
                own[setting] = value
                unused.discard(key)
        changed.append(choice.with_settings(own))
    if unused:
        known = ", ".join(f"{choice.spec.name}.{name}" for choice in choices for name in _setting_names(choice.config))
        raise InputError(f"There is no setting '{sorted(unused)[0]}'; choose from: {known}.")
    return changed


def _setting_names(config: Config) -> list[str]:
    return [entry.name for entry in fields(config)]


def _read(value: Any, kind: Any, key: str) -> Any:
    """A setting from the command line, converted to the type of its field; values other than strings stay."""
    if not isinstance(value, str):
        return value
    origin = get_origin(kind)
    if origin is Literal:
        if value not in map(str, get_args(kind)):
            raise InputError(f"{key} cannot be '{value}'; choose from: {', '.join(map(str, get_args(kind)))}.")
        return next(choice for choice in get_args(kind) if str(choice) == value)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        if value == "none" and len(options) < len(get_args(kind)):
            return None
        for option in options[:-1]:
            try:
                return _read(value, option, key)
            except InputError:
                continue
        return _read(value, options[-1], key)
    if origin is tuple:
        return tuple(_read(part.strip(), get_args(kind)[0], key) for part in value.split("+"))
    if kind is bool:
        if value.lower() not in ("true", "false"):
            raise InputError(f"{key} is true or false, not '{value}'.")
        return value.lower() == "true"
    if kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            raise InputError(
                f"{key} must be {'a whole number' if kind is int else 'a number'}, got '{value}'."
            ) from None
    return value
