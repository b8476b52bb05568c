"""Machine facts, throttling and energy, read from systems that are folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from dinosaur_ad._memory import peak_memory_bytes
from dinosaur_ad.profile import machine
from dinosaur_ad.profile.energy import EnergyMeter
from dinosaur_ad.profile.machine import available_bytes, machine_facts, machine_state, matmul_rate, throttling

PI = """\
processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm aes crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU part\t: 0xd0b

processor\t: 1
CPU part\t: 0xd0b
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_raspberry_pi_is_recognised(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/cpuinfo": PI,
            "proc/meminfo": "MemTotal:        8245904 kB\nMemAvailable:    7000000 kB\n",
            "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
        },
    )
    facts = machine_facts(root)
    assert facts["board"] == "Raspberry Pi 5 Model B Rev 1.0"
    assert facts["processor"] == "Cortex-A76"
    assert facts["features"] == ["neon", "fp16", "dot product"]
    assert facts["memory_bytes"] == 8245904 * 1024
    assert facts["container"] == {"cores": None, "memory_bytes": None}


def test_unknown_is_none_and_not_guessed(tmp_path: Path) -> None:
    facts, state = machine_facts(tmp_path), machine_state(tmp_path)
    assert (facts["board"], facts["memory_bytes"], facts["features"]) == (None, None, [])
    assert (state["governors"], state["megahertz"], state["hottest_celsius"]) == ([], [], None)
    assert state["throttle_count"] is None


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({"cpu.max": "150000 100000\n", "memory.max": "1073741824\n"}, 1.5, 2**30),
        ({"cpu.max": "max 100000\n", "memory.max": "max\n"}, None, None),
        (
            {
                "cpu/cpu.cfs_quota_us": "50000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            0.5,
            None,
        ),
    ],
)
def test_limits_of_containers(tmp_path: Path, files: dict[str, str], cores: float | None, memory: int | None) -> None:
    root = write(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert machine_facts(root)["container"] == {"cores": cores, "memory_bytes": memory}
    write(root, {"proc/meminfo": "MemAvailable:    4194304 kB\n"})
    assert available_bytes(root) == (memory or 4 * 2**30)


def test_state_of_a_machine(tmp_path: Path) -> None:
    cpu = "sys/devices/system/cpu"
    root = write(
        tmp_path,
        {
            f"{cpu}/cpu0/cpufreq/scaling_governor": "ondemand\n",
            f"{cpu}/cpu1/cpufreq/scaling_governor": "ondemand\n",
            f"{cpu}/cpu0/cpufreq/scaling_cur_freq": "1500000\n",
            f"{cpu}/cpu1/cpufreq/scaling_cur_freq": "2400000\n",
            f"{cpu}/cpu0/thermal_throttle/core_throttle_count": "3\n",
            f"{cpu}/cpu0/thermal_throttle/package_throttle_count": "4\n",
            "sys/class/thermal/thermal_zone0/temp": "61234\n",
            "sys/class/thermal/thermal_zone1/temp": "48000\n",
        },
    )
    state = machine_state(root)
    assert state["governors"] == ["ondemand"]
    assert state["megahertz"] == [1500.0, 2400.0]
    assert state["hottest_celsius"] == pytest.approx(61.234)
    assert state["throttle_count"] == 7


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        ((None, None), (None, None), None),
        ((7, None), (7, None), False),
        ((7, None), (9, None), True),
        ((None, "0x50000"), (None, "0x50000"), False),  # once, before the profile
        ((None, "0x0"), (None, "0x50000"), True),
        ((None, "0x0"), (None, "0x1"), True),
    ],
)
def test_throttling_between_two_moments(
    before: tuple[int | None, str | None], after: tuple[int | None, str | None], seen: bool | None
) -> None:
    states = [{"throttle_count": count, "firmware_throttled": flags} for count, flags in (before, after)]
    assert throttling(*states)["seen"] is seen


def test_the_firmware_is_asked_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "vcgencmd"
    command.write_text("#!/bin/sh\necho throttled=0x50005\n")
    command.chmod(0o755)
    monkeypatch.setattr(machine.shutil, "which", lambda name: str(command))
    assert machine_state(tmp_path)["firmware_throttled"] == "0x50005"


def test_this_process_has_a_peak_and_multiplies() -> None:
    peak = peak_memory_bytes()
    assert peak is not None
    assert peak > 2**20
    assert matmul_rate(sides=(64,), seconds=0.0) > 0


# --- energy ---


def rapl(root: Path, energy: str = "1000000", name: str = "package-0") -> Path:
    folder = "sys/class/powercap/intel-rapl:0"
    files = {"name": name, "energy_uj": energy, "max_energy_range_uj": "5000000"}
    write(root, {f"{folder}/{key}": f"{text}\n" for key, text in files.items()})
    return root / folder / "energy_uj"


def test_rapl_counts_joules_also_past_its_end(tmp_path: Path) -> None:
    counter = rapl(tmp_path)
    rapl(tmp_path)
    with EnergyMeter(tmp_path) as meter:
        counter.write_text("4000000\n")
    assert meter.energy.joules == pytest.approx(3.0)
    assert meter.energy.to_json(6)["joules_an_image"] == pytest.approx(0.5)
    with EnergyMeter(tmp_path) as meter:
        counter.write_text("500000\n")  # it has started again from 0
    assert meter.energy.joules == pytest.approx(1.5)
    assert "RAPL (1 package)" in meter.energy.source


def test_parts_of_a_package_are_not_counted_twice(tmp_path: Path) -> None:
    counter = rapl(tmp_path)
    part = {"name": "core", "energy_uj": "0", "max_energy_range_uj": "5000000"}
    write(tmp_path, {f"sys/class/powercap/intel-rapl:0:0/{key}": text for key, text in part.items()})
    with EnergyMeter(tmp_path) as meter:
        counter.write_text("2000000\n")
        write(tmp_path, {"sys/class/powercap/intel-rapl:0:0/energy_uj": "900000"})
    assert meter.energy.joules == pytest.approx(1.0)


def test_counters_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    rapl(tmp_path).unlink()
    with EnergyMeter(tmp_path) as meter:
        pass
    assert meter.energy.joules is None
    assert "energy_uj may not be read" in meter.energy.source
    assert meter.energy.to_json(3) == {"joules_an_image": None, "source": None, "reason": meter.energy.source}


def jetson(root: Path, rails: dict[str, tuple[int, int]]) -> Path:
    folder = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
    files = {}
    for number, (label, (volts, amperes)) in enumerate(rails.items(), start=1):
        files |= {f"in{number}_label": label, f"in{number}_input": str(volts), f"curr{number}_input": str(amperes)}
    return write(root, {f"{folder}/{name}": text for name, text in files.items()})


@pytest.mark.parametrize(
    ("rails", "watts", "named"),
    [
        ({"VDD_IN": (5000, 2000), "VDD_SOC": (5000, 600)}, 10.0, "(VDD_IN)"),  # the board, and a part of it
        ({"VDD_CPU_CV": (4000, 500), "VDD_GPU_SOC": (4000, 250)}, 3.0, "(VDD_CPU_CV, VDD_GPU_SOC)"),
    ],
)
def test_a_jetson_adds_up_its_power(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rails: dict[str, tuple[int, int]],
    watts: float,
    named: str,
) -> None:
    from dinosaur_ad.profile import energy

    clock = iter(range(1000))
    monkeypatch.setattr(energy.time, "monotonic", lambda: float(next(clock)))
    with EnergyMeter(jetson(tmp_path, rails)) as meter:
        pass
    seconds = next(clock) - 1
    assert meter.energy.joules == pytest.approx(watts * seconds)
    assert named in meter.energy.source
