"""Pictures that many pages ask for at once: found once, kept while there is room, gone when their file is."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")

from dinosaur_ad.station.web.picture_shelf import PictureShelf, SentPicture


class Finder:
    """Finds pictures of ten bytes, and counts how often."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[int] = []
        self.go_on = threading.Event()
        self.go_on.set()

    async def ask(self, shelf: PictureShelf, part: int) -> bytes | None:
        return (await shelf.picture((part, 0, "full"), lambda: self._find(part))).content

    def _find(self, part: int) -> SentPicture:
        self.asked.append(part)
        assert self.go_on.wait(10)
        if part < 0:
            raise LookupError("there is no such picture")
        path = self.folder / f"{part}.png"
        path.write_bytes(f"picture{part:03d}".encode())
        return SentPicture(path, "image/png", path.read_bytes())


def test_twenty_pages_that_ask_at_once_cost_one_look(tmp_path: Path) -> None:
    finder, shelf = Finder(tmp_path), PictureShelf()

    async def ask_all() -> list[bytes | None]:
        finder.go_on.clear()
        asking = [asyncio.create_task(finder.ask(shelf, 7)) for _ in range(20)]
        await asyncio.sleep(0)  # all of them have asked
        asking[0].cancel()  # a page that is closed meanwhile
        finder.go_on.set()
        return [await each for each in asking[1:]]

    assert asyncio.run(ask_all()) == [b"picture007"] * 19
    assert finder.asked == [7]
    assert asyncio.run(finder.ask(shelf, 7)) == b"picture007"
    assert finder.asked == [7]


def test_a_picture_whose_file_was_removed_is_looked_for_again(tmp_path: Path) -> None:
    finder, shelf = Finder(tmp_path), PictureShelf()
    asyncio.run(finder.ask(shelf, 1))
    (tmp_path / "1.png").unlink()
    asyncio.run(finder.ask(shelf, 1))
    assert finder.asked == [1, 1]


def test_the_oldest_give_way_and_what_fails_is_said_to_all_and_tried_again(tmp_path: Path) -> None:
    finder, shelf = Finder(tmp_path), PictureShelf(most_bytes=25)

    async def fail() -> list[object]:
        return list(await asyncio.gather(*(finder.ask(shelf, -1) for _ in range(3)), return_exceptions=True))

    for part in (1, 2, 3, 3, 2):
        assert asyncio.run(finder.ask(shelf, part)) == f"picture{part:03d}".encode()
    assert finder.asked == [1, 2, 3]
    asyncio.run(finder.ask(shelf, 1))
    assert finder.asked == [1, 2, 3, 1]
    assert [type(each) for each in asyncio.run(fail())] == [LookupError] * 3
    asyncio.run(fail())
    assert finder.asked == [1, 2, 3, 1, -1, -1]
