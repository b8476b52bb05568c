"""What is in deploy/, as far as it can be checked without installing it: the unit, the settings, the containers."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import socket
import stat
import subprocess
import time
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dinosaur_ad.cli import make_parser

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
HEALTH = "http://127.0.0.1:8765/api/v1/health"


# --- systemd ---


def unit() -> dict[str, list[str]]:
    """The settings of the unit by name; a name may stand several times."""
    settings: dict[str, list[str]] = {}
    for line in (DEPLOY / "dinosaur-station.service").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            settings.setdefault(key, []).append(value)
    return settings


def test_the_service_has_its_own_user_and_comes_back() -> None:
    found = unit()
    assert found["User"] == found["Group"] == ["dinosaur"]
    assert re.search(r"^u dinosaur ", (DEPLOY / "dinosaur.sysusers").read_text(), flags=re.M)
    assert found["Restart"] == ["always"]
    assert found["StartLimitIntervalSec"] == ["0"]
    assert float(found["RestartSec"][0]) < 5
    assert found["NoNewPrivileges"] == ["yes"]
    assert found["CapabilityBoundingSet"] == [""]


def test_the_service_writes_only_into_its_state() -> None:
    found = unit()
    (command,) = found["ExecStart"]
    argv = shlex.split(command)
    assert found["ProtectSystem"] == ["strict"]
    assert "ReadWritePaths" not in found
    state = Path("/var/lib") / found["StateDirectory"][0]
    store = Path(argv[argv.index("--store") + 1])
    assert store.parent == state  # so that STORE-station beside it can be written too
    environment = dict(pair.split("=", 1) for pair in shlex.split(found["Environment"][0]))
    assert Path(environment["DINOSAUR_HOME"]).is_relative_to(state)
    assert argv[argv.index("--config") + 1] == "/etc/dinosaur/station.toml"


def test_what_the_service_and_the_container_start_is_a_command_of_ours() -> None:
    (command,) = unit()["ExecStart"]
    for argv in (shlex.split(command)[1:], compose()["services"]["station"]["command"]):
        parsed = make_parser().parse_args(argv)
        assert parsed.run.__name__ == "station"
        assert Path(f"{parsed.store}").is_absolute()


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / "dinosaur-station.service"
    text = (DEPLOY / copy.name).read_text()
    copy.write_text(text.replace("/opt/dinosaur/bin/dinosaur", shutil.which("true") or "/bin/true"))
    done = subprocess.run([analyze, "verify", "--man=no", copy], capture_output=True, text=True, timeout=60)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if copy.name in line]
    assert (done.returncode, ours) == (0, [])
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", copy], capture_output=True, text=True, timeout=60
    )
    if (level := re.search(r"Overall exposure level .*: ([\d.]+)", done.stdout)) is None:
        pytest.skip("this systemd-analyze rates no files")
    assert float(level[1]) < 2.5


# --- settings ---


def test_the_example_settings_are_accepted_as_they_are_and_with_every_example_in_them(tmp_path: Path) -> None:
    from dinosaur_ad.station.config import StationConfig
    from dinosaur_ad.station.config_file import read_config

    text = (DEPLOY / "station.toml").read_text()
    config = read_config(DEPLOY / "station.toml", "store")
    assert config.server == StationConfig(Path("store"), Path("x")).server  # loopback, the usual port
    assert [each.kind for each in config.sources] == ["upload", "folder"]
    whole = re.sub(r"^# (?=\[\[|[a-z_]+ = )", "", text, flags=re.M)
    (tmp_path / "station.toml").write_text(whole)
    everything = read_config(tmp_path / "station.toml", "store")
    assert [each.kind for each in everything.sources] == ["upload", "folder", "rtsp", "camera"]
    assert [each.kind for each in everything.sinks] == ["mqtt", "webhook"]
    assert everything.server.tls_key == tmp_path / "station.key"


# --- containers ---


def compose() -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_the_compose_file_has_all_it_names() -> None:
    document = compose()
    services = document["services"]
    assert set(services) == {"station", "mosquitto", "postgres"}
    for service in services.values():
        assert set(service.get("secrets", [])) <= set(document["secrets"])
        for volume in service["volumes"]:
            source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
            assert source in document["volumes"] or source == "./images" or (DEPLOY / source).is_file(), volume
        assert service["restart"] == "unless-stopped"
        assert "no-new-privileges:true" in service["security_opt"]
        assert ":" in service["image"] or "build" in service  # a named version
    station = services["station"]
    assert (DEPLOY / station["build"]["context"] / station["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert station["read_only"] is True
    assert station["cap_drop"] == ["ALL"]
    assert station["ports"] == ["${DINOSAUR_BIND:-127.0.0.1}:8765:8765"]
    assert HEALTH in station["healthcheck"]["test"][-1]
    compile(station["healthcheck"]["test"][-1], "healthcheck", "exec")
    assert "ports" not in services["mosquitto"]
    assert "ports" not in services["postgres"]


def test_the_settings_of_the_container_fit_the_compose_file() -> None:
    from dinosaur_ad.station.config_file import read_config

    services = compose()["services"]
    config = read_config(DEPLOY / "compose" / "station.toml", "/data/store")
    assert config.server.port == 8765
    user = services["postgres"]["environment"]["POSTGRES_USER"]
    assert config.history.url == f"postgresql+psycopg://{user}@postgres:5432/dinosaur"
    (sink,) = config.sinks
    assert sink.url == "mqtt://mosquitto:1883"
    assert str(sink.password_file) == "/run/secrets/mqtt_password"
    mounted = [volume.split(":")[-2] for volume in services["station"]["volumes"] if volume.endswith(":ro")]
    assert str(config.sources[1].path) in mounted


def test_the_image_copies_what_is_let_into_the_build_and_runs_as_nobody_special() -> None:
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / "Dockerfile").read_text())
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    copied = [each for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, flags=re.M) for each in line.split()]
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in allowed), source
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", last, flags=re.M)
    assert "torch" not in text
    (extras,) = re.findall(r'^ARG EXTRAS="(.+)"$', text, flags=re.M)
    declared = (ROOT / "pyproject.toml").read_text()
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", declared, flags=re.M)


# --- secrets ---


def secret_maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_secrets", DEPLOY / "make_secrets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_secrets_are_random_and_made_once(tmp_path: Path) -> None:
    make = secret_maker().make_secrets
    made = make(tmp_path / "one")
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o700
    contents = {name: (tmp_path / "one" / name).read_text() for name in made}
    wanted = {Path(each["file"]).name for each in compose()["secrets"].values()} | {"station.env"}
    assert set(made) == wanted
    assert contents["postgres_password"] in contents["station.env"]
    assert len({contents["postgres_password"], contents["mqtt_password"]}) == 2
    assert make(tmp_path / "one") == []
    assert {name: (tmp_path / "one" / name).read_text() for name in made} == contents
    make(tmp_path / "two")
    assert (tmp_path / "two" / "mqtt_password").read_text() != contents["mqtt_password"]
    (tmp_path / "two" / "mqtt_password").unlink()
    with pytest.raises(SystemExit, match="belong together"):
        make(tmp_path / "two")
    assert "secrets/" in (DEPLOY / ".gitignore").read_text().splitlines()


def test_a_real_broker_takes_the_password_and_no_other(tmp_path: Path) -> None:
    broker, publish = (
        shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin"),
        shutil.which("mosquitto_pub"),
    )
    if broker is None or publish is None:
        pytest.skip("mosquitto or its client is not installed")
    secret_maker().make_secrets(tmp_path / "secrets")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = (DEPLOY / "compose" / "mosquitto.conf").read_text()
    settings = settings.replace("listener 1883", f"listener {port} 127.0.0.1")
    settings = settings.replace("/run/secrets/", f"{tmp_path}/secrets/").replace(
        "/mosquitto/data/", f"{tmp_path}/data/"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "mosquitto.conf").write_text(f"{settings}\nuser root\n")
    process = subprocess.Popen([broker, "-c", tmp_path / "mosquitto.conf"], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        password = (tmp_path / "secrets" / "mqtt_password").read_text()
        sent = [publish, "-h", "127.0.0.1", "-p", str(port), "-t", "t", "-m", "x", "-q", "1"]
        for login, fine in (
            (["-u", "station", "-P", password], True),
            (["-u", "station", "-P", "x"], False),
            ([], False),
        ):
            done = subprocess.run([*sent, *login], capture_output=True, timeout=20)
            assert (done.returncode == 0) is fine
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the broker did not start")


# --- the other processor ---


def test_the_script_for_arm64_is_a_script() -> None:
    script = ROOT / "scripts" / "arm64"
    assert script.stat().st_mode & stat.S_IXUSR
    assert subprocess.run(["bash", "-n", script], timeout=20).returncode == 0
    assert HEALTH.removeprefix("http://127.0.0.1:8765") in script.read_text()
