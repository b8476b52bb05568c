"""Which variants a method has, in what they differ, and how large their networks are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.provenance_runs import shown
from dinosaur_ad.bench.report.render import to_markdown
from dinosaur_ad.bench.report.table import DASH, Column, Note, Table
from dinosaur_ad.bench.report.table import TableBlock as Block
from dinosaur_ad.bench.report.table import TableCell as Cell
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.methods import MethodSpec, Parameters, Workbench, get_method


def settings_section(spec: MethodSpec) -> str:
    """The variants side by side, setting by setting, as Markdown."""
    settings = {variant: config.identity() for variant, config in spec.variants.items()}
    default = settings["default"]
    names = list(dict.fromkeys(name for values in settings.values() for name in values))
    differ = [name for name in names if len({_text(values, name) for values in settings.values()}) > 1]
    same = ", ".join(f"{name}={shown(default[name])}" for name in names if name not in differ)
    rows = [
        (
            Cell(name),
            Cell(_text(default, name)),
            *(_cell(settings[variant], default, name) for variant in _others(spec)),
        )
        for name in differ
    ]
    table = Table(
        "settings",
        "Variants and settings",
        "What differs between the variants; an empty place is as in the default, a dash means that there is no such "
        "setting."
        if rows
        else "There is one variant.",
        (Column("Setting", words=True), *(Column(_name(spec, variant), words=True) for variant in spec.variants)),
        (Block("", tuple(rows)),) if rows else (),
        (Note(f"The same in all of them: {same}."),) if same else (),
    )
    return to_markdown(table)


def parameters_section(spec: MethodSpec) -> str:
    """The size of every variant beside what the paper prints, as Markdown."""
    counts: dict[str, Parameters] = {}
    problems: dict[str, list[str]] = {}
    for variant in spec.variants:
        try:
            counts[variant] = count_parameters(spec, variant)
        except (DinosaurError, ImportError) as error:  # no torch here, or a network that cannot be counted without it
            problems.setdefault(str(error), []).append(_name(spec, variant))
    rows = [
        (Cell(_name(spec, variant)), *map(_count, (counts[variant].total, counts[variant].trainable)))
        if variant in counts
        else (Cell(_name(spec, variant)), Cell(), Cell())
        for variant in spec.variants
    ]
    key = paper().method_of(spec.name)
    if key is not None:
        rows.append(
            (
                Cell("the paper"),
                _millions(paper().sizes[key].parameters, 1),
                _millions(paper().training[key].trainable, 2),
            )
        )
    table = Table(
        "parameters",
        "Parameters",
        "Counted from the networks as they are built, without any weights; what a method remembers is not counted.",
        (Column("Method", words=True), Column("all"), Column("trained")),
        (Block("", tuple(rows)),),
        tuple(Note(f"Not counted for {', '.join(names)}: {reason}") for reason, names in problems.items()),
    )
    return to_markdown(table)


def count_parameters(spec: MethodSpec, variant: str) -> Parameters:
    """How large a variant is; no weights are read and no memory is taken for them.

    >>> from dinosaur_ad.methods import list_methods
    >>> count_parameters(list_methods()["dne"], "default")
    Parameters(total=86569194, trainable=85978602)
    """
    from dinosaur_ad.encoders import get_spec
    from dinosaur_ad.methods.dinosaur import DinosaurConfig

    config = spec.variants[variant]
    if isinstance(config, DinosaurConfig):  # it loads its encoder at once, and the page must not want weights
        return Parameters(get_spec(config.encoder).parameters, 0)
    return get_method(f"{spec.name}:{variant}").build(Workbench()).parameters()


def _name(spec: MethodSpec, variant: str) -> str:
    return get_method(f"{spec.name}:{variant}").name


def _others(spec: MethodSpec) -> list[str]:
    return [variant for variant in spec.variants if variant != "default"]


def _text(values: Mapping[str, Any], name: str) -> str:
    return shown(values[name]) if name in values else DASH


def _cell(values: Mapping[str, Any], default: Mapping[str, Any], name: str) -> Cell:
    text = _text(values, name)
    return Cell("" if text == _text(default, name) else text)


def _count(number: int) -> Cell:
    return Cell(f"{number:,}")


def _millions(number: float, digits: int) -> Cell:
    return Cell() if math.isnan(number) else Cell(f"{number:.{digits}f} M")
