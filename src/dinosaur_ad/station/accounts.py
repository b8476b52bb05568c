"""Who may use a station: accounts with argon2id passwords, sessions of browsers, API tokens.

Of sessions and tokens only SHA-256 hashes are stored: their secrets have 256 random bits, so that a slow hash would add
nothing. Every change and every login is written to the audit log.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from dinosaur_ad._text import did_you_mean, printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import LANGUAGES
from dinosaur_ad.station.tables import AccountRow, LoginRow, TokenRow

ROLES = ("viewer", "operator", "engineer", "admin")
"""Each may do what those before it may."""
SCOPES = ("read", "inspect", "feedback", "teach", "admin")
"""What API tokens are for; "admin" includes the others, of which each stands for itself."""
SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 200
IDLE, LONGEST = timedelta(hours=12), timedelta(days=7)
"""A session ends after so long without a request, and in any case."""
TOKEN_PREFIX = "dino_"
LOCAL = "local"
"""The name of whoever sits at the machine while there are no accounts; no account can have it."""
_SEEN_AGAIN = timedelta(minutes=1)  # how exactly the last request of a session is recorded
_LONGEST_NAME = 60


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


def rank(role: str) -> int:
    """The place of a role among :data:`ROLES`.

    >>> rank("viewer") < rank("admin")
    True
    """
    return ROLES.index(role)


def csrf_of(secret: str) -> str:
    """The CSRF token of a session, made from its secret, so that nothing but hashes needs to be stored."""
    return hashlib.sha256(f"csrf {secret}".encode()).hexdigest()


class Accounts:
    """The accounts, sessions and tokens in the database of a history.

    ``clock`` gives the time, with its zone. Passwords are hashed one at a time: each takes 64 MB and a part of a second
    of one core, and many at once would slow the judging down.
    """

    def __init__(self, history: AccountStore, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._history = history
        self._clock = clock
        self._hasher = PasswordHasher(time_cost=3, memory_cost=65536, parallelism=1, type=Type.ID)
        self._hashing = threading.Lock()
        self._first = threading.Lock()
        self._some = False
        self._nobody = ""

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
        hashed = self._hash(password)
        row = AccountRow(
            name=name, password=hashed, role=role, active=True, language=language, created=self._now(), last_login=None
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
        hashed = self._hash(password)
        with self._history.session() as session:
            row = _named(session, name)
            row.password = hashed
            session.execute(
                delete(LoginRow).where(LoginRow.account_id == row.id, LoginRow.token != (_hash(keep) if keep else ""))
            )
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
        self._history.audit(by, "account removed", name, address)

    def check_password(self, name: str, password: str) -> Account | None:
        """The account, if it may log in and the password is its own; takes as long for names that do not exist."""
        with self._history.session() as session:
            row = session.scalar(select(AccountRow).where(AccountRow.name == _clean(name)))
            account, stored = (_account(row), row.password) if row else (None, self._no_password())
        if len(password) > LONGEST_PASSWORD or not self._matches(stored, password):
            return None
        if account is None or not account.active:
            return None
        if self._hasher.check_needs_rehash(stored):
            self._store_hash(account.id, self._hash(password))
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
        self._history.audit(by, "token removed", name, address)

    # --- passwords ---

    def _now(self) -> str:
        return _text(self._clock())

    def _hash(self, password: str) -> str:
        with self._hashing:
            return self._hasher.hash(unicodedata.normalize("NFC", password))

    def _matches(self, stored: str, password: str) -> bool:
        with self._hashing:
            try:
                return self._hasher.verify(stored, unicodedata.normalize("NFC", password))
            except (VerificationError, InvalidHashError):
                return False

    def _no_password(self) -> str:
        """A hash that no password has, to compare with where there is no account."""
        if not self._nobody:
            self._nobody = self._hash(secrets.token_urlsafe(32))
        return self._nobody

    def _store_hash(self, account_id: int, hashed: str) -> None:
        with self._history.session() as session:
            row = session.get(AccountRow, account_id)
            if row:
                row.password = hashed


def check_account_name(name: str) -> str:
    """A name of a person or a token, in Unicode's form NFC; an InputError otherwise."""
    clean = _clean(name)
    if not clean or len(clean) > _LONGEST_NAME or not clean.isprintable() or any(each in clean for each in "/:\\"):
        raise InputError(
            f"'{printable(name, 60)}' is no name; take 1 to {_LONGEST_NAME} letters, digits, spaces or dashes."
        )
    if clean.casefold() == LOCAL:
        raise InputError(f"The name '{LOCAL}' is taken by whoever uses the station without accounts; take another.")
    return clean


def check_role(role: str) -> str:
    """A role that there is; an InputError otherwise."""
    if role not in ROLES:
        raise InputError(
            f"There is no role '{printable(role, 60)}'{did_you_mean(role, ROLES) or '; there are ' + ', '.join(ROLES)}."
        )
    return role


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Scopes that there are, at least one, each once; an InputError otherwise."""
    wanted = set(scopes)
    if unknown := sorted(wanted - set(SCOPES)):
        raise InputError(f"There is no scope '{printable(unknown[0], 60)}'; there are {', '.join(SCOPES)}.")
    if not wanted:
        raise InputError(f"A token needs at least one scope of {', '.join(SCOPES)}.")
    return tuple(scope for scope in SCOPES if scope in wanted)


def check_language(language: str) -> str:
    """A language that the page has, or none; an InputError otherwise."""
    if language and language not in LANGUAGES:
        raise InputError(f"The page has the languages {', '.join(LANGUAGES)}, not '{printable(language, 20)}'.")
    return language


def check_new_password(password: str, name: str) -> None:
    """Refuse passwords that are guessed at once; length is what counts."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise InputError(f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters; take a longer phrase.")
    if len(set(password)) < 5 or name.casefold() in password.casefold():
        raise InputError("This password is easily guessed; take a phrase of several words without the name.")


def _clean(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip()


def _named(session: Session, name: str) -> AccountRow:
    row = session.scalar(select(AccountRow).where(AccountRow.name == _clean(name)))
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
