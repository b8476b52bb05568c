"""Every test that takes ``backend`` runs once per array library (and on a GPU where there is one)."""

from __future__ import annotations

import importlib.util

import pytest
from core_helpers import Backend


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


_BACKENDS = {"numpy": Backend("numpy"), "torch": Backend("torch")} | (
    {"torch-gpu": Backend("torch", "cuda")} if _has_gpu() else {}
)


# Of the session, not of the function: one backend serves all examples that Hypothesis makes up for a test.
@pytest.fixture(scope="session", params=_BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen = _BACKENDS[request.param]
    if chosen.library == "torch":
        pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    return chosen


@pytest.fixture(scope="session", params=[name for name in _BACKENDS if name != "numpy"])
def other_backend(request: pytest.FixtureRequest) -> Backend:
    """Return what is to agree with NumPy."""
    pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    return _BACKENDS[request.param]
