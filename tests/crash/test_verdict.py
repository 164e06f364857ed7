"""Every rule of the verdict can be broken, and says so: a check that cannot fail is worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
from proof.crash_sweep.programs import Program
from proof.crash_sweep.report import Report, Seen, StepSeen, Survey
from proof.crash_sweep.verdict import judge
from proof.crash_sweep.world import Line

PROGRAM = Program(subject="a task")


def finished(parent: str = "p", child: str = "c") -> Survey:
    """A task that paid once, put something, started a child and was told something."""
    done = StepSeen(status="completed", output=1)
    return Survey(
        executions={
            parent: Seen(
                id=parent, status="completed", output=2, chain=["1", "2", "3"],
                children={"kid": (child, "completed", 3)},
                steps={"pay": deepcopy(done), "put": deepcopy(done), "kid": deepcopy(done)},
                happened=["event:received", "step:completed pay", "approval:granted r", "task:completed"],
            ),
            child: Seen(id=child, parent=parent, path="kid", status="completed", output=3, chain=["1"]),
        },
        ledger=[
            Line("seen", "started", [parent]),
            Line("once", f"{parent}:pay", 1),
            Line("idempotent", f"{parent}:put", 1),
            Line("seen", "answered", ["script-0", "applied", 2]),
            Line("seen", "ended", [parent]),
        ],
        answered={"script-0": "applied"},
    )  # fmt: skip


def judged(break_left: Callable[[Survey], object], break_found: Callable[[Survey], object]) -> list[str]:
    alone = Report(left=finished("other", "kid"), root="other")
    found, left = finished(), finished()
    break_left(left)
    break_found(found)
    return judge(PROGRAM, alone, [Report(found=found, left=left, root="p", survived=True)], deaths=1)


def untouched(survey: Survey) -> None:
    """Everything is as it should be."""


def test_task_that_ended_as_if_nobody_had_died_is_fine_whatever_its_ids() -> None:
    assert judged(untouched, untouched) == []


def test_step_that_a_person_interrupted_may_happen_once_more() -> None:
    def interrupt(left: Survey) -> None:
        left.executions["p"].happened.append("step:interrupted put")
        left.ledger[3:3] = [Line("idempotent", "p:put", 1)] * 2

    def unfinished(found: Survey) -> None:
        found.executions["p"].steps["put"].status = "running"
        found.ledger[3:3] = [Line("idempotent", "p:put", 1)]

    assert judged(interrupt, unfinished) == []


@pytest.mark.parametrize(
    ("harm", "finding"),
    [
        (lambda s: s.executions.pop("c"), "the executions: expected ['', 'kid'], got ['']"),
        (lambda s: s.executions.update(d=Seen(id="d", parent="p", path="kid")), "started more than one child"),
        (lambda s: setattr(s.executions["p"], "output", 9), "execution itself: its end"),
        (lambda s: s.executions["p"].steps.pop("put"), "execution itself: its steps"),
        (lambda s: setattr(s.executions["p"].steps["put"], "output", 9), "execution itself: step put"),
        (lambda s: s.executions["p"].happened.append("event:received"), "execution itself: what happened"),
        (lambda s: s.ledger.append(Line("once", "p:pay", 1)), ":pay is `once` and happened 2 times, not 1"),
        (lambda s: s.ledger.remove(Line("once", "p:pay", 1)), ":pay is `once` and happened 0 times, not 1"),
        (lambda s: s.ledger.remove(Line("idempotent", "p:put", 1)), ":put never happened"),
        (lambda s: s.ledger.extend([Line("idempotent", "p:put", 1)] * 2), ":put happened 3 times with 1 deaths"),
        (lambda s: s.answered.update({"script-0": "refused"}), "what became of the commands"),
        (lambda s: setattr(s.executions["p"], "driver", "d1"), "execution itself is completed, with the driver d1"),
        (lambda s: s.executions["c"].pending.append("x"), "execution kid: command x was never answered"),
        (lambda s: s.executions["p"].happened.append("step:completed pay"), "step:completed pay was recorded 2 times"),
        (lambda s: s.executions["p"].happened.append("approval:granted r"), "approval:granted r was recorded 2 times"),
        (lambda s: s.executions["p"].children.update(kid=("c", "failed", 3)), "the parent of kid knows (failed, 3)"),
        (lambda s: s.executions["p"].children.clear(), "an execution was started at kid, and its parent does not know"),
        (lambda s: s.executions["p"].children.update(kid=("z", "completed", 3)), "the child of kid is not there"),
        (lambda s: s.ledger.append(Line("seen", "answered", ["y", "queued", 0])), "command y was queued"),
        (lambda s: s.executions["p"].chain.insert(0, "0"), "the journal of p was rewritten"),
        (lambda s: s.ledger.append(Line("read", "p:put", 1)), "put had completed before the death and ran again"),
    ],
)  # fmt: skip
def test_whatever_is_wrong_at_the_end_is_said(harm: Callable[[Survey], object], finding: str) -> None:
    assert finding in "\n".join(judged(harm, untouched))


@pytest.mark.parametrize(
    ("harm", "finding"),
    [
        (lambda s: s.executions["p"].steps.pop("pay"), "pay had its effect before the journal knew that it began"),
        (lambda s: s.answered.clear(), "command script-0 was answered (applied), and the journal knows nothing of it"),
        (lambda s: setattr(s.executions["p"], "status", "running"), "the result was handed out"),
        (lambda s: s.executions.pop("p"), "the task was started, and the journal knows nothing of it"),
        (lambda s: setattr(s.executions["p"].steps["pay"], "output", 9), "pay, which had ended before the death"),
    ],
)
def test_whatever_was_forgotten_or_changed_by_a_death_is_said(harm: Callable[[Survey], object], finding: str) -> None:
    assert finding in "\n".join(judged(untouched, harm))


def test_life_that_does_not_end_or_fails_is_a_violation() -> None:
    alone, stuck = Report(left=finished()), finished()
    stuck.executions["c"].status = "waiting"
    assert judge(PROGRAM, alone, [Report(left=stuck, stuck=True)], 1)[0] == "stuck: {'kid': 'waiting'}"
    assert judge(PROGRAM, alone, [Report(trouble="an error")], 1) == ["a life failed: an error"]
