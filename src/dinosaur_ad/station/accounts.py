"""Who may use a station: accounts with argon2id passwords, sessions of browsers, API tokens.

Of sessions and tokens only SHA-256 hashes are stored: their secrets have 256 random bits, so that a slow hash would add
nothing. Every change and every login is written to the audit log.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.account_rules import (
    LOCAL,
    LONGEST_PASSWORD,
    ROLES,
    SCOPES,
    SHORTEST_PASSWORD,
    check_account_name,
    check_language,
    check_new_password,
    check_role,
    check_scopes,
    clean_name,
)
from dinosaur_ad.station.password_hashing import PasswordHashing
from dinosaur_ad.station.tables import AccountRow, LoginRow, TokenRow

__all__ = ["IDLE", "LONGEST", "ROLES", "SCOPES", "SHORTEST_PASSWORD", "Account", "Accounts", "ApiToken", "csrf_of"]

IDLE, LONGEST = timedelta(hours=12), timedelta(days=7)
"""A session ends after so long without a request, and in any case."""
TOKEN_PREFIX = "dino_"
_SEEN_AGAIN = timedelta(minutes=1)  # how exactly the last request of a session is recorded


class AccountStore(Protocol):
    """What accounts need of the history."""

    def session(self) -> AbstractContextManager[Session]:
        """A session of the database that commits at the end of the block, or changes nothing if it raises."""
        ...

    def audit(self, by: str, action: str, detail: str = "", address: str = "") -> object:
        """Write a line of the audit log."""
        ...


@dataclass(frozen=True)
class Account:
    """A person who may log in."""

    id: int
    name: str
    role: str
    active: bool
    language: str
    created: str
    last_login: str | None


@dataclass(frozen=True)
class ApiToken:
    """An API token without its secret."""

    id: int
    name: str
    scopes: tuple[str, ...]
    created: str
    created_by: str
    ends: str | None
    last_used: str | None


def csrf_of(secret: str) -> str:
    """The CSRF token of a session, made from its secret, so that nothing but hashes needs to be stored."""
    return hashlib.sha256(f"csrf {secret}".encode()).hexdigest()


class Accounts:
    """The accounts, sessions and tokens in the database of a history.

    ``clock`` gives the time, with its zone.
    """

    def __init__(self, history: AccountStore, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._history = history
        self._clock = clock
        self._passwords = PasswordHashing()
        self._first = threading.Lock()
        self._some = False
        self.changes = 0
        """Changes of who may do what since the start; whatever was known before one of them has to be asked again."""

    # --- accounts ---

    def any(self) -> bool:
        """Whether there is an account; once there is one, there always is."""
        if not self._some:
            with self._history.session() as session:
                self._some = session.scalar(select(func.count()).select_from(AccountRow)) not in (0, None)
        return self._some

    def accounts(self) -> list[Account]:
        """All accounts, by name."""
        with self._history.session() as session:
            return [_account(row) for row in session.scalars(select(AccountRow).order_by(AccountRow.name))]

    def create(self, name: str, password: str, role: str, *, by: str, language: str = "", address: str = "") -> Account:
        """Make an account.

        :raises InputError: the name is taken or no name, the password too weak, the role unknown.
        """
        name, role, language = check_account_name(name), check_role(role), check_language(language)
        check_new_password(password, name)
        hashed = self._passwords.hashed(password)
        row = AccountRow(
            name=name,
            password=hashed,
            role=role,
            active=True,
            language=language,
            created=_text(self._clock()),
            last_login=None,
        )
        with self._first, self._history.session() as session:
            names = session.scalars(select(AccountRow.name)).all()
            if not names and role != "admin":
                raise InputError("The first account is that of an admin, who makes the others; take the role admin.")
            if name.casefold() in {each.casefold() for each in names}:
                raise InputError(f"There is an account '{printable(name)}' already; choose another name.")
            session.add(row)
            try:
                session.flush()
            except IntegrityError:
                raise InputError(f"There is an account '{printable(name)}' already; choose another name.") from None
            account = _account(row)
        self._some = True
        self.changes += 1
        self._history.audit(by, "account made", f"{name} ({role})", address)
        return account

    def create_first(self, name: str, password: str, *, language: str = "", address: str = "") -> Account:
        """Make the account of the first admin; refused as soon as there is any account."""
        if self.any():
            raise InputError("There are accounts already; an admin makes more of them on the page People.")
        return self.create(name, password, "admin", by=LOCAL, language=language, address=address)

    def set_password(self, name: str, password: str, *, by: str, keep: str = "", address: str = "") -> None:
        """Give an account another password and end its sessions, but for that with the secret ``keep``."""
        check_new_password(password, name)
        hashed = self._passwords.hashed(password)
        with self._history.session() as session:
            row = _named(session, name)
            row.password = hashed
            session.execute(
                delete(LoginRow).where(LoginRow.account_id == row.id, LoginRow.token != (_hash(keep) if keep else ""))
            )
        self.changes += 1
        self._history.audit(by, "password changed", name, address)

    def change(
        self,
        name: str,
        *,
        by: str,
        role: str | None = None,
        active: bool | None = None,
        language: str | None = None,
        address: str = "",
    ) -> Account:
        """Change the role, the language, or whether the account may log in; sessions end where it loses rights."""
        with self._first, self._history.session() as session:
            row = _named(session, name)
            changes = []
            if role is not None and check_role(role) != row.role:
                changes.append(f"role {row.role} -> {role}")
                row.role = role
            if active is not None and active != row.active:
                changes.append("may log in" if active else "may not log in")
                row.active = active
            if language is not None and check_language(language) != row.language:
                changes.append(f"language {language}")
                row.language = language
            _refuse_without_admin(session)
            if active is False:
                session.execute(delete(LoginRow).where(LoginRow.account_id == row.id))
            account = _account(row)
        if changes:
            self.changes += 1
            self._history.audit(by, "account changed", f"{account.name}: {', '.join(changes)}", address)
        return account

    def remove(self, name: str, *, by: str, address: str = "") -> None:
        """Remove an account and its sessions; the last admin cannot be removed."""
        with self._first, self._history.session() as session:
            row = _named(session, name)
            session.execute(delete(LoginRow).where(LoginRow.account_id == row.id))
            session.delete(row)
            session.flush()
            _refuse_without_admin(session)
        self.changes += 1
        self._history.audit(by, "account removed", name, address)

    def check_password(self, name: str, password: str) -> Account | None:
        """The account, if it may log in and the password is its own; takes as long for names that do not exist."""
        with self._history.session() as session:
            row = session.scalar(select(AccountRow).where(AccountRow.name == clean_name(name)))
            account, stored = (_account(row), row.password) if row else (None, self._passwords.of_nobody())
        if len(password) > LONGEST_PASSWORD or not self._passwords.matches(stored, password):
            return None
        if account is None or not account.active:
            return None
        if self._passwords.is_old(stored):
            self._store_hash(account.id, self._passwords.hashed(password))
        return account

    # --- sessions ---

    def log_in(self, account: Account, address: str = "") -> str:
        """Begin a session; returns its secret, for the cookie."""
        secret, now = secrets.token_urlsafe(32), self._clock()
        with self._history.session() as session:
            session.execute(delete(LoginRow).where(LoginRow.ends < _text(now)))
            session.add(
                LoginRow(
                    token=_hash(secret),
                    account_id=account.id,
                    csrf=_hash(csrf_of(secret)),
                    begun=_text(now),
                    seen=_text(now),
                    ends=_text(now + LONGEST),
                )
            )
            row = session.get(AccountRow, account.id)
            if row:
                row.last_login = _text(now)
        self._history.audit(account.name, "login", "", address)
        return secret

    def logged_in(self, secret: str) -> Account | None:
        """The account of a session that has not ended."""
        now = self._clock()
        with self._history.session() as session:
            login = session.get(LoginRow, _hash(secret))
            row = session.get(AccountRow, login.account_id) if login else None
            if login is None or row is None or not row.active:
                return None
            if login.ends <= _text(now) or login.seen <= _text(now - IDLE):
                session.delete(login)
                return None
            if login.seen <= _text(now - _SEEN_AGAIN):
                login.seen = _text(now)
            return _account(row)

    def log_out(self, secret: str, *, by: str, address: str = "") -> None:
        """End a session."""
        with self._history.session() as session:
            session.execute(delete(LoginRow).where(LoginRow.token == _hash(secret)))
        self.changes += 1
        self._history.audit(by, "logout", "", address)

    # --- API tokens ---

    def make_token(
        self, name: str, scopes: Iterable[str], *, by: str, days: float | None = None, address: str = ""
    ) -> str:
        """Make an API token; returns its secret, which cannot be shown again."""
        name, kinds = check_account_name(name), check_scopes(scopes)
        if days is not None and not 0 < days <= 3650:
            raise InputError(f"A token is valid for 0 to 3650 days, got {days:g}.")
        secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
        now = self._clock()
        row = TokenRow(
            name=name,
            hash=_hash(secret),
            scopes=list(kinds),
            created=_text(now),
            created_by=by,
            ends=None if days is None else _text(now + timedelta(days=days)),
            last_used=None,
        )
        with self._history.session() as session:
            session.add(row)
            try:
                session.flush()
            except IntegrityError:
                raise InputError(f"There is a token '{printable(name)}' already; choose another name.") from None
        self._history.audit(by, "token made", f"{name} ({', '.join(kinds)})", address)
        return secret

    def token(self, secret: str) -> ApiToken | None:
        """The token with that secret, if it is still valid."""
        now = self._clock()
        with self._history.session() as session:
            row = session.scalar(select(TokenRow).where(TokenRow.hash == _hash(secret)))
            if row is None or (row.ends is not None and row.ends <= _text(now)):
                return None
            if row.last_used is None or row.last_used <= _text(now - _SEEN_AGAIN):
                row.last_used = _text(now)
            return _token(row)

    def tokens(self) -> list[ApiToken]:
        """All tokens, by name, without their secrets."""
        with self._history.session() as session:
            return [_token(row) for row in session.scalars(select(TokenRow).order_by(TokenRow.name))]

    def remove_token(self, token_id: int, *, by: str, address: str = "") -> None:
        """Make a token invalid for good."""
        with self._history.session() as session:
            row = session.get(TokenRow, token_id)
            if row is None:
                raise InputError(f"There is no token {token_id}.")
            name = row.name
            session.delete(row)
        self.changes += 1
        self._history.audit(by, "token removed", name, address)

    def _store_hash(self, account_id: int, hashed: str) -> None:
        with self._history.session() as session:
            row = session.get(AccountRow, account_id)
            if row:
                row.password = hashed


def _named(session: Session, name: str) -> AccountRow:
    row = session.scalar(select(AccountRow).where(AccountRow.name == clean_name(name)))
    if row is None:
        raise InputError(f"There is no account '{printable(name, 60)}'.")
    return row


def _refuse_without_admin(session: Session) -> None:
    """Raise if nobody could make accounts any more; nothing that was changed in the session is committed then."""
    session.flush()
    admins = select(func.count()).select_from(AccountRow).where(AccountRow.role == "admin", AccountRow.active)
    if not session.scalar(admins):
        raise InputError("This is the last admin; make another account an admin first.")


def _account(row: AccountRow) -> Account:
    return Account(row.id, row.name, row.role, row.active, row.language, row.created, row.last_login)


def _token(row: TokenRow) -> ApiToken:
    return ApiToken(row.id, row.name, tuple(row.scopes), row.created, row.created_by, row.ends, row.last_used)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
