"""Who asked a moment ago is known without the database, until the accounts change."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")

from dinosaur_ad.station.web import recent_persons
from dinosaur_ad.station.web.recent_persons import RecentPersons


class Book:
    """Names by secret, how often one was looked up, and how often the book was changed."""

    def __init__(self, **names: str) -> None:
        self.names, self.looked, self.changes = names, 0, 0
        self.recent = RecentPersons[str](lambda: self.changes)

    async def who(self, secret: str) -> str | None:
        return await self.recent.person("session", secret, lambda: self._look(secret))

    def _look(self, secret: str) -> str | None:
        self.looked += 1
        return self.names.get(secret)


def test_many_requests_at_once_cost_one_look() -> None:
    async def ask() -> None:
        book = Book(one="Ann", two="Ben")
        assert await asyncio.gather(*(book.who("one") for _ in range(20))) == ["Ann"] * 20
        assert await book.who("one") == "Ann"
        assert book.looked == 1
        assert await book.who("two") == "Ben"

    asyncio.run(ask())


def test_a_change_of_the_accounts_counts_at_once_also_while_somebody_is_looked_up() -> None:
    async def ask() -> None:
        book = Book(one="Ann")
        assert await book.who("one") == "Ann"
        del book.names["one"]
        book.changes += 1
        assert await book.who("one") is None
        book.names["one"] = "Ann"
        asking = asyncio.create_task(book.who("one"))
        await asyncio.sleep(0)  # it is being looked up
        book.names["one"] = "Eve"
        book.changes += 1
        assert await book.who("one") == "Eve"
        await asking

    asyncio.run(ask())


def test_nobody_is_not_remembered_and_everybody_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_persons, "KEPT_SECONDS", 0.05)

    async def ask() -> None:
        book = Book()
        assert await book.who("one") is None
        book.names["one"] = "Ann"
        assert await book.who("one") == "Ann"
        book.names["one"] = "Eve"  # by another process, which counts no change here
        await asyncio.sleep(0.06)
        assert await book.who("one") == "Eve"

    asyncio.run(ask())


def test_a_database_that_is_away_is_said_to_all_and_asked_again() -> None:
    async def ask() -> None:
        book = Book(one="Ann")
        names, book.names = book.names, None  # type: ignore[assignment]
        answers = await asyncio.gather(*(book.who("one") for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in answers] == [AttributeError] * 3
        book.names = names
        assert await book.who("one") == "Ann"

    asyncio.run(ask())
