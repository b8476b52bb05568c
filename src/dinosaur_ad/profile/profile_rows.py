"""What the tables of profiles share: which rows there are, and what a machine or a method is called in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dinosaur_ad.bench.paper import paper
from dinosaur_ad.profile.document import Document
from dinosaur_ad.profile.schema import MEASURED

Method = dict[str, Any]


def measured(profile: Document) -> list[Method]:
    """The methods that have numbers."""
    return [method for method in profile["methods"] if method["status"] == MEASURED]


def find_method(profile: Document, name: str) -> Method | None:
    """The method of that name, whether it has numbers or not."""
    return next((method for method in profile["methods"] if method["name"] == name), None)


def method_names(profiles: Sequence[Document]) -> list[str]:
    """The names of all methods of all profiles, each once."""
    methods = {method["name"]: method for profile in profiles for method in profile["methods"]}
    return [method["name"] for method in in_paper_order(list(methods.values()))]


def in_paper_order(methods: Sequence[Method]) -> list[Method]:
    """In the order of the paper's table, others after them."""
    keys = list(paper().methods)
    place = {key: number for number, key in enumerate(keys)}
    return sorted(methods, key=lambda method: place.get(paper().method_of(method["name"]) or "", len(keys)))


def short_name(profile: Document, profiles: Sequence[Document]) -> str:
    """The device's name, with a number where another profile has the same."""
    same = [each for each in profiles if each["device_name"] == profile["device_name"]]
    number = next(n for n, each in enumerate(same, start=1) if each is profile)
    return str(profile["device_name"]) if len(same) == 1 else f"{profile['device_name']} ({number})"


def made_with(method: Method) -> str:
    """The network, and what computed it, in the method's own words."""
    made = method["made_with"]
    shown = [made.get("description") or made.get("encoder") or "network not described"]
    shown += [f"{key} {made[key]}" for key in ("provider", "precision", "threads", "preset") if made.get(key)]
    shown += [f"fallback: {made['fallback']}"] if made.get("fallback") else []
    return ", ".join(map(str, shown))
