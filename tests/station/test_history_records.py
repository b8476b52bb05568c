"""The history: what is recorded can be found, shown, exported; what cannot be opened is said."""

from __future__ import annotations

import csv
import io
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sqlalchemy", reason="the extra 'station' is not installed")

from history_helpers import START, PostgresServer, inspection, judged, picture
from PIL import Image

from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.station.config import HistoryConfig, SinkConfig
from dinosaur_ad.station.history.database import DATABASE
from dinosaur_ad.station.history.history import History, HistoryDownError, PartQuery
from dinosaur_ad.station.history.migrations import HEAD, VERSION_TABLE, revisions
from dinosaur_ad.station.part import JudgedPart, View
from dinosaur_ad.station.tables import Base


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    """An empty history in each kind of database."""
    url = ""
    if request.param == "postgresql":
        url = request.getfixturevalue("server").url
    history = History(url, tmp_path / "station")
    history.open()
    yield history
    if url:
        with history.session() as session:
            Base.metadata.drop_all(session.connection())
            session.connection().exec_driver_sql(f"DROP TABLE {VERSION_TABLE}")
    history.close()


def test_the_migrations_make_exactly_the_tables(history: History) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with history.session() as session:
        context = MigrationContext.configure(session.connection(), opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []
    assert max(revisions()) == HEAD


def test_a_part_comes_back_with_picture_map_and_inspection(history: History) -> None:
    part = judged(1, "anomalous", score=3.0)
    part_id = history.record_part(part)

    row = history.part(part_id)
    assert row is not None
    assert (row.key, row.task, row.verdict, row.score) == ("line:1", "screw", "anomalous", 3.0)
    assert row.taken == "2026-11-18T12:00:01.000000+00:00"
    view = row.views[0]
    path = history.picture_path(view.id)
    assert path is not None
    with Image.open(path) as image:
        assert np.array_equal(np.asarray(image), part.views[0].picture.pixels)
    small = history.thumbnail_path(view.id)
    assert small is not None
    with Image.open(small) as image:
        assert image.format == "JPEG"
    given = part.views[0].inspection
    assert given is not None
    assert np.array_equal(history.map_array(view.id), given.map)
    found = history.inspection(view.id)
    assert found == given
    assert found is not None
    assert found.regions == given.regions
    assert history.part(99) is None
    assert history.picture_path(99) is None


def test_zones_of_an_inspection_come_back(history: History) -> None:
    zones = np.eye(5, dtype=bool)
    taken = picture(1)
    view = View(taken, inspection(inspected=zones))
    history.record_part(JudgedPart(taken.key, taken.taken, (view,)))
    found = history.inspection(1)
    assert found is not None
    assert np.array_equal(found.inspected, zones)


def test_values_that_databases_refuse_are_recorded(history: History) -> None:
    key = "line:" + "long" * 500 + "\x00\udcff"
    other = key + "!"
    taken = picture(1, key=key, source="s\x00")
    odd = inspection(score=float("nan"), path="a\x00b\udcff", ms={"total": np.float32(2)}, level=float("inf"))
    part = JudgedPart(key, taken.taken, (View(taken, odd, "no\x00"),))
    part_id = history.record_part(part)

    assert history.record_part(part) == part_id
    row = history.part(part_id)
    assert row is not None
    assert row.score is None
    assert row.views[0].inspection is not None
    assert row.views[0].inspection["level"] is None
    assert history.known([key, other, "line:1"]) == {key}


def test_a_picture_that_cannot_be_read_is_a_part_too(history: History, tmp_path: Path) -> None:
    taken = picture(1, pixels=None, path=tmp_path / "gone.png")
    part_id = history.record_part(JudgedPart(taken.key, taken.taken, (View(taken, None, "No such file."),)))
    row = history.part(part_id)
    assert row is not None
    assert (row.verdict, row.reason, row.task) == ("not ready", "No such file.", None)
    assert history.counts() == {"anomalous": 0, "unknown": 0, "not ready": 1, "normal": 0}


def test_parts_are_found_by_all_that_is_known_of_them(history: History) -> None:
    for number in range(1, 7):
        history.record_part(
            judged(number, "anomalous" if number % 3 == 0 else "normal", "nut" if number > 3 else "screw")
        )
    history.save_feedback(6, "anna", "defect")

    def ids(**query: object) -> list[int]:
        return [part.id for part in history.search(PartQuery(**query)).parts]  # type: ignore[arg-type]

    assert ids() == [6, 5, 4, 3, 2, 1]
    assert ids(task="nut") == [6, 5, 4]
    assert ids(verdict="anomalous") == [6, 3]
    assert ids(task="screw", verdict="anomalous") == [3]
    assert ids(source="line") == [6, 5, 4, 3, 2, 1]
    assert ids(source="other") == []
    assert ids(answer="defect") == [6] == ids(answer="any")
    assert ids(answer="none", verdict="anomalous") == [3]
    assert ids(since="2026-11-18T12:00:05+00:00") == [6, 5]
    assert ids(until="2026-11-18T13:00:03+01:00") == [2, 1]
    assert ids(until="2026-11-18") == [6, 5, 4, 3, 2, 1]
    assert ids(until="2026-11-17") == [] == ids(since="2026-11-19")
    assert ids(text="NE:4") == [4]
    assert ids(text="%") == []
    page = history.search(PartQuery(limit=4))
    assert page.next_before == 3
    page = history.search(PartQuery(limit=4, before_id=page.next_before))
    assert ([part.id for part in page.parts], page.next_before) == ([2, 1], None)
    assert [part.id for part in history.latest(2)] == [6, 5]
    assert history.counts("2026-11-18T12:00:04") == {"anomalous": 1, "unknown": 0, "not ready": 0, "normal": 2}
    assert history.counts_by_task()["screw"]["normal"] == 2
    points = history.scores("nut", limit=2)
    assert [(point.id, point.verdict, point.answer) for point in points] == [
        (5, "normal", None), (6, "anomalous", "defect"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "query", [{"verdict": "good"}, {"answer": "maybe"}, {"since": "yesterday"}, {"until": "9" * 500}]
)
def test_a_question_without_sense_is_said(tmp_path: Path, query: dict[str, str]) -> None:
    history = History("", tmp_path)
    with pytest.raises(InputError):
        history.search(PartQuery(**query))  # type: ignore[arg-type]


def test_odd_questions_find_nothing(history: History) -> None:
    history.record_part(judged(1))
    for number in (0, -1, 2**31, 2**70):
        assert history.part(number) is None
        assert history.picture_path(number) is None
        assert history.one_feedback(number) is None
        with pytest.raises(InputError):
            history.save_feedback(number, "anna", "fine")
        with pytest.raises(InputError):
            history.close_warning(number, "anna")
    for odd in ("\x00", "\udcff", "x" * 5000, "'; DROP TABLE parts; --", "\\"):
        assert history.search(PartQuery(text=odd)).parts == []
        assert history.search(PartQuery(task=odd, source=odd)).parts == []
        assert history.known([odd]) == set()
    assert len(history.search(PartQuery(before_id=2**70, limit=2**70)).parts) == 1
    assert history.search(PartQuery(before_id=-(2**70))).parts == []


def test_feedback_waits_is_decided_and_can_be_taken_back(history: History) -> None:
    history.record_part(judged(1, "anomalous"))
    first = history.save_feedback(1, "anna", "defect")
    second = history.save_feedback(1, "bert", "fine", note="dust")

    assert [(row.id, row.part.views[0].key) for row in history.feedback("waiting")] == [(second, "line:1")]
    assert {row.id: row.state for row in history.feedback()} == {first: "withdrawn", second: "waiting"}
    history.decide_feedback(second, "taught", "eva", "Learned.")
    row = history.one_feedback(second)
    assert row is not None
    assert (row.state, row.decided_by, row.outcome, row.part.answer) == ("taught", "eva", "Learned.", "fine")
    third = history.save_feedback(1, "anna", "not sure")
    assert history.one_feedback(third).state == "noted"  # type: ignore[union-attr]
    history.decide_feedback(third, "withdrawn", "anna", "")
    assert history.part(1).answer == "fine"  # type: ignore[union-attr]
    for wrong in (lambda: history.save_feedback(9, "a", "fine"), lambda: history.save_feedback(1, "a", "good")):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="no feedback 77"):
        history.decide_feedback(77, "taught", "eva", "")


def test_changes_warnings_and_the_audit_are_noted(history: History) -> None:
    history.add_change(
        "eva", "screw", "update", "Learned 3 images.", {"before": np.float32(1.5), "after": float("nan")}
    )
    history.add_change("eva", "nut", "learn")
    assert [(row.task, row.action) for row in history.changes()] == [("nut", "learn"), ("screw", "update")]
    assert [row.detail for row in history.changes("screw")] == [{"before": 1.5, "after": None}]

    warning = history.add_warning("light", None, "The light changed.", {"p": 1e-5}, [1, 2])
    assert [(row.id, row.parts) for row in history.warnings()] == [(warning, [1, 2])]
    history.close_warning(warning, "eva")
    history.close_warning(warning, "bert")
    assert history.warnings() == []
    assert [row.closed_by for row in history.warnings(open_only=False)] == ["eva"]
    with pytest.raises(InputError, match="no warning 99"):
        history.close_warning(99, "eva")

    history.audit("eva", "login", "x\x00", "127.0.0.1")
    assert [(row.by, row.action, row.address) for row in history.audit_rows()] == [("eva", "login", "127.0.0.1")]

    sinks = [SinkConfig("a", "mqtt"), SinkConfig("b", "mqtt", messages=("part",))]
    assert history.queue_message("warning", "1", {"sentence": "The light changed."}, sinks) == 1
    assert history.queue_message("warning", "1", {"sentence": "The light changed."}, sinks) == 0


def test_exports_have_all_parts_and_no_formulas(history: History, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra 'parquet' is not installed")
    for number in range(3):
        history.record_part(judged(number, key=f"=cmd|' /C calc'!A{number}"))
    history.save_feedback(1, "@anna", "fine", note="-1+1\n2")
    stream = io.StringIO()
    assert history.export_csv(PartQuery(limit=1), stream) == 3
    rows = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert [row["id"] for row in rows] == ["3", "2", "1"]
    assert rows[2]["key"] == "'=cmd|' /C calc'!A0"
    assert (rows[2]["answered_by"], rows[2]["note"], rows[2]["answer"]) == ("'@anna", "'-1+1\\n2", "fine")
    assert float(rows[0]["score"]) == 1.0

    assert history.export_parquet(PartQuery(task="screw"), tmp_path / "new" / "parts.parquet") == 3
    table = parquet.read_table(tmp_path / "new" / "parts.parquet").to_pylist()
    assert table[2]["key"] == "=cmd|' /C calc'!A0"
    assert table[0]["p_value"] == 0.5
    assert history.export_csv(PartQuery(task="none"), io.StringIO()) == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["parts.parquet"]


def test_parquet_without_pyarrow_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="Parquet needs the package pyarrow"):
        History("", tmp_path).export_parquet(PartQuery(), tmp_path / "x.parquet")


def test_old_pictures_go_and_defects_and_feedback_stay_longer(history: History) -> None:
    history.config = HistoryConfig(keep_days=10, keep_days_defects=100)
    verdicts = ["normal", "anomalous", "unknown", "not ready", "normal", "normal"]
    for number, verdict in enumerate(verdicts, 1):
        history.record_part(judged(number, verdict))
    history.decide_feedback(history.save_feedback(5, "anna", "fine"), "taught", "eva", "")
    history.save_feedback(6, "anna", "fine")  # still waits in the tray

    def kept() -> list[int]:
        return [number for number in range(1, 7) if history.picture_path(number)]

    used = history.disk()["used"]
    assert history.apply_retention(START + timedelta(days=9)).count == 0
    removed = history.apply_retention(START + timedelta(days=11))
    assert removed.count == 2
    assert history.disk()["used"] == used - removed.bytes
    assert kept() == [2, 3, 5, 6]
    assert history.apply_retention(START + timedelta(days=101)).count == 3
    assert kept() == [6]
    assert history.counts()["normal"] == 3  # the verdicts stay
    assert history.map_array(1) is None
    assert history.inspection(1) is None
    files = [path for path in history.folder.rglob("pictures/**/*") if path.is_file()]
    assert len(files) == 3


def test_the_oldest_ordinary_pictures_go_first_when_there_are_too_many_bytes(history: History) -> None:
    for number in range(1, 9):
        history.record_part(judged(number, "anomalous" if number <= 2 else "normal"))
    each = history.disk()["used"] / 8

    def keep(pictures: float) -> list[int]:
        history.config = replace(history.config, keep_bytes=f"{int(pictures * each)}B")
        history.apply_retention(START)
        assert history.disk()["used"] <= pictures * each
        return [number for number in range(1, 9) if history.picture_path(number)]

    assert keep(8.5) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert keep(5.5) == [1, 2, 6, 7, 8]
    assert keep(1.5) == [2]


def test_a_block_that_fails_changes_nothing(history: History) -> None:
    history.record_part(judged(1))

    def fail() -> None:
        with history.session() as session:
            session.execute(Base.metadata.tables["parts"].update().values(verdict="unknown"))
            raise KeyError("stop")

    with pytest.raises(KeyError):
        fail()
    assert history.counts()["normal"] == 1


def test_names_in_the_database_that_lead_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    history = History("", tmp_path / "station")
    history.record_part(judged(1))
    (tmp_path / "secret").write_text("x")
    for name in ("../secret", "pictures/../../secret", "/etc/passwd", "pictures/..\\x"):
        with history.session() as session:
            session.execute(Base.metadata.tables["views"].update().values(picture=name, map=name))
        with pytest.raises(InputError):
            history.picture_path(1)
        with pytest.raises(InputError):
            history.map_array(1)


def test_a_migration_that_is_cut_off_leaves_nothing_behind(history: History) -> None:
    from sqlalchemy import event

    with history.session() as session:
        engine = session.get_bind().engine
        Base.metadata.drop_all(session.connection())
        session.connection().exec_driver_sql(f"DROP TABLE {VERSION_TABLE}")
    history.close()

    def cut(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "CREATE TABLE logins" in statement:
            raise RuntimeError("killed")

    event.listen(engine, "before_cursor_execute", cut)
    with pytest.raises(RuntimeError):
        history.open()
    event.remove(engine, "before_cursor_execute", cut)
    history.open()
    assert history.record_part(judged(1)) == 1


def test_a_newer_history_is_left_alone(tmp_path: Path) -> None:
    History("", tmp_path).open()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(StoreError, match="newer than this version of DINOSaur reads"):
        History("", tmp_path).open()


def test_what_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / DATABASE).write_bytes(b"this is no database at all, just some text " * 50)
    with pytest.raises(StoreError, match="is not an SQLite database"):
        History("", tmp_path / "text").open()

    (tmp_path / "folder" / DATABASE).mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be opened"):
        History("", tmp_path / "folder").open()

    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        History("", tmp_path / "file").open()

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with sqlite3.connect(foreign / DATABASE) as connection:
        connection.execute("CREATE TABLE parts (name TEXT)")
    with pytest.raises(StoreError, match="a table 'parts' that no station made"):
        History("", foreign).open()

    for url in ("nonsense", "mongo://x", "oracle+nothing://x"):
        with pytest.raises(StoreError, match="database"):
            History(url, tmp_path)


def test_a_database_server_that_does_not_answer_is_said_without_the_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    history = History("postgresql://anna:topsecret@127.0.0.1:9/db", tmp_path)
    with pytest.raises(HistoryDownError, match="does not answer") as caught:
        history.open()
    assert "topsecret" not in str(caught.value)
    with pytest.raises(HistoryDownError):
        history.counts()


def test_sqlite_is_safe_and_lets_readers_and_writers_in_together(tmp_path: Path) -> None:
    history = History("", tmp_path)
    with history.session() as session:
        connection = session.connection()
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous")
        }
    assert settings == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 2}


def test_opening_an_up_to_date_history_does_not_import_alembic(tmp_path: Path) -> None:
    import subprocess

    History("", tmp_path).open()
    code = (
        "import sys; from dinosaur_ad.station.history.history import History; "
        f"History('', {str(tmp_path)!r}).open(); print('alembic' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
