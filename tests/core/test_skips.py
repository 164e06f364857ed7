"""Why a step was skipped is a code; journals from before there were codes are understood by their texts."""

from __future__ import annotations

from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.core.fold import apply


def folded(skipped: ev.StepSkipped) -> Execution:
    state = Execution(id="x")
    created = ev.TaskCreated(at=1, program=ev.Program(kind="plan", name="p"))
    for seq, event in enumerate([created, ev.TaskStarted(at=1, because="created"), skipped], 1):
        apply(state, event, seq)
    return state


def test_skip_of_an_old_journal_gets_its_code_from_its_text() -> None:
    old = ev.StepSkipped(at=2, path="a", reason='its tool is not there: no tool called "not.here"')
    assert folded(old).steps["a"].skip_code == "tool_missing"
    assert folded(ev.StepSkipped(at=2, path="a", reason="another item failed")).steps["a"].skip_code == ""


def test_code_counts_whatever_the_text_says() -> None:
    skipped = ev.StepSkipped(at=2, path="a", reason="its tool is not there", code="condition_false")
    assert folded(skipped).steps["a"].skip_code == "condition_false"
