"""A connection to Ray, and what its workers need to know."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast

from dinosaur_ad import __version__
from dinosaur_ad.errors import InputError, install_advice

# Seconds for a connection to the address of a cluster.
_CONNECT_SECONDS = 10.0


@contextmanager
def connected(address: str | None = None, *, cores: int | None = None) -> Iterator[Any]:
    """Ray, connected to the cluster at ``address`` or in ``$RAY_ADDRESS``, else to one made here of ``cores`` cores.

    One that this process uses already is used again and left as it is; otherwise the connection ends with the block,
    and what was started here is stopped.

    :raises InputError: Ray is not installed, or there is no cluster at the address.
    """
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    own = {"include_dashboard": False, "num_cpus": cores} if address == "local" else {}
    try:
        _check_reachable(address)
        with _silence():
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **own)
    except Exception as error:  # a wrong address, a cluster of another version, a machine that cannot start one
        raise InputError(
            f"There is no Ray cluster to be had at '{address}' ({first_line(error)}); check it with: ray status, or "
            "leave the address out for a cluster on this machine."
        ) from error
    stdout = sys.stdout
    sys.stdout = cast("TextIO", _Results(stdout))
    try:
        yield ray
    finally:
        with redirect_stdout(sys.stderr):
            ray.shutdown()  # prints what its threads have not printed yet
        sys.stdout = stdout


def worker_environment(cores: float) -> dict[str, dict[str, str]]:
    """What a worker process is started with: as many threads as it has cores, and the weights where they are here."""
    variables = {"OMP_NUM_THREADS": str(max(1, int(cores)))}
    if home := os.environ.get("DINOSAUR_HOME"):
        variables["DINOSAUR_HOME"] = str(Path(home).expanduser().absolute())
    return {"env_vars": variables}


def machines(ray: Any) -> list[dict[str, float]]:
    """What each machine of the cluster has, such as ``{"CPU": 8, "GPU": 1}``."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def refuse_other_version(version: str) -> None:
    """On a worker: refuse work of another release, because its numbers might be others."""
    if version != __version__:
        raise InputError(
            f"A machine of the Ray cluster has dinosaur-ad {__version__}, and this one {version}; install the same "
            "version on all of them."
        )


def first_line(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def _check_reachable(address: str) -> None:
    """Fail soon where nothing listens at the address; Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()


@contextmanager
def _silence() -> Iterator[None]:
    """Keep Ray's C++ part from announcing on stderr how it logs; what goes wrong is raised."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


class _Results:
    """Standard output for all but the threads of Ray, which print about lost workers; that belongs on stderr."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout

    def write(self, text: str) -> int:
        """Write to stderr from threads of Ray, else to stdout."""
        from_ray = threading.current_thread().name.startswith("ray_")
        return (sys.stderr if from_ray else self._stdout).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the behaviour to come, instead of a warning
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # warnings about Ray Data's own doing
    try:
        import ray
    except ImportError as error:
        raise InputError(f"This needs Ray; {install_advice('ray')}.") from error
    return ray
