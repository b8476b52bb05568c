"""The verb station: it serves, it ends when told to, and what is wrong is one sentence before anything is loaded."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cli_helpers import NEW_STORE, NEW_STORE_ELSEWHERE

from dinosaur_ad.cli import main

pytest.importorskip("fastapi", reason="the station is not installed (it comes with the extra 'station')")
pytest.importorskip("sqlalchemy", reason="the station is not installed (it comes with the extra 'station')")

Capture = pytest.CaptureFixture[str]


def refused(capsys: Capture, arguments: list[str], sentence: str) -> None:
    assert main(["station", *arguments]) == 2
    out, err = capsys.readouterr()
    assert re.search(sentence, err), err
    assert not out
    assert len(err.strip().splitlines()) == 1


def test_it_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dinosaur_ad.cli", "station", "--store", str(tmp_path / "store"), "--port", "0"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = subprocess.Popen([*command, *NEW_STORE_ELSEWHERE], **options)  # type: ignore[call-overload]
    try:
        line = running.stdout.readline()
        found = re.search(r"station: (http://127\.0\.0\.1:\d+)  store", line)
        assert found, line
        with urllib.request.urlopen(f"{found[1]}/api/v1/health", timeout=30) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError) as not_ready:
            urllib.request.urlopen(f"{found[1]}/api/v1/ready", timeout=30)
        assert "No product has been taught" in not_ready.value.read().decode()
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=240)
    finally:
        running.kill()
    assert running.returncode == 0, err
    assert "what was accepted is judged and recorded first" in err
    assert "Traceback" not in err


def test_wrong_input_is_one_sentence(capsys: Capture, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    refused(capsys, [], "The store is missing; name it with --store")
    refused(capsys, ["--store", store, "--config", str(tmp_path / "none.toml")], "cannot be read")
    refused(capsys, ["--store", store, "--port", "70000"], "A port is a number from 0 to 65535")
    refused(capsys, ["--store", store, "--demo"], "The demo has a store of its own")
    refused(capsys, ["--store", store, "--host", "203.0.113.1"], "cannot be served at 203.0.113.1")
    assert not Path(store).exists()


def test_a_port_that_is_taken_is_named_before_anything_is_loaded(capsys: Capture, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(capsys, ["--store", str(tmp_path / "store"), "--port", str(port)], f"port {port} .*choose another")


def test_other_hosts_are_refused_until_there_is_an_account(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ["--store", str(tmp_path / "store")]
    assert main(["station", *at, "--host", "0.0.0.0", "--port", "0", *NEW_STORE]) == 2
    assert "make an account first" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("a long enough passphrase\n"))
    assert main(["station", *at, "--add-admin", "Ada"]) == 0
    assert "made the account 'Ada'" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert main(["station", *at, "--add-admin", "Bob"]) == 2
    assert "password" in capsys.readouterr().err.lower()


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_passwords_are_not_in_the_station_s_files(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a long enough passphrase\n"))
    assert main(["station", "--store", str(tmp_path / "store"), "--add-admin", "Ada"]) == 0
    for file in (tmp_path / "store-station").rglob("*"):
        assert not file.is_file() or b"long enough" not in file.read_bytes()
