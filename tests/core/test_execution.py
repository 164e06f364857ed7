"""The fold: what each event does to the state, and that a state can be written down and gone on with anywhere."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from core.histories import (
    BROKEN,
    CREATED,
    ENDINGS,
    EVENT_TYPES,
    LIMITED,
    LONG,
    PAID,
    PRESSED,
    TO_STATUS,
    approval,
    fold,
    opened,
    running,
    step,
)
from holdfast.core import events as ev
from holdfast.core.errors import StoreCorrupted
from holdfast.core.execution import ATTEMPTS_KEPT, Execution, Received, parent_of, percent
from holdfast.core.fold import apply


def test_the_long_history_holds_every_kind_of_event() -> None:
    assert {type(event) for event in (*LONG, *PAID, *PRESSED, *ENDINGS)} == set(EVENT_TYPES)


WHOLE = (*LONG, *PAID, *PRESSED)


@given(cut=st.integers(0, len(WHOLE)), ending=st.sampled_from(ENDINGS))
def test_a_prefix_written_down_and_gone_on_with_is_the_whole(cut: int, ending: ev.Event) -> None:
    written = msgspec.json.encode(fold(WHOLE[:cut]))
    read = msgspec.json.decode(written, type=Execution)
    assert fold([*WHOLE[cut:], ending], read) == fold([*WHOLE, ending])


@pytest.mark.parametrize("seq", [1, 2, 4])
def test_numbers_without_a_gap_are_insisted_on(seq: int) -> None:
    state = running()
    with pytest.raises(StoreCorrupted, match=f"execution e1: event {seq} follows event 2; numbers must have no gaps"):
        apply(state, step("a"), seq)


def test_the_long_history_folds_to_what_people_see() -> None:
    state = fold(LONG)
    assert (state.status, state.title, state.seq) == ("running", "Report on tides", len(LONG))
    assert (state.total, state.ended, state.recoveries) == (8, 7, 1)
    assert {path: found.status for path, found in state.steps.items()} == {
        "search": "completed",
        "pages": "completed",
        "pages[0]": "failed",
        "pages[1]": "skipped",
        "publish": "completed",
        "tide": "completed",
        "part": "completed",
        "mail": "failed",
        "late": "skipped",
    }
    assert state.open_steps == set()
    assert state.requests == {}
    assert (state.sticky, state.accepted) == ({"files.write"}, ("tools changed",))
    assert state.mailbox == {"high": [Received(33, Raw(b"4"))]}
    assert (state.children["part"].status, state.children["part"].failure) == ("failed", BROKEN)
    assert [bytes(added) for added in state.extensions] == [b'[{"id":"mail"}]']


def test_attempts_tell_how_each_try_went() -> None:
    tries = fold(LONG).steps["search"].attempts
    assert [(one.number, one.outcome, one.category) for one in tries] == [
        (1, "failed", "transient"),
        (2, "lost", None),
        (3, "completed", None),
    ]
    assert (tries[0].message, tries[0].started_at, tries[0].ended_at, tries[0].duration_us) == ("no answer", 5, 7, 2)


def test_doubts_in_a_row_are_counted_beyond_the_attempts_that_are_kept() -> None:
    doubtful = [
        event
        for number in range(1, ATTEMPTS_KEPT + 11)
        for event in (
            step("a", attempt=number, at=number, effect="once"),
            ev.StepInDoubt(at=number, path="a", why="lost", attempt=number),
        )
    ]
    assert running(*doubtful).steps["a"].doubts == ATTEMPTS_KEPT + 10
    lost = [step("a", attempt=number, at=99) for number in (91, 92)]
    assert running(*doubtful, *lost).steps["a"].doubts == ATTEMPTS_KEPT + 11  # what runs now is no doubt yet
    known = ev.StepInterrupted(at=99, path="a", attempt=92)
    assert running(*doubtful, *lost, known).steps["a"].doubts == 0


def test_an_execution_is_shaky_from_a_death_until_a_step_has_ended() -> None:
    recovered = ev.TaskRecovered(at=2, driver="b", lost="a")
    ended = ev.StepCompleted(at=3, path="a", attempt=1)
    assert not running(step("a")).is_shaky
    assert running(step("a"), recovered).is_shaky
    assert not running(step("a"), recovered, ended).is_shaky


def test_only_so_many_attempts_are_kept_the_first_and_the_newest() -> None:
    count = ATTEMPTS_KEPT + 10
    state = running(*(step("a", attempt=number, at=number) for number in range(1, count + 1)))
    numbers = [one.number for one in state.steps["a"].attempts]
    assert len(numbers) == ATTEMPTS_KEPT
    assert (numbers[0], numbers[-1]) == (1, count)
    assert numbers[1:] == list(range(count - ATTEMPTS_KEPT + 2, count + 1))


def test_containers_have_no_attempts_but_count_their_children() -> None:
    state = running(step("pages", kind="for_each", total=4), step("pages[0]"), ev.StepCompleted(at=6, path="pages[0]"))
    pages = state.steps["pages"]
    assert (pages.attempts, pages.total, pages.ended, state.ended) == ((), 4, 1, 0)


def test_arguments_are_dropped_when_a_step_ends() -> None:
    state = running(step("a", arguments=Raw(b'{"x":1}')))
    assert state.steps["a"].arguments == Raw(b'{"x":1}')
    apply(state, ev.StepCompleted(at=6, path="a", output=Raw(b"2"), cached=True), 4)
    found = state.steps["a"]
    assert (found.arguments, found.output, found.cached, found.ended_at) == (msgspec.UNSET, Raw(b"2"), True, 6)


def test_retries_and_rate_limits_are_counted_apart() -> None:
    def retrying(failure: object = BROKEN, **values: object) -> ev.StepRetrying:
        return ev.StepRetrying(at=6, path="a", failure=failure, due_at=9, **values)  # pyright: ignore[reportArgumentType]

    state = running(step("a"), retrying(), step("a"), retrying(LIMITED), step("a"), retrying(reduced=True))
    found = state.steps["a"]
    assert (found.retries, found.rate_limit_waits, found.reduced, found.due_at) == (1, 1, True, 9)
    fold([step("a", reduced=True), retrying(reduced=True, fallback=1)], state)
    assert (found.retries, found.fallback, found.status) == (0, 1, "retrying")
    fold([step("a", fallback=1)], state)
    assert (found.due_at, found.fallback, found.status) == (None, 1, "running")


def test_retries_after_a_refresh_are_counted_and_the_refresh_is_not() -> None:
    refreshed = ev.StepRetrying(at=6, path="a", failure=BROKEN, due_at=9, refreshed=True)
    state = running(step("a"), refreshed)
    assert state.steps["a"].retries == 0
    for count in (1, 2):
        fold([step("a", refreshed=True), refreshed], state)
        assert state.steps["a"].retries == count


def test_a_request_belongs_to_its_step_until_the_step_goes_on() -> None:
    state = running(ev.StepWaiting(at=6, path="publish", reason="approval"), approval())
    assert [asked.request.id for asked in state.open_requests()] == ["r1"]
    assert state.steps["publish"].request_id == "r1"
    apply(state, ev.ApprovalGranted(at=7, request_id="r1", by="ann", why="ok", arguments=Raw(b"{}")), state.seq + 1)
    asked = state.requests["r1"]
    assert (asked.answered, asked.remedy, asked.by, asked.why, asked.data) == (True, "granted", "ann", "ok", Raw(b"{}"))
    assert list(state.open_requests()) == []
    apply(state, step("publish"), state.seq + 1)
    assert (state.requests, state.steps["publish"].request_id) == ({}, "")


def test_a_request_without_a_step_is_kept_as_well() -> None:
    state = running(opened("question", "ask", "r1"))
    assert [asked.request.path for asked in state.open_requests()] == ["ask"]


def test_a_doubt_shows_the_failure_it_is_about() -> None:
    request = ev.Request(id="r1", kind="correction", path="a", message="?", failure=BROKEN)
    state = running(step("a"), ev.RequestOpened(at=6, request=request))
    assert state.steps["a"].failure == BROKEN


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ev.ApprovalGranted(at=9, request_id="r9", sticky=True), "an answer to request r9, which is not open"),
        (ev.ApprovalDenied(at=9, request_id="r9"), "an answer to request r9, which is not open"),
        (ev.ApprovalExpired(at=9, request_id="r9"), "an answer to request r9, which is not open"),
        (ev.RequestAnswered(at=9, request_id="r1"), "an answer to request r1, which is not open"),
        (ev.StepNoted(at=9, path="b", data=Raw(b"1")), "step:noted for b, which never started"),
        (ev.StepLogged(at=9, path="b", log=ev.Blob(digest="ab", bytes=1)), "step:logged for b, which never started"),
        (ev.StepDiverged(at=9, path="b", recorded="1", attempted="2"), "step:diverged for b, which never started"),
        (ev.ChildEnded(at=9, path="b", child_id="c", status="failed"), "child:ended for c, which b never started"),
    ],
)
def test_what_refers_to_nothing_is_refused_and_changes_nothing(event: ev.Event, text: str) -> None:
    history = [CREATED, TO_STATUS["running"][1], approval("a"), ev.ApprovalDenied(at=5, request_id="r1")]
    state = fold(history)
    with pytest.raises(StoreCorrupted, match=f"execution e1: {text}"):
        apply(state, event, 5)
    assert state == fold(history)


def test_a_child_ends_only_as_the_one_that_was_started() -> None:
    state = running(ev.ChildStarted(at=3, path="part", child_id="c1"))
    with pytest.raises(StoreCorrupted, match="child:ended for c2, which part never started"):
        apply(state, ev.ChildEnded(at=4, path="part", child_id="c2", status="completed"), 4)


def test_events_from_outside_are_kept_in_order_until_taken() -> None:
    state = running(*(ev.EventReceived(at=3, name="tide", data=Raw(b"%d" % n)) for n in (1, 2)))
    wait = ev.StepWaiting(at=4, path="w", reason="event", name="tide", kind="wait")
    fold([wait, ev.StepCompleted(at=5, path="w", consumed=3)], state)
    assert state.mailbox == {"tide": [Received(4, Raw(b"2"))]}
    fold([msgspec.structs.replace(wait, path="v"), ev.StepCompleted(at=6, path="v", consumed=4)], state)
    assert state.mailbox == {}


def test_a_pause_is_told_with_who_why_and_until_when_and_forgotten_when_it_ends() -> None:
    state = fold(TO_STATUS["paused"])
    assert (state.by, state.why, state.pause_until) == ("ann", "lunch", 50)
    fold([ev.TaskPauseExpiring(at=40, due_at=50, then="stop")], state)
    assert state.pause_announced
    fold([ev.TaskResumed(at=41, by="bob"), ev.TaskStarted(at=41, because="resumed")], state)
    assert (state.by, state.why, state.pause_until, state.pause_announced) == ("", "", None, False)


def test_the_first_start_is_the_start() -> None:
    state = running(ev.TaskPaused(at=9), ev.TaskStarted(at=10, because="resumed"))
    assert state.started_at == 2


@pytest.mark.parametrize("ending", ENDINGS, ids=ev.name_of)
def test_an_end_closes_requests_and_mailbox(ending: ev.Event) -> None:
    state = running(approval(), ev.EventReceived(at=3, name="x"), ending)
    assert (state.is_ended, state.ended_at) == (True, 102)
    assert (state.requests, state.mailbox) == ({}, {})


def test_ends_hold_their_results() -> None:
    assert fold(TO_STATUS["completed"]).output == Raw(b"42")
    failed = fold(TO_STATUS["failed"])
    assert (failed.failure, failed.failed_path) == (BROKEN, "search")
    assert fold(TO_STATUS["stopped"]).by == "ann"


def test_the_clock_of_an_execution_never_goes_back() -> None:
    assert running(ev.TaskRecovered(at=90, driver="d2"), ev.TaskRecovered(at=7, driver="d3")).last_at == 90


def test_running_steps_are_those_to_settle_after_a_crash() -> None:
    state = running(step("b"), step("a"), ev.StepWaiting(at=6, path="w", reason="timer"), step("done"))
    fold([ev.StepCompleted(at=7, path="done")], state)
    assert [found.path for found in state.running_steps()] == ["a", "b"]
    assert state.open_steps == {"a", "b", "w"}


def test_percent_counts_ended_steps_and_the_share_of_running_milestones() -> None:
    created = msgspec.structs.replace(CREATED, total=4)
    state = fold([created, TO_STATUS["running"][1]])
    assert percent(state) == 0.0
    fold([step("a"), ev.StepCompleted(at=6, path="a"), step("m", kind="plan", total=2)], state)
    assert percent(state) == 25.0
    fold([step("m/x"), ev.StepCompleted(at=7, path="m/x"), step("m/y", kind="plan", total=2)], state)
    assert percent(state) == 37.5
    assert percent(running(step("a"))) == 0.0  # no total: a function finds its steps as it goes
    assert percent(fold([ev.TaskCompleted(at=9)], state)) == 100.0


def test_percent_stops_at_a_hundred() -> None:
    created = msgspec.structs.replace(CREATED, total=1)
    state = fold([created, TO_STATUS["running"][1]])
    for path in ("a", "b"):
        fold([step(path), ev.StepCompleted(at=6, path=path)], state)
    assert percent(state) == 100.0


@pytest.mark.parametrize(
    ("path", "parent"),
    [("a", ""), ("a/b", "a"), ("a/b[3]", "a/b"), ("pages[k/1]", "pages"), ("pages[7]/fetch~2", "pages[7]")],
)
def test_the_parent_of_a_path(path: str, parent: str) -> None:
    assert parent_of(path) == parent
