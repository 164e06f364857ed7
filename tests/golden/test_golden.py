"""Journals of every release so far fold for ever to what they folded to then."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from golden.make import HERE, HISTORIES, Exported, Golden, folded, lost, main, summary, whole
from holdfast.core.events import SCHEMA_VERSION, AnyEvent, StepStarted, StepWaiting
from holdfast.core.lifecycle import ENDS, TASK_MOVES
from holdfast.journal import codec
from holdfast.journal.bundle.read import read as read_bundle
from holdfast.journal.codec import CHAIN_START, Snapshot, decode, make_snapshot, open_snapshot, verify

JOURNALS = sorted(HERE.glob("v*/*.json"))
EXPORTS = sorted(HERE.glob("v*/*.export"))


def read(path: Path) -> Golden:
    return msgspec.json.decode(path.read_bytes(), type=Golden)


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_journal_verifies_and_folds_as_it_did(path: Path) -> None:
    journal = read(path)
    rows = journal.rows()
    assert verify(rows, 0, CHAIN_START).hex() == journal.digest
    # Older files also say how many percent were done: a figure for people, which is worked out and not folded.
    assert summary(folded(rows)) == {name: value for name, value in journal.summary.items() if name != "percent"}


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_journal_folds_to_all_that_it_folded_to_whatever_snapshots_look_like_now(path: Path) -> None:
    journal = read(path)
    state = folded(journal.rows())
    state.snapshot_seq = state.seq
    assert lost(msgspec.json.decode(journal.snapshot), whole(state)) == []


@pytest.mark.parametrize("change", ["missing", "other", "shorter"])
def test_a_fold_that_forgets_something_is_noticed(change: str) -> None:
    then = {"steps": {"a": {"effect": "once", "due_at": 7, "attempts": [1, 2]}}}
    now = {"missing": {"effect": "once", "attempts": [1, 2]}, "other": {**then["steps"]["a"], "due_at": 8}}
    changed = now.get(change, {**then["steps"]["a"], "attempts": [1]})
    assert lost(then, {"steps": {"a": {**then["steps"]["a"], "new": 1}}, "more": 2}) == []
    assert len(lost(then, {"steps": {"a": changed}})) == 1


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_an_engine_exported_is_read_and_folds_as_it_did(path: Path) -> None:
    exported = msgspec.json.decode(path.read_bytes(), type=Exported)
    bundle = read_bundle(exported.file.encode())
    states = {carried.state.id: whole(carried.state) for carried in bundle.executions}
    assert lost(exported.states, states) == []
    assert len(states) > 1


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_snapshot_is_either_passed_over_or_tells_what_the_events_tell(path: Path) -> None:
    journal = read(path)
    rows = journal.rows()
    state = folded(rows)
    digest = make_snapshot(state, rows[-1].digest)._replace(body=journal.snapshot.encode())
    opened = open_snapshot(_resealed(digest, journal.snapshot_version))
    if opened is not None:
        state.snapshot_seq = state.seq
        assert opened == state


def _resealed(snapshot: Snapshot, version: int) -> Snapshot:
    """The stored body under a digest of its own; what is tested is the shape, not the seal."""
    seal = codec._snapshot_digest(snapshot.seq, snapshot.chain, snapshot.body)  # pyright: ignore[reportPrivateUsage]
    return snapshot._replace(version=version, digest=seal)


def test_the_journals_of_this_version_hold_every_kind_of_event() -> None:
    current = [read(path) for path in JOURNALS if path.parent.name == f"v{SCHEMA_VERSION}"]
    seen = {type(decode(row)) for journal in current for row in journal.rows()}
    assert seen == set(AnyEvent.__args__)


def test_the_journals_of_this_version_hold_every_kind_of_program_step_and_status() -> None:
    current = [read(path) for path in JOURNALS if path.parent.name == f"v{SCHEMA_VERSION}"]
    states = [folded(journal.rows()) for journal in current]
    assert {state.facts().program.kind for state in states} == {"plan", "function"}
    assert {state.status for state in states} == {*ENDS, *(move.to for move in TASK_MOVES.values())}
    events = [decode(row) for journal in current for row in journal.rows()]
    kinds = {event.kind for event in events if isinstance(event, StepStarted | StepWaiting)}
    assert kinds >= {"tool", "for_each", "wait", "child", "code"}


def test_journals_that_exist_are_never_written_again(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in JOURNALS}
    main()
    assert capsys.readouterr().out.count("exists and stays as it is") == len(HISTORIES)
    assert {path: path.read_bytes() for path in JOURNALS} == before
