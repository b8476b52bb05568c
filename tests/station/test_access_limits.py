"""How often and how much someone may send."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from dinosaur_ad.station.web import limits
from dinosaur_ad.station.web.limits import (
    FREE_TRIES,
    FREE_TRIES_ADDRESS,
    LONGEST_WAIT,
    AddressRates,
    LoginBackoff,
)


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_address_gets_its_rate_and_others_theirs() -> None:
    clock = Seconds()
    rates = AddressRates(10.0, clock)
    assert sum(rates.wait("10.0.0.1") == 0 for _ in range(100)) == 40
    assert rates.wait("10.0.0.2") == 0
    clock.now = 1.0
    assert sum(rates.wait("10.0.0.1") == 0 for _ in range(100)) == 10


def test_many_addresses_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = AddressRates(1.0)
    monkeypatch.setattr(limits, "MOST_ADDRESSES", 100)
    for number in range(150):
        rates.wait(f"10.0.0.{number}")
    assert len(rates._buckets) == 100
    backoff = LoginBackoff()
    for number in range(150):
        backoff.begin(f"name {number}", f"2001:db8:{number:x}::1")
    assert len(backoff._failures) <= 100


def test_one_network_of_ipv6_is_one_sender() -> None:
    rates = AddressRates(1.0, Seconds())
    assert sum(rates.wait(f"2001:db8::{number:x}") == 0 for number in range(20)) == 4


def test_wrong_passwords_wait_twice_as_long_each_time() -> None:
    clock = Seconds()
    backoff = LoginBackoff(clock)
    assert [backoff.begin("Anna", f"10.0.0.{n}") for n in range(FREE_TRIES)] == [0.0] * FREE_TRIES
    waits = []
    for _ in range(12):
        waits.append(backoff.begin("ANNA", "10.0.1.1"))  # from anywhere, however it is written
        clock.now += waits[-1] + 0.01
        assert backoff.begin("Anna", "10.0.1.1") == 0
    assert waits[:4] == pytest.approx([2, 4, 8, 16])
    assert max(waits) == LONGEST_WAIT
    assert backoff.begin("Bert", "10.0.2.2") == 0


def test_an_address_that_tries_many_accounts_waits() -> None:
    backoff = LoginBackoff(Seconds())
    tries = [backoff.begin(f"name {number}", "10.0.0.1") for number in range(FREE_TRIES_ADDRESS + 1)]
    assert tries[:-1] == [0.0] * FREE_TRIES_ADDRESS
    assert tries[-1] > 0


def test_a_right_password_starts_anew() -> None:
    backoff = LoginBackoff(Seconds())
    for _ in range(10):
        for _ in range(FREE_TRIES - 1):
            assert backoff.begin("Anna", "10.0.0.1") == 0
            backoff.succeeded("Anna", "10.0.0.1")
