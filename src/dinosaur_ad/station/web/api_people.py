"""The API for accounts, tokens and the audit log."""

from __future__ import annotations

import math

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.accounts import Account, Accounts, ApiToken
from dinosaur_ad.station.tables import AuditRow
from dinosaur_ad.station.web.access import Administrator, Person, Viewer, address_of
from dinosaur_ad.station.web.api_models import (
    AccountAsked,
    AccountChangeAsked,
    OneAccount,
    OneAudit,
    OneToken,
    PasswordAsked,
    TokenAsked,
    TokenMade,
    WhoAmI,
)

router = APIRouter(tags=["people"])


@router.get("/me", response_model=WhoAmI)
def me(person: Viewer) -> Person:
    """Who the station takes the sender for."""
    return person


@router.put("/me/password", status_code=204)
def change_own_password(asked: PasswordAsked, request: Request, person: Viewer) -> None:
    """Change one's own password; all other sessions of the account end."""
    if not person.secret:
        raise HTTPException(403, "A password belongs to an account that is logged in.")
    accounts, address = _accounts(request), address_of(request)
    if (wait := request.app.state.backoff.begin(person.name, address)) > 0:
        seconds = str(math.ceil(wait))
        sentence = f"Too many wrong passwords; try again in {seconds} seconds."
        raise HTTPException(429, sentence, {"Retry-After": seconds})
    if accounts.check_password(person.name, asked.old) is None:
        raise HTTPException(403, "The old password is wrong.")
    request.app.state.backoff.succeeded(person.name, address)
    accounts.set_password(person.name, asked.new, by=person.name, keep=person.secret, address=address)


@router.get("/accounts", response_model=list[OneAccount])
def list_accounts(request: Request, person: Administrator) -> list[Account]:
    """All accounts."""
    return _accounts(request).accounts()


@router.post("/accounts", response_model=OneAccount, status_code=201)
def add_account(asked: AccountAsked, request: Request, person: Administrator) -> Account:
    """Make an account."""
    accounts, address = _accounts(request), address_of(request)
    return accounts.create(
        asked.name, asked.password, asked.role, by=person.name, language=asked.language, address=address
    )


@router.patch("/accounts/{name}", response_model=OneAccount)
def change_account(name: str, asked: AccountChangeAsked, request: Request, person: Administrator) -> Account:
    """Change the role, the language, the password of an account, or whether it may log in."""
    accounts, address = _accounts(request), address_of(request)
    _existing(accounts, name)
    if asked.password is not None:
        keep = person.secret if person.name == name else ""
        accounts.set_password(name, asked.password, by=person.name, keep=keep, address=address)
    return accounts.change(
        name, by=person.name, role=asked.role, active=asked.active, language=asked.language, address=address
    )


@router.delete("/accounts/{name}", status_code=204)
def remove_account(name: str, request: Request, person: Administrator) -> None:
    """Remove an account; the last admin cannot be removed."""
    accounts = _accounts(request)
    _existing(accounts, name)
    accounts.remove(name, by=person.name, address=address_of(request))


@router.get("/tokens", response_model=list[OneToken])
def list_tokens(request: Request, person: Administrator) -> list[ApiToken]:
    """All API tokens, without their secrets."""
    return _accounts(request).tokens()


@router.post("/tokens", response_model=TokenMade, status_code=201)
def add_token(asked: TokenAsked, request: Request, person: Administrator) -> TokenMade:
    """Make an API token; its secret is in this answer and nowhere else."""
    secret = _accounts(request).make_token(
        asked.name, asked.scopes, by=person.name, days=asked.days, address=address_of(request)
    )
    return TokenMade(name=asked.name, scopes=sorted(set(asked.scopes)), secret=secret)


@router.delete("/tokens/{token_id}", status_code=204)
def remove_token(token_id: int, request: Request, person: Administrator) -> None:
    """Make a token invalid for good."""
    try:
        _accounts(request).remove_token(token_id, by=person.name, address=address_of(request))
    except InputError as error:
        raise HTTPException(404, str(error)) from None


@router.get("/audit", response_model=list[OneAudit])
def audit_log(request: Request, person: Administrator, limit: int = Query(100, ge=1, le=1000)) -> list[AuditRow]:
    """Who did what, the newest first."""
    rows: list[AuditRow] = request.app.state.station.history.audit_rows(limit)
    return rows


def _accounts(request: Request) -> Accounts:
    accounts: Accounts = request.app.state.station.accounts
    return accounts


def _existing(accounts: Accounts, name: str) -> None:
    if name not in {account.name for account in accounts.accounts()}:
        raise HTTPException(404, "There is no such account.")
