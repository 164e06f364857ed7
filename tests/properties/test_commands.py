"""Whatever a command carries and whatever state it meets, it gets a ruling, and what is ruled can be folded."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from core.histories import LONG, PAID, TO_STATUS, fold
from holdfast.core.commands import Arguments, Command, Ruling, Verb, rule
from holdfast.core.durations import DURATION_S_MAX, parse_duration, parse_moment
from holdfast.core.errors import InputInvalid
from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.core.inputs import INPUT_TYPES, InputSpec, check_inputs, parse_cli_input
from properties.strategies import examples, json_values, odd_values, outcome

VERBS: tuple[str, ...] = get_args(Verb)
AT = 200  # after everything in the histories

# Any state there is: every status, and every beginning of the history that holds every kind of event.
WHOLE = (*LONG, *PAID)
states = st.sampled_from(sorted(TO_STATUS)).map(lambda status: fold(TO_STATUS[status])) | st.integers(
    1, len(WHOLE)
).map(lambda count: fold(WHOLE[:count]))
_STEPS = st.sampled_from(
    ["", "publish", "mail", "late", "r1", "r2", "r3", "r4", "r5", "part", "kin", "sing", "nowhere", "pages[0]"]
)
_NAMED: dict[str, st.SearchStrategy[Any]] = {
    "step": _STEPS,
    "remedy": st.sampled_from(["done", "again", "verify", "skip", "fallback", "fail", "granted", "", "éé"]),
    "child_id": st.sampled_from(["c1", "c2", ""]),
    "status": st.sampled_from(["completed", "failed", "stopped", "flown", ""]),
    "until": st.none() | st.integers(-(2**63), 2**63 - 1),
    "count": st.integers(-5, 10**6),
    "name": st.text(max_size=5),
    "why": st.text(max_size=5),
    "sticky": st.booleans(),
    "data": json_values,
    "arguments": json_values,
    "forced": st.lists(st.text(max_size=3), max_size=2),
    "accepted": st.lists(st.just({"code": "folder", "was": "/a", "now": "/b"}), max_size=2),
    "pause_limit": st.booleans(),
    "failure": st.none() | st.just({"category": "tool", "message": "no"}),
    "limit_micros": st.none() | st.integers(-(2**40), 2**40),
    "add_micros": st.integers(-(2**40), 2**40),
    "spent_micros": st.none() | st.integers(-(2**40), 2**40),
    "unknown": st.integers(-5, 5),
}
sensible = st.fixed_dictionaries({}, optional=_NAMED).map(msgspec.json.encode)
senseless = (
    st.binary(max_size=40)
    | json_values.map(msgspec.json.encode)
    | st.dictionaries(st.sampled_from(sorted(_NAMED)), json_values).map(msgspec.json.encode)
)


def ruled(state: Execution, verb: str, arguments: bytes) -> Ruling:
    command = Command(id="c", execution_id="e1", verb=verb, at=AT, by="ann", arguments=Raw(arguments))  # pyright: ignore[reportArgumentType]
    before = msgspec.json.encode(state)
    ruling = rule(state, command, AT)
    assert msgspec.json.encode(state) == before, "ruling changed the state"
    assert ruling.outcome in ("applied", "unchanged", "refused")
    assert ruling.text.strip()
    return ruling


@examples(300)
@given(states, st.sampled_from([*VERBS, "fly"]), sensible | senseless)
def test_any_command_in_any_state_gets_a_ruling_that_can_be_folded(
    state: Execution, verb: str, arguments: bytes
) -> None:
    ruling = ruled(state, verb, arguments)
    assert (ruling.outcome == "applied") == bool(ruling.events) or ruling.outcome == "refused"
    for event in ruling.events:
        apply(state, event, state.seq + 1)
    again = ruled(state, verb, arguments)
    if ruling.outcome == "applied" and verb in ("pause", "interrupt", "stop", "approve", "deny", "answer"):
        assert again.outcome in ("unchanged", "refused"), f"a second {verb} did something"
        assert not again.events


@pytest.mark.parametrize("verb", VERBS)
def test_arguments_that_cannot_be_read_are_refused(verb: str) -> None:
    for arguments in (b"", b"\xff", b"[]", b'{"step": 1}', b'"\xff"', b"{", b"nul"):
        ruling = ruled(fold(TO_STATUS["running"]), verb, arguments)
        assert ruling.outcome == "refused"
        assert not ruling.events


def test_the_strategy_knows_every_argument() -> None:
    assert set(_NAMED) == {field for field in Arguments.__struct_fields__}


# ---- values that people type -----------------------------------------------------------------------------------


@examples(200)
@given(
    odd_values
    | st.lists(st.sampled_from(["1", "5", ".", "ms", "s", "m", "h", "d", "w", " ", "-", "e", "٣"])).map("".join)
)
def test_any_value_is_a_duration_within_its_bounds_or_refused(value: Any) -> None:
    try:
        assert 0 <= parse_duration(value) <= DURATION_S_MAX
    except InputInvalid as error:
        str(error).encode()


@examples(200)
@given(odd_values | st.datetimes().map(str) | st.text("0123456789-:TZ+. W", max_size=25))
def test_any_value_is_a_moment_or_refused(value: Any) -> None:
    try:
        assert abs(parse_moment(value)) < 2**63
    except InputInvalid as error:
        str(error).encode()


specs = st.builds(InputSpec, type=st.sampled_from(INPUT_TYPES), required=st.booleans(), default=json_values)  # pyright: ignore[reportArgumentType]


@examples(100)
@given(
    st.dictionaries(st.text(max_size=3), specs, max_size=3),
    st.dictionaries(st.text(max_size=3), odd_values, max_size=3),
)
def test_any_inputs_are_checked_without_a_stumble(declared: dict[str, InputSpec], given_: dict[str, Any]) -> None:
    values, problems = check_inputs(declared, given_)
    assert problems or set(values) == set(declared)
    assert all(problem.place.startswith("inputs.") and problem.message for problem in problems)


@examples(100)
@given(st.none() | specs, st.text(max_size=20) | json_values.map(lambda value: msgspec.json.encode(value).decode()))
def test_any_typed_text_is_an_input_or_refused(spec: InputSpec | None, text: str) -> None:
    read = outcome(lambda: parse_cli_input(spec, text), InputInvalid)
    assert not isinstance(read, InputInvalid) or str(read).strip()


@pytest.mark.parametrize("text", ["9" * 5000, "-" + "9" * 5000, "[" * 5000, "1e999", "NaN", "[Infinity]"])
@pytest.mark.parametrize("kind", INPUT_TYPES)
def test_numbers_beyond_any_use_and_endless_brackets_are_refused_or_text(kind: Any, text: str) -> None:
    read = outcome(lambda: parse_cli_input(InputSpec(type=kind), text), InputInvalid)
    assert not isinstance(read, InputInvalid) or str(read).strip()
