"""Accounts, sessions and tokens as such."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("argon2", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from access_helpers import PASSWORD, add_people, opened_history
from sqlalchemy import select

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.accounts import IDLE, LONGEST, Accounts, csrf_of
from dinosaur_ad.station.tables import AccountRow, LoginRow, TokenRow


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, by: timedelta) -> None:
        self.now += by


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(tmp_path: Path, clock: Clock) -> Accounts:
    history = opened_history(tmp_path)
    yield Accounts(history, clock)
    history.close()


def actions(accounts: Accounts) -> list[str]:
    return [row.action for row in reversed(accounts._history.audit_rows())]


def test_a_password_is_kept_as_argon2id_and_compared(accounts: Accounts) -> None:
    assert not accounts.any()
    accounts.create_first("Anna", PASSWORD)
    assert accounts.any()
    with accounts._history.session() as session:
        stored = session.scalar(select(AccountRow.password))
    assert stored.startswith("$argon2id$v=19$m=65536,t=3,p=1$")
    assert PASSWORD not in stored
    assert accounts.check_password("Anna", PASSWORD).role == "admin"
    assert accounts.check_password("Anna", PASSWORD + "x") is None
    assert accounts.check_password("Nobody", PASSWORD) is None
    assert accounts.check_password("Anna", "x" * 100_000) is None


def test_there_is_one_first_account(accounts: Accounts) -> None:
    with pytest.raises(InputError, match="first account is that of an admin"):
        accounts.create("Vera", PASSWORD, "viewer", by="test")
    accounts.create_first("Anna", PASSWORD)
    with pytest.raises(InputError, match="accounts already"):
        accounts.create_first("Mallory", PASSWORD)


@pytest.mark.parametrize(
    ("name", "password", "role", "sentence"),
    [
        ("", PASSWORD, "viewer", "is no name"),
        ("a/../b", PASSWORD, "viewer", "is no name"),
        ("evil\x1b[2J", PASSWORD, "viewer", "is no name"),
        ("Local", PASSWORD, "viewer", "is taken by whoever"),
        ("token:x", PASSWORD, "viewer", "is no name"),
        ("anna", PASSWORD, "viewer", "an account 'anna' already"),
        ("Bert", "short", "viewer", "10 to 200 characters"),
        ("Bert", "aaaaaaaaaaaaaaaa", "viewer", "easily guessed"),
        ("Bert", "bert bert bert", "viewer", "easily guessed"),
        ("Bert", "x" * 201, "viewer", "10 to 200 characters"),
        ("Bert", PASSWORD, "enginer", "did you mean engineer"),
    ],
)
def test_what_cannot_be_an_account_is_refused(
    accounts: Accounts, name: str, password: str, role: str, sentence: str
) -> None:
    add_people(accounts)
    with pytest.raises(InputError, match=sentence):
        accounts.create(name, password, role, by="test")


def test_the_last_admin_stays(accounts: Accounts) -> None:
    add_people(accounts)
    for change in ({"role": "viewer"}, {"active": False}):
        with pytest.raises(InputError, match="last admin"):
            accounts.change("Anna", by="Anna", **change)
    with pytest.raises(InputError, match="last admin"):
        accounts.remove("Anna", by="Anna")
    assert accounts.check_password("Anna", PASSWORD).role == "admin"
    accounts.change("Erna", by="Anna", role="admin")
    accounts.remove("Anna", by="Erna")
    assert accounts.check_password("Anna", PASSWORD) is None


def test_only_hashes_of_sessions_and_tokens_are_stored(accounts: Accounts) -> None:
    people = add_people(accounts)
    session_secret = accounts.log_in(people["viewer"])
    token_secret = accounts.make_token("line", ["read"], by="Anna")
    with accounts._history.session() as session:
        login, token = session.scalar(select(LoginRow)), session.scalar(select(TokenRow))
    stored = [login.token, login.csrf, token.hash]
    assert all(len(each) == 64 for each in stored)
    assert not {session_secret, token_secret, csrf_of(session_secret)} & set(stored)


def test_a_session_ends_when_idle_and_in_any_case(accounts: Accounts, clock: Clock) -> None:
    viewer = add_people(accounts)["viewer"]
    secret = accounts.log_in(viewer)
    clock.forward(IDLE - timedelta(minutes=1))
    assert accounts.logged_in(secret).name == "Vera"
    clock.forward(IDLE - timedelta(minutes=1))  # the request before counts
    assert accounts.logged_in(secret) is not None
    clock.forward(IDLE)
    assert accounts.logged_in(secret) is None
    kept, begun = accounts.log_in(viewer), clock.now
    while clock.now < begun + LONGEST - IDLE / 2:
        assert accounts.logged_in(kept) is not None
        clock.forward(IDLE / 2)
    clock.forward(IDLE / 2)
    assert accounts.logged_in(kept) is None


def test_logout_and_a_new_password_end_sessions(accounts: Accounts) -> None:
    viewer = add_people(accounts)["viewer"]
    left, mine, other = (accounts.log_in(viewer) for _ in range(3))
    accounts.log_out(left, by="Vera")
    assert accounts.logged_in(left) is None
    accounts.set_password("Vera", "eleven loud herons", by="Vera", keep=mine)
    assert accounts.logged_in(mine) is not None
    assert accounts.logged_in(other) is None
    assert accounts.check_password("Vera", PASSWORD) is None
    accounts.change("Vera", by="Anna", active=False)
    assert accounts.logged_in(mine) is None
    assert accounts.check_password("Vera", "eleven loud herons") is None


def test_tokens_end_and_can_be_removed(accounts: Accounts, clock: Clock) -> None:
    secret = accounts.make_token("line", ["inspect", "read"], by="Anna", days=1)
    assert accounts.token(secret).scopes == ("read", "inspect")
    assert accounts.token(secret + "x") is None
    assert accounts.token("") is None
    clock.forward(timedelta(days=1))
    assert accounts.token(secret) is None
    lasting = accounts.make_token("other", ["read"], by="Anna")
    accounts.remove_token(accounts.token(lasting).id, by="Anna")
    assert accounts.token(lasting) is None
    for scopes, sentence in ([], "at least one scope"), (["root"], "no scope 'root'"):
        with pytest.raises(InputError, match=sentence):
            accounts.make_token("third", scopes, by="Anna")


def test_everything_is_in_the_audit_log_and_no_secret(accounts: Accounts) -> None:
    people = add_people(accounts)
    secret = accounts.log_in(people["viewer"], "10.0.0.9")
    accounts.log_out(secret, by="Vera", address="10.0.0.9")
    accounts.set_password("Vera", "eleven loud herons", by="Anna")
    accounts.change("Vera", by="Anna", role="operator")
    token = accounts.make_token("line", ["read"], by="Anna")
    accounts.remove_token(accounts.token(token).id, by="Anna")
    accounts.remove("Vera", by="Anna")
    assert actions(accounts)[4:] == [
        "login", "logout", "password changed", "account changed", "token made", "token removed", "account removed",
    ]  # fmt: skip
    rows = accounts._history.audit_rows()
    assert {row.address for row in rows if row.action == "login"} == {"10.0.0.9"}
    said = " ".join(f"{row.by} {row.detail}" for row in rows)
    assert not any(each in said for each in (secret, token, PASSWORD, "herons"))
