"""Unknown parts of a station become proposals: bounded, each part once, also across restarts and kills."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="needs the extra station")

from proposal_helpers import SINK, STRANGE, ProposalBench, proposing
from teaching_helpers import bench

from detector_helpers import TINY_PAPER, product, tiny
from dinosaur_ad import Dinosaur, InputError
from dinosaur_ad.station.config import ProposalsConfig
from dinosaur_ad.station.proposals import Proposals
from dinosaur_ad.station.tables import OutboxRow
from dinosaur_ad.watch.deciding import begin_adoption, opened_tray


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.station.gathering.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("dinosaur_ad.station.gathering.RETRY_SECONDS", 0.05)


def loose(folder: Path) -> list[str]:
    """Where the pictures of the tray that belong to no proposal came from."""
    with opened_tray(folder / "store") as tray:
        return [each.origin for each in tray.loose()]


def test_unknown_parts_become_a_proposal_that_is_told(tmp_path: Path) -> None:
    with proposing(tmp_path) as running:
        parts = running.show_strange(20)
        (card,) = running.proposals.all()
        assert (card.kind, card.status, running.proposals.waiting) == ("product", "open", 1)
        assert sorted(picture.part for picture in card.pictures if picture.part) == parts
        assert 0 < (card.promised_rate or 0) < 1
        assert card.calibrated
        (warning,) = running.bench.history.warnings()
        assert warning.kind == "proposal"
        assert set(warning.parts) <= set(parts)
        assert "20 unknown parts show the same" in warning.sentence
        with running.bench.history.session() as session:
            (message,) = session.query(OutboxRow).all()
        assert (message.sink, message.kind) == (SINK.name, "warning")
        assert message.payload["detail"]["proposal"] == card.id
        assert message.payload["parts"] == warning.parts
        assert [each.name for each in running.bench.detector.tasks()] == ["plate"], "it only proposes"


def test_known_parts_are_not_gathered(tmp_path: Path) -> None:
    with proposing(tmp_path) as running:
        running.show(product(1, 3, seed=7), "normal")
    assert loose(tmp_path) == []


def test_after_a_restart_each_part_is_gathered_once(tmp_path: Path) -> None:
    with bench(tmp_path) as taught:
        with proposing(tmp_path, taught=taught) as running:
            first = running.show_strange(8)
        missed = [taught.record(pixels) for pixels in product(STRANGE, 4, seed=5)]  # while nothing was gathered
        with proposing(tmp_path, taught=taught) as running:
            assert running.proposals.gathering.settle(60)
            assert loose(tmp_path) == [f"part-{number}/camera" for number in [*first, *missed]]
            running.show_strange(8, seed=6)
            assert len(running.proposals.all()) == 1
        with proposing(tmp_path, taught=taught) as running:
            assert running.proposals.gathering.settle(60)
            assert len(running.proposals.all()[0].pictures) == 20
            assert len(taught.history.warnings(open_only=False)) == 1


def test_a_part_that_failed_half_way_is_gathered_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise RuntimeError("killed before the change was made")

    with bench(tmp_path) as taught:
        with monkeypatch.context() as patched, proposing(tmp_path, taught=taught) as running:
            patched.setattr("dinosaur_ad.watch.tray.Tray.note_seen", killed)
            part = running.show_strange(1)[0]
            assert running.proposals.state()["failed"] == 1
            assert loose(tmp_path) == []
        with proposing(tmp_path, taught=taught) as running:
            assert running.proposals.gathering.settle(60)
        assert loose(tmp_path) == [f"part-{part}/camera"]


def test_a_kill_before_the_proposal_is_made_up_for_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise RuntimeError("killed before the proposal was made")

    with bench(tmp_path) as taught:
        with monkeypatch.context() as patched, proposing(tmp_path, taught=taught) as running:
            patched.setattr("dinosaur_ad.watch.tray.Tray.propose", killed)
            running.show_strange(20)
            assert running.proposals.all() == []
        with proposing(tmp_path, taught=taught) as running:
            assert running.proposals.gathering.settle(60)
            assert len(running.proposals.all()[0].pictures) == 20
            assert running.proposals.waiting == 1


def test_the_tray_is_bounded(tmp_path: Path) -> None:
    config = ProposalsConfig(pictures=8, keep=8, most_open=1)
    with proposing(tmp_path, config) as running:
        running.show_strange(8)
        running.show(product(4, 12), "unknown")
        assert len(running.proposals.all()) == 1, "one may wait, and one does"
        assert len(loose(tmp_path)) == 8


def test_judging_does_not_wait_while_a_picture_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> bool:
        entered.set()
        assert go_on.wait(60)
        return False

    monkeypatch.setattr("dinosaur_ad.station.gathering.UnknownGathering._known_by_now", slow)
    with proposing(tmp_path) as running:
        pixels = product(STRANGE, 2)
        running.bench.record(pixels[0])
        running.bench.bus.publish("recorded", {"id": 1})
        assert entered.wait(60)
        part = running.bench.record(pixels[1])
        running.bench.bus.publish("recorded", {"id": part})
        assert running.bench.history.part(part) is not None
        go_on.set()
        assert running.proposals.gathering.settle(60)
    assert len(loose(tmp_path)) == 2


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    with proposing(tmp_path, ProposalsConfig(enabled=False)) as running:
        running.bench.record(product(STRANGE, 1)[0])
        assert running.proposals.state() == {
            "waiting": 0,
            "on": False,
            "reason": "Gathering is switched off: [proposals] enabled = false in the settings.",
            "gathered": 0,
            "failed": 0,
        }
    assert loose(tmp_path) == []


def test_a_preset_without_the_verdict_says_so(tmp_path: Path) -> None:
    with bench(tmp_path / "other") as taught:
        paper = tiny(tmp_path / "paper", preset=TINY_PAPER)
        paper.learn("plate", product(1, 16))
        taught.teaching._judging = paper
        taught.teaching._own = paper
        with proposing(tmp_path, taught=taught) as running:
            assert running.proposals.gathering.settle(60)
            state = running.proposals.state()
            assert not state["on"]
            assert "has no verdict for parts of no known product" in state["reason"]
            assert running.proposals.all() == []


def test_another_watch_of_the_store_goes_first(tmp_path: Path) -> None:
    with bench(tmp_path) as taught:
        watcher = taught.detector._watcher("ask")
        with watcher.alone():
            proposals = Proposals(taught.teaching, taught.history, taught.bus)
            proposals.start()
            with proposals.gathering._changed:
                assert proposals.gathering._changed.wait_for(lambda: proposals.gathering._reason, 60)
            assert "Another watch of this store is running" in proposals.state()["reason"]
        with proposals.gathering._changed:
            assert proposals.gathering._changed.wait_for(lambda: not proposals.gathering._reason, 60)
        ProposalBench(taught, proposals).show_strange(1)
        proposals.stop()
    assert len(loose(tmp_path)) == 1


def test_what_was_judged_before_a_product_was_taught_is_looked_at_again(tmp_path: Path) -> None:
    with bench(tmp_path) as taught:
        for pixels in product(STRANGE, 3, seed=9):
            assert taught.judged(pixels).verdict == "unknown"
            taught.record(pixels)
        taught.ended(taught.teaching.learn("gear", taught.files(product(STRANGE, 20), "gear"), "Ann"))
        with proposing(tmp_path, taught=taught) as running:
            assert running.proposals.gathering.settle(60)
    assert loose(tmp_path) == []


# --- what people decide ---


def test_an_accepted_proposal_is_learned_and_the_next_part_is_that_product(tmp_path: Path) -> None:
    with proposing(tmp_path) as running:
        running.show_strange(20)
        job = running.accepted(1, "gear")
        assert (job.kind, job.state, job.total) == ("learn", "done", job.done)
        assert "Learned 'gear' with 20 pictures of proposal 1." in job.sentence
        assert "false alarms with 95 % confidence" in job.sentence
        assert running.bench.judged(product(STRANGE, 1, seed=3)[0]).worst.inspection.task == "gear"  # type: ignore
        (change,) = running.bench.history.changes("gear")
        assert (change.by, change.action, change.detail["proposal"]) == ("Ann", "learn", 1)
        assert running.bench.history.warnings() == []
        (card,) = running.proposals.all()
        assert (card.status, card.task, card.decided_by, running.proposals.waiting) == ("adopted", "gear", "Ann", 0)
        assert ("Ann", "proposal accepted") in [(row.by, row.action) for row in running.bench.history.audit_rows()]
        assert running.bench.teaching.undo("gear", by="Ann") == "learn"


def test_what_comes_too_late_is_one_sentence(tmp_path: Path) -> None:
    with proposing(tmp_path) as running:
        running.show_strange(20)
        proposals, gate = running.proposals, threading.Event()
        running.bench.teaching.queue.add("wait", "plate", "Tom", lambda job: waited_for(gate))
        with pytest.raises(InputError, match="There is a task 'plate' already"):
            proposals.accept(1, "plate", "Ann")
        with pytest.raises(InputError, match="name"):
            proposals.accept(1, "../gear", "Ann")
        job = proposals.accept(1, "gear", "Ann")
        with pytest.raises(InputError, match="Proposal 1 was accepted already and is being learned as 'gear'"):
            proposals.accept(1, "wheel", "Tom")
        with pytest.raises(InputError, match="accepted already"):
            proposals.dismiss(1, "Tom")
        gate.set()
        running.bench.ended(job)
        with pytest.raises(InputError, match="Proposal 1 was accepted meanwhile, as 'gear'"):
            proposals.accept(1, "wheel", "Tom")
        with pytest.raises(InputError, match="There is no proposal 7"):
            proposals.dismiss(7, "Tom")
        with pytest.raises(InputError, match="no merge"):
            proposals.undo(1, "Tom")


def waited_for(gate: threading.Event) -> object:
    """A job that ends once the gate is open."""
    from dinosaur_ad.station.jobs import Outcome

    assert gate.wait(60)
    return Outcome("Waited.")


def test_not_now_and_ask_again(tmp_path: Path) -> None:
    with proposing(tmp_path) as running:
        running.show_strange(20)
        running.proposals.dismiss(1, "Ann")
        assert running.bench.history.warnings() == []
        with pytest.raises(InputError, match="Proposal 1 was put aside meanwhile"):
            running.proposals.accept(1, "gear", "Tom")
        running.show_strange(20, seed=5)
        assert running.proposals.waiting == 0
        running.proposals.ask_again(1, "Ann")
        with pytest.raises(InputError, match="gathered anew"):
            running.proposals.dismiss(1, "Tom")
        running.show_strange(20, seed=6)
        assert [card.id for card in running.proposals.all() if card.status == "open"] == [2]


def test_pictures_that_are_gone_leave_the_proposal_open(tmp_path: Path) -> None:
    with proposing(tmp_path) as running:
        running.show_strange(20)
        for file in (tmp_path / "store" / "watch" / "pictures").iterdir():
            file.unlink()
        with pytest.raises(InputError, match="only 0 of the 20 pictures of proposal 1 are still there"):
            running.proposals.accept(1, "gear", "Ann")
        (card,) = running.proposals.all()
        assert card.status == "open"
        assert not any(picture.there for picture in card.pictures)
        assert running.proposals.picture(1, card.pictures[0].id) is None


def test_a_name_that_is_taken_while_it_waits_opens_it_again(tmp_path: Path) -> None:
    with proposing(tmp_path) as running:
        running.show_strange(20)
        gate = threading.Event()
        running.bench.teaching.queue.add("wait", "plate", "Tom", lambda job: waited_for(gate))
        files = running.bench.files(product(6, 16), "other")
        running.bench.teaching.learn("gear", files, "Tom", force=True)
        job = running.proposals.accept(1, "gear", "Ann")
        gate.set()
        assert running.bench.ended(job).state == "failed"
        assert "There is a task 'gear' already" in job.sentence
        assert [card.status for card in running.proposals.all()] == ["open"]


def test_what_was_accepted_before_a_kill_is_learned_by_the_next_start(tmp_path: Path) -> None:
    with bench(tmp_path) as taught:
        with proposing(tmp_path, taught=taught) as running:
            running.show_strange(20)
        begin_adoption(taught.teaching.another_detector(), tmp_path / "store", 1, "gear")
        with proposing(tmp_path, taught=taught) as running:
            (job,) = taught.all_ended()
            assert job.state == "done", job.sentence
            assert "gear" in taught.detector
            assert running.proposals.waiting == 0


def test_what_the_command_line_decides_is_seen(tmp_path: Path) -> None:
    with proposing(tmp_path) as running:
        running.show_strange(20)
        Dinosaur(tmp_path / "store", encoder=running.bench.detector.encoder).dismiss(1)
        (card,) = running.proposals.all()
        assert (card.status, card.decided_by) == ("dismissed", "station")
        assert running.bench.history.warnings() == []


def test_two_products_that_became_one_are_merged_and_taken_back(tmp_path: Path) -> None:
    with bench(tmp_path) as taught:
        for number in (1, 2):
            files = taught.files(product(2, 20, seed=number), f"tile-{number}")
            taught.ended(taught.teaching.learn(f"tile-{number}", files, "Ann", force=True))
        with proposing(tmp_path, ProposalsConfig(look_seconds=0), taught=taught) as running:
            for seed in range(100, 400):
                part = taught.judged(product(2, 1, seed=seed)[0], task=f"tile-{seed % 2 + 1}")
                if part.verdict == "normal":
                    taught.bus.publish("recorded", {"id": taught.history.record_part(part)})
                    assert running.proposals.gathering.settle(60)
                if running.proposals.waiting:
                    break
            (card,) = running.proposals.all()
            assert (card.kind, card.products) == ("merge", ("tile-1", "tile-2"))
            assert "look like one product now" in taught.history.warnings()[0].sentence
            job = running.accepted(1, "tile")
            assert (job.kind, job.state) == ("merge", "done"), job.sentence
            assert [each.name for each in taught.detector.tasks()] == ["plate", "tile"]
            assert running.proposals.all()[0].can_undo
            running.proposals.undo(1, "Ann")
            assert [each.name for each in taught.detector.tasks()] == ["plate", "tile-1", "tile-2"]
            assert taught.history.changes("tile-1")[0].action == "undo"
