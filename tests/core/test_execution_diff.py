"""Two executions side by side, as pure values."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from core.histories import BROKEN, step
from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.core.execution_diff import Comparison, Difference, Side, compare, places, side_of
from holdfast.core.fold import apply


def side(*events: ev.Event, inputs: bytes = b"{}", name: str = "report", source: bytes = b"{}") -> Side:
    created = ev.TaskCreated(at=1, program=ev.Program(kind="plan", name=name, source=Raw(source)), inputs=Raw(inputs))
    whole = [created, ev.TaskStarted(at=2, because="created"), *events]
    state = Execution(id=name)
    for seq, event in enumerate(whole, 1):
        apply(state, event, seq)
    return side_of(state, whole)


def done(path: str, output: bytes = b"1", at: int = 9, **more: Any) -> list[ev.Event]:
    return [step(path, at=5, **more), ev.StepCompleted(at=at, path=path, output=Raw(output))]


def differences(a: Side, b: Side) -> list[tuple[str, str]]:
    return [(one.path, one.what) for one in compare(a, b).differences]


def test_the_same_is_the_same_whatever_the_order_of_keys() -> None:
    a = side(*done("x", b'{"a":1,"b":2}'), inputs=b'{"p":1,"q":2}')
    b = side(*done("x", b'{"b": 2, "a": 1}', at=10), inputs=b'{"q":2,"p":1}')
    assert compare(a, b) == Comparison([], [])


def test_program_document_inputs_status_output_and_error_of_the_whole() -> None:
    a = side(ev.TaskCompleted(at=9, output=Raw(b"1")), inputs=b'{"a":1}')
    b = side(ev.TaskError(at=9, failure=BROKEN), name="other", source=b'{"x":1}')
    assert [what for _, what in differences(a, b)] == ["program", "document", "inputs", "status", "output", "error"]


def test_steps_of_one_side_only() -> None:
    found = compare(side(*done("x"), *done("y")), side(*done("y"), *done("z"))).differences
    assert found == [Difference("x", "step", "completed", None), Difference("z", "step", None, "completed")]


def test_steps_that_differ_by_status_tool_arguments_output_attempts_and_error() -> None:
    a = side(*done("x", arguments=Raw(b'{"q":1}')))
    b = side(
        step("x", tool="other", attempt=2, arguments=Raw(b'{"q":2}')), ev.StepFailed(at=9, path="x", failure=BROKEN)
    )
    assert differences(a, b) == [
        ("x", "status"), ("x", "tool"), ("x", "output"), ("x", "error"), ("x", "attempts"), ("x", "arguments"),
    ]  # fmt: skip


def test_places_lead_to_what_differs_and_to_what_one_side_lacks() -> None:
    a = {"name": "x", "steps": [{"id": "a", "with": {"n": 1}}, {"id": "b"}]}
    b = {"name": "x", "steps": [{"id": "a", "with": {"n": "1"}, "retry": 3}]}
    assert list(places(a, b)) == [
        ("steps[0].with.n", 1, "1"), ("steps[0].retry", None, 3), ("steps[1]", {"id": "b"}, None),
    ]  # fmt: skip
    assert list(places(a, a)) == []


def test_only_a_striking_duration_is_told_and_it_makes_no_difference() -> None:
    quick, slow = side(*done("x", at=1_000_005)), side(*done("x", at=4_000_005))
    assert compare(quick, slow) == Comparison([], [Difference("x", "duration", 1_000_000, 4_000_000)])
    assert compare(quick, side(*done("x", at=1_900_005))) == Comparison([], [])
