"""The methods that the benchmark compares: one file or folder per method, one interface.

Every module of this folder is imported here and registers its method, so a new file adds a method.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from dinosaur_ad.methods.contract import (
    Cache,
    Config,
    Lesson,
    Method,
    NoCache,
    Parameters,
    Photo,
    Scores,
    Workbench,
)
from dinosaur_ad.methods.method_registry import (
    MethodChoice,
    MethodSpec,
    choose_methods,
    get_method,
    list_methods,
    register,
    unregister,
)
from dinosaur_ad.methods.shared.feature_detector import register_detector
from dinosaur_ad.methods.shared.pyclad_bridge import pyclad_model, pyclad_strategy

__all__ = [
    "Cache",
    "Config",
    "Lesson",
    "Method",
    "MethodChoice",
    "MethodSpec",
    "NoCache",
    "Parameters",
    "Photo",
    "Scores",
    "Workbench",
    "choose_methods",
    "get_method",
    "list_methods",
    "pyclad_model",
    "pyclad_strategy",
    "register",
    "register_detector",
    "unregister",
]

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
