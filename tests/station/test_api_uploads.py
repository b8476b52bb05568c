"""Pictures that are sent to the station, and those that should not be."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from access_helpers import add_people, browser, fake_station, logged_in, new_app, picture, with_server, with_token
from history_helpers import wait_until

from dinosaur_ad.station.web import api_inspect

PNG = {"Content-Type": "image/png"}


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Any]:
    station = fake_station(tmp_path)
    yield station
    station.close()


@pytest.fixture
def camera(station: Any) -> Any:
    add_people(station.accounts)
    return with_token(new_app(station), ["inspect"], "camera")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """A station and its camera for tests after which nothing has changed."""
    station = fake_station(tmp_path_factory.mktemp("shared"))
    add_people(station.accounts)
    yield station, with_token(new_app(station), ["inspect"], "camera")
    station.close()


def bomb(width: int, height: int) -> bytes:
    """A small file that says it is a huge image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


def test_a_picture_is_judged_and_answered_as_body_and_as_form(station: Any, camera: Any) -> None:
    for sent in ({"content": picture(), "headers": PNG}, {"files": {"picture": ("a.jpg", picture("JPEG"))}}):
        answer = camera.post("/api/v1/inspect", **sent)
        assert answer.status_code == 200
        part = answer.json()
        assert part["verdict"] == "not ready"
        assert [view["key"] for view in part["views"]] == [part["key"]]
    assert len(station.pipeline.offered) == 2
    wait_until(lambda: station.spool.waiting() == [])  # released once it is recorded, which may be after the answer


def test_inspect_answers_its_own_picture(station: Any, camera: Any) -> None:
    def others_first(picture: Any, *_: Any, **__: Any) -> str:
        for other in ("upload:x", "camera:y"):
            station.bus.publish("part", {"key": other, "verdict": "anomalous", "views": [{"key": other}]})
        return judge(picture)

    judge = station.pipeline.offer
    station.sources["upload"]._offer = others_first
    answer = camera.post("/api/v1/inspect?key=mine", content=picture())
    assert answer.json()["key"] == "upload:mine"
    again = camera.post("/api/v1/inspect?key=mine", content=picture())
    assert again.status_code == 409
    assert "judged before" in again.json()["error"]


def test_a_verdict_that_does_not_come_is_said(station: Any, camera: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_inspect, "VERDICT_SECONDS", -1.9)
    station.sources["upload"]._offer = lambda *_, **__: "accepted"
    answer = camera.post("/api/v1/inspect", content=picture())
    assert answer.status_code == 504
    assert "accepted but not judged in time" in answer.json()["error"]
    assert len(station.spool.waiting()) == 1  # it was accepted: nothing is lost


def test_a_picture_is_on_disk_when_it_is_accepted(station: Any, camera: Any) -> None:
    station.sources["upload"].stop()
    sent = picture()
    answer = camera.post("/api/v1/pictures?name=part.png&key=7", content=sent, headers=PNG)
    assert (answer.status_code, answer.json()) == (202, {"key": "upload:7", "source": "upload"})
    (waiting,) = station.spool.waiting()
    assert waiting.path.read_bytes() == sent


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "has no picture"),
        (b"hello", "not an image that can be read"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image that can be read"),
        (b"%PDF-1.7 ...", "PDF document"),
        (b"%!PS-Adobe", "PostScript"),
        (picture()[:300], "damaged or cut short"),
        (picture(size=(8, 8)), "8 x 8 pixels"),
        (bomb(60_000, 60_000), "pixels"),
        (bomb(9_000, 9_000), "damaged or cut short"),
        (picture("ICO", (64, 64)), "not an image that can be read"),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/inspect", "/api/v1/pictures"])
def test_what_is_no_picture_is_refused_in_a_sentence(
    shared: tuple[Any, Any], path: str, content: bytes, sentence: str
) -> None:
    station, camera = shared
    for sent in ({"content": content, "headers": PNG}, {"files": {"picture": ("a.png", content)}}):
        answer = camera.post(path, **sent)
        assert answer.status_code == 400
        assert sentence in answer.json()["error"]
    assert station.pipeline.offered == []
    assert station.spool.waiting() == []


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd.png",
        "/etc/passwd",
        "a/b.png",
        "..",
        "..\\a.png",
        "C:\\a.png",
        "a\x00.png",
        "a\n.png",
        "x" * 300,
    ],
)
def test_names_that_are_paths_are_refused(shared: tuple[Any, Any], name: str) -> None:
    station, camera = shared
    answer = camera.post("/api/v1/pictures", params={"name": name}, content=picture(), headers=PNG)
    assert answer.status_code in (400, 422)
    assert "error" in answer.json()
    if not any(each in name for each in ("\x00", "\n", "C:")):  # which a form cannot have, or loses
        answer = camera.post("/api/v1/pictures", files={"picture": (name, picture())})
        assert answer.status_code == 400
        assert "no name of a file" in answer.json()["error"]
    assert station.spool.waiting() == []


def test_keys_of_the_sender_cannot_leave_the_spool(station: Any, camera: Any, tmp_path: Path) -> None:
    before = {path for path in tmp_path.rglob("*") if path.parent.name != "spool"}
    for key in ("../../../evil", "/etc/passwd", "..", "a" * 200):
        assert camera.post("/api/v1/inspect", params={"key": key}, content=picture()).status_code == 200
    found = {path for path in tmp_path.rglob("*") if path.parent.name != "spool" and "pictures" not in path.parts}
    assert {path.name for path in found - before} <= {"spool", "pictures", "history.sqlite-wal", "history.sqlite-shm"}


def test_other_kinds_of_bodies_are_refused(camera: Any) -> None:
    answer = camera.post("/api/v1/inspect", content=b"{}", headers={"Content-Type": "application/json"})
    assert (answer.status_code, "Send a picture" in answer.json()["error"]) == (415, True)
    two = [("picture", ("a.png", picture())), ("picture", ("b.png", picture()))]
    assert camera.post("/api/v1/inspect", files=two).status_code == 400
    broken = camera.post("/api/v1/inspect", content=b"--x\r\n", headers={"Content-Type": "multipart/form-data"})
    assert broken.status_code == 400
    assert set(broken.json()) == {"error"}


def test_unknown_sources_and_products_are_named(camera: Any) -> None:
    answer = camera.post("/api/v1/pictures?source=uplod", content=picture())
    assert (answer.status_code, answer.json()["error"]) == (
        404,
        "There is no source 'uplod' that takes uploads, did you mean upload?",
    )
    answer = camera.post("/api/v1/inspect?task=screw", content=picture())
    assert answer.status_code == 404
    assert "no product 'screw'" in answer.json()["error"]


def test_a_body_that_is_too_long_is_not_read_to_its_end(station: Any) -> None:
    add_people(station.accounts)
    app = new_app(with_server(station, upload_limit="100KB"))
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        for _ in range(1000):
            read += 65536
            yield b"\0" * 65536

    answer = with_token(app, ["inspect"], "camera").post("/api/v1/inspect", content=endless(), headers=PNG)
    assert answer.status_code == 413
    assert "longer than" in answer.json()["error"]
    announced = with_token(app, ["inspect"], "other").post("/api/v1/inspect", content=b"\0" * 300_000)
    assert announced.status_code == 413
    form = with_token(app, ["inspect"], "third").post("/api/v1/inspect", files={"picture": ("a.png", b"\0" * 300_000)})
    assert form.status_code == 413
    assert "error" in form.json()


def test_strangers_may_send_little(station: Any) -> None:
    people = add_people(station.accounts)
    app = new_app(station)
    answer = browser(app).post("/api/v1/inspect", content=picture(size=(400, 400)), headers=PNG)
    assert answer.status_code == 413  # refused before it was read
    assert browser(app).post("/api/v1/inspect", content=picture(), headers=PNG).status_code == 401
    admin, kind = logged_in(app, people["admin"]), {"Content-Type": "application/json"}
    assert admin.post("/api/v1/tokens", content=b" " * 5_000_000, headers=kind).status_code == 413


def test_no_room_is_said_and_can_be_tried_again(station: Any, camera: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dinosaur_ad.station.sources import uploads

    monkeypatch.setattr(uploads, "MOST", 0)
    answer = camera.post("/api/v1/pictures", content=picture())
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert station.spool.waiting() == []
