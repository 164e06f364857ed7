"""Every verb in every status: applied, unchanged or refused, with the words a person reads; and asking twice."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from msgspec import UNSET, Raw

from core.histories import BROKEN, CREATED, TO_STATUS, approval, fold, opened, running, step
from holdfast.core import events as ev
from holdfast.core.commands import (
    DATA_BYTES_MAX,
    MAILBOX_EVENTS_MAX,
    Command,
    Ruling,
    Verb,
    close_attempts,
    describe_reasons,
    encode_arguments,
    rule,
)
from holdfast.core.execution import Execution, Received
from holdfast.core.lifecycle import Status

DAY_US = 86_400_000_000


def over(status: str) -> str:
    from_step = " --from STEP" if status == "completed" else ""
    return f"the execution is {status}; to run it again: holdfast retry e1{from_step}"


ENDED = ("completed", "failed", "stopped")


def ask(state: Execution, verb: Verb, by: str = "bob", **arguments: Any) -> Ruling:
    command = Command(id="c1", execution_id=state.id, verb=verb, at=60, by=by, arguments=encode_arguments(**arguments))
    return rule(state, command, 70)


def names(ruling: Ruling) -> list[str]:
    return [ev.name_of(event) for event in ruling.events]


def carry_out(state: Execution, ruling: Ruling) -> Execution:
    return fold(ruling.events, state)


# ---- verb by status: what happens, in which words, with which events ----------------------------

PAUSED = ("applied", "paused; steps that are running finish first", ["task:paused"])
RESUMED = ("applied", "resumed", ["task:resumed", "task:started"])
INTERRUPTED = ("applied", "interrupted", ["task:interrupted"])
STOPPED = ("applied", "stopped", ["task:stopped"])
TABLE: dict[tuple[str, str], tuple[str, str, list[str]]] = {
    ("pause", "queued"): PAUSED,
    ("pause", "running"): PAUSED,
    ("pause", "waiting"): PAUSED,
    ("pause", "paused"): ("unchanged", "already paused by ann", []),
    ("pause", "interrupted"): ("unchanged", "already interrupted by ann", []),
    ("resume", "queued"): ("unchanged", "already queued", []),
    ("resume", "running"): ("unchanged", "already running", []),
    ("resume", "waiting"): (
        "unchanged",
        "waiting for an approval (publish); it goes on by itself when that arrives",
        [],
    ),
    ("resume", "paused"): RESUMED,
    ("resume", "interrupted"): RESUMED,
    ("interrupt", "queued"): INTERRUPTED,
    ("interrupt", "running"): INTERRUPTED,
    ("interrupt", "waiting"): INTERRUPTED,
    ("interrupt", "paused"): INTERRUPTED,
    ("interrupt", "interrupted"): ("unchanged", "already interrupted by ann", []),
    ("stop", "queued"): STOPPED,
    ("stop", "running"): STOPPED,
    ("stop", "waiting"): STOPPED,
    ("stop", "paused"): STOPPED,
    ("stop", "interrupted"): STOPPED,
    ("stop", "completed"): ("refused", "the execution is already completed; there is nothing to stop", []),
    ("stop", "failed"): ("refused", "the execution is already failed; there is nothing to stop", []),
    ("stop", "stopped"): ("unchanged", "already stopped by ann", []),
}
SAVED = ev.CheckpointSaved(at=1, file="e1.3.json", through=3, bytes=9)
for _status in get_args(Status):
    _is_over = _status in ENDED
    _again = ("refused", over(_status), list[str]())
    for _verb, _kinds in (
        ("approve", "approval"),
        ("deny", "approval"),
        ("answer", "question"),
        ("resolve", "doubt, correction or budget"),
    ):
        TABLE[_verb, _status] = _again if _is_over else ("refused", f"there is no open {_kinds} request", [])
    TABLE["send", _status] = _again if _is_over else ("applied", "received tide", ["event:received"])
    TABLE["budget", _status] = (
        _again if _is_over else ("refused", "it has no limit that could be raised; set one with --limit", [])
    )
    TABLE["child_ended", _status] = ("unchanged", "nobody waits for this child any more", [])
    TABLE["extend", _status] = (
        ("refused", f"the execution is {_status}; a plan can only be extended before its end", [])
        if _is_over
        else ("applied", "extended by 2 steps", ["plan:extended"])
    )
    TABLE["checkpoint", _status] = (
        ("unchanged", f"saved; the execution is {_status}, and its journal ends with that", [])
        if _is_over
        else ("applied", "saved up to event 3", ["checkpoint:saved"])
    )
    TABLE["undone", _status] = ("refused", 'there is no step "" in this execution', [])
    if _is_over:
        for _verb in ("pause", "resume", "interrupt"):
            TABLE[_verb, _status] = _again


def test_the_table_covers_every_verb_in_every_status() -> None:
    assert set(TABLE) == {(verb, status) for verb in get_args(Verb) for status in get_args(Status)}


@pytest.mark.parametrize(("verb", "status"), TABLE, ids=lambda value: value)
def test_what_a_command_does(verb: Verb, status: str) -> None:
    state = fold(TO_STATUS[status])
    data = Raw(msgspec.json.encode(SAVED)) if verb == "checkpoint" else UNSET
    ruling = ask(state, verb, name="tide", count=2, data=data)
    assert (ruling.outcome, ruling.text, names(ruling)) == TABLE[verb, status]
    assert state == fold(TO_STATUS[status])  # a ruling is only a proposal
    after = carry_out(state, ruling)  # and its events are legal where it was made
    if verb in ("pause", "resume", "interrupt", "stop") and ruling.outcome == "applied":
        again = ask(after, verb)
        assert (again.outcome, again.events) == ("unchanged", ())


def test_arguments_that_cannot_be_read_are_refused() -> None:
    for body in (b'{"why": 7}', b"{", b'{"why": "\xff"}'):
        command = Command(id="c1", execution_id="e1", verb="pause", at=1, arguments=Raw(body))
        ruling = rule(running(), command, 1)
        assert ruling.outcome == "refused"
        assert ruling.text.startswith("pause: the arguments cannot be read: ")


def test_more_data_than_a_command_may_carry_is_refused() -> None:
    ruling = ask(running(), "send", name="tide", data=Raw(b'"' + b"x" * DATA_BYTES_MAX + b'"'))
    limit_mb = DATA_BYTES_MAX // 1024**2
    text = f"send: more than {limit_mb} MB of data; put it in a file and send its path"
    assert ruling == Ruling(outcome="refused", text=text)


def test_a_command_of_a_newer_holdfast_is_refused_in_words() -> None:
    command = Command(id="c1", execution_id="e1", verb="levitate", at=1)  # pyright: ignore[reportArgumentType]
    ruling = rule(running(), command, 1)
    assert (ruling.outcome, ruling.text) == (
        "refused",
        "the driver's Holdfast does not know the command levitate; upgrade it",
    )


# ---- holding and going on ----------------------------


def test_a_pause_without_an_end_ends_after_thirty_days() -> None:
    [event] = ask(running(), "pause", why="lunch").events
    assert event == ev.TaskPaused(at=70, by="bob", why="lunch", until=70 + 30 * DAY_US, on_timeout="stop")


def test_a_pause_ends_when_the_plan_or_the_person_says() -> None:
    created = msgspec.structs.replace(CREATED, pause_timeout_s=2.0, on_pause_timeout="resume")
    state = fold([created, TO_STATUS["running"][1]])
    assert ask(state, "pause").events == (ev.TaskPaused(at=70, by="bob", until=2_000_070, on_timeout="resume"),)
    [event] = ask(state, "pause", until=99).events
    assert isinstance(event, ev.TaskPaused)
    assert event.until == 99


def test_an_execution_that_was_handed_in_on_hold_is_started_by_resume() -> None:
    state = fold([msgspec.structs.replace(CREATED, hold=True)])
    ruling = ask(state, "resume")
    assert (ruling.text, names(ruling)) == ("resumed", ["task:resumed", "task:started"])
    assert carry_out(state, ruling).status == "running"


def test_what_was_accepted_on_resume_is_remembered() -> None:
    state = fold(TO_STATUS["paused"])
    ruling = ask(state, "resume", forced=("the folder moved",))
    assert carry_out(state, ruling).accepted == ("the folder moved",)


@pytest.mark.parametrize("status", ["queued", "running", "waiting"])
def test_differences_can_be_accepted_without_a_pause(status: str) -> None:
    state = fold(TO_STATUS[status])
    ruling = ask(state, "resume", forced=("the folder moved",))
    assert (ruling.text, names(ruling)) == ("going on in spite of the differences", ["task:resumed"])
    after = carry_out(state, ruling)
    assert (after.status, after.accepted) == (status, ("the folder moved",))


@pytest.mark.parametrize(("verb", "word"), [("interrupt", "interrupted"), ("stop", "stopped")])
def test_what_is_cut_off_is_settled_by_its_effect(verb: Verb, word: str) -> None:
    state = running(
        step("mail", effect="once"),
        step("read", effect="read"),
        step("pages", kind="for_each"),
        ev.StepWaiting(at=6, path="nap", reason="timer"),
    )
    ruling = ask(state, verb)
    assert ruling.events[:2] == (
        ev.StepInDoubt(at=70, path="mail", why=f"{word} by bob while it ran"),
        ev.StepInterrupted(at=70, path="read", started_at=5, duration_us=65),
    )
    after = carry_out(state, ruling)
    assert {path: found.status for path, found in after.steps.items()} == {
        "mail": "in_doubt",
        "read": "interrupted",
        "pages": "running",
        "nap": "waiting",
    }
    assert after.status == word


def test_an_attempt_that_began_after_the_clock_went_back_has_no_negative_duration() -> None:
    [event] = close_attempts(running(step("a", at=500)), 70, "why")
    assert isinstance(event, ev.StepInterrupted)
    assert event.duration_us == 0


def test_nobody_is_named_when_nobody_is_known() -> None:
    state = running(ev.TaskPaused(at=3))
    assert ask(state, "pause").text == "already paused"
    [doubt, _] = ask(running(step("a", effect="once")), "stop", by="").events
    assert isinstance(doubt, ev.StepInDoubt)
    assert doubt.why == "stopped while it ran"


# ---- people answer ----------------------------


def asking(*requests: ev.Event) -> Execution:
    return running(ev.StepWaiting(at=6, path="publish", reason="approval"), *requests)


@pytest.mark.parametrize("meant", ["publish", "r1", ""])
def test_a_request_is_meant_by_its_step_its_id_or_by_being_the_only_one(meant: str) -> None:
    ruling = ask(asking(approval()), "approve", step=meant, why="fine", sticky=True)
    assert ruling.text == "approved publish"
    assert ruling.events == (ev.ApprovalGranted(at=70, request_id="r1", by="bob", why="fine", sticky=True),)


def test_arguments_can_be_edited_with_the_approval() -> None:
    ruling = ask(asking(approval()), "approve", arguments=Raw(b'{"path":"y"}'))
    assert ruling.text == "approved publish with edited arguments"
    [event] = ruling.events
    assert isinstance(event, ev.ApprovalGranted)
    assert event.arguments == Raw(b'{"path":"y"}')


def test_a_denial_says_why() -> None:
    ruling = ask(asking(approval()), "deny", step="publish", why="too early")
    assert (ruling.text, ruling.events) == (
        "denied publish",
        (ev.ApprovalDenied(at=70, request_id="r1", by="bob", why="too early"),),
    )


def test_the_same_answer_again_changes_nothing_and_another_is_refused() -> None:
    granted = asking(approval(), ev.ApprovalGranted(at=11, request_id="r1", by="ann"))
    assert ask(granted, "approve", step="publish") == Ruling(
        outcome="unchanged", text="publish was already granted by ann"
    )
    assert ask(granted, "deny", step="publish") == Ruling(outcome="refused", text="publish was already granted by ann")
    expired = asking(approval(), ev.ApprovalExpired(at=11, request_id="r1"))
    assert ask(expired, "approve", step="publish") == Ruling(outcome="refused", text="publish was already expired")


def test_with_several_open_requests_one_must_be_named() -> None:
    state = asking(approval(), approval("mail", "r2"))
    assert ask(state, "approve").text == "say which step: mail, publish"
    assert ask(state, "approve", step="nothing").text == "there is no approval request for nothing; open: mail, publish"
    assert ask(asking(), "approve", step="nothing").text == "there is no approval request for nothing"
    assert ask(state, "approve", step="mail").text == "approved mail"


def test_a_step_that_asks_for_nothing_says_how_it_stands() -> None:
    state = running(step("search"))
    assert ask(state, "approve", step="search").text == "step search is running; it has no open approval request"
    resolved = ask(state, "resolve", step="search", remedy="done")
    assert resolved.text == "step search is running; it has no open doubt, correction or budget request"
    assert resolved.outcome == "refused"


def test_a_question_is_answered_with_data() -> None:
    state = running(opened("question", "ask", "r1"))
    ruling = ask(state, "answer", step="ask", data=Raw(b'"yes"'))
    assert ruling.text == "answered ask"
    answered = ev.RequestAnswered(at=70, request_id="r1", remedy="answered", by="bob", data=Raw(b'"yes"'))
    assert ruling.events == (answered,)
    [empty] = ask(state, "answer").events
    assert isinstance(empty, ev.RequestAnswered)
    assert empty.data == Raw(b"null")
    assert ask(carry_out(state, ruling), "answer", step="ask").text == "ask was already answered by bob"


@pytest.mark.parametrize("kind", ["doubt", "correction"])
def test_a_doubt_or_correction_is_resolved_with_an_offered_remedy(kind: ev.RequestKind) -> None:
    state = running(step("mail", effect="once"), opened(kind, "mail", "r1", "done", "again", "skip"))
    refused = ask(state, "resolve", step="mail", remedy="fallback")
    assert refused == Ruling(outcome="refused", text="mail can be resolved with done, again, skip; not with fallback")
    ruling = ask(state, "resolve", step="mail", remedy="done", data=Raw(b"7"))
    assert ruling.text == "resolved mail: done"
    assert ruling.events == (ev.RequestAnswered(at=70, request_id="r1", remedy="done", by="bob", data=Raw(b"7")),)
    after = carry_out(state, ruling)
    assert ask(after, "resolve", step="mail", remedy="done").outcome == "unchanged"
    assert ask(after, "resolve", step="mail", remedy="again").text == 'mail was already settled with "done" by bob'


# ---- outside and family ----------------------------


def test_an_event_from_outside_is_kept_even_if_nobody_waits_yet() -> None:
    state = running()
    ruling = ask(state, "send", name="tide", data=Raw(b'{"m":3}'))
    assert ruling.events == (ev.EventReceived(at=70, name="tide", data=Raw(b'{"m":3}'), by="bob"),)
    assert list(carry_out(state, ruling).mailbox) == ["tide"]


def test_a_plan_is_extended_by_what_was_given() -> None:
    [event] = ask(running(), "extend", data=Raw(b'[{"id":"x"}]'), count=1).events
    assert event == ev.PlanExtended(at=70, steps=Raw(b'[{"id":"x"}]'), count=1, by="bob")


def test_a_childs_end_is_told_once() -> None:
    state = running(step("part", kind="child"), ev.ChildStarted(at=6, path="part", child_id="c9"))
    ruling = ask(state, "child_ended", child_id="c9", status="failed", failure=BROKEN)
    assert ruling.text == "child c9 failed"
    assert ruling.events == (ev.ChildEnded(at=70, path="part", child_id="c9", status="failed", failure=BROKEN),)
    again = ask(carry_out(state, ruling), "child_ended", child_id="c9", status="completed")
    assert again == Ruling(outcome="unchanged", text="the child's end is already known")


# ---- words ----------------------------


def test_reasons_are_told_in_words() -> None:
    reasons = [
        ev.Reason(kind="approval", path="publish"),
        ev.Reason(kind="event", path="w", name="tide"),
        ev.Reason(kind="timer"),
    ]
    state = running(ev.TaskWaiting(at=3, reasons=tuple(reasons)))
    assert describe_reasons(state) == "an approval (publish) and an event (tide) and time to pass"
    assert describe_reasons(running()) == "nothing"


@pytest.mark.parametrize("kind", get_args(ev.ReasonKind))
def test_every_reason_has_words(kind: ev.ReasonKind) -> None:
    assert describe_reasons(running(ev.TaskWaiting(at=3, reasons=(ev.Reason(kind=kind),)))) != "nothing"


def test_the_same_answer_after_the_step_went_on_changes_nothing_and_another_comes_too_late() -> None:
    state = running()
    request = ev.Request(id="publish#4", kind="approval", path="publish", message="go?", tool="t")
    waiting = ev.StepWaiting(at=80, path="publish", reason="approval", tool="t")
    fold([waiting, ev.ApprovalRequested(at=80, request=request)], state)
    carry_out(state, ask(state, "approve", by="ada", step="publish"))
    fold([ev.StepStarted(at=92, path="publish", tool="t")], state)
    again = ask(state, "approve", step="publish")
    assert (again.outcome, again.text) == ("unchanged", "publish was already granted by ada")
    other = ask(state, "deny", step="publish")
    assert (other.outcome, other.text) == ("refused", "publish was already granted by ada")


def test_a_mailbox_that_nobody_empties_is_full_one_day() -> None:
    state = running()
    state.mailbox["go"] = [Received(1, Raw(b"1"))] * MAILBOX_EVENTS_MAX
    ruling = ask(state, "send", name="go")
    assert (ruling.outcome, ruling.text) == (
        "refused",
        "1,000 events wait to be taken already; no step has asked for them",
    )
