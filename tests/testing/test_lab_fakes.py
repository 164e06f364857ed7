"""Fake tools: what they answer, what they remember, and how they stand in for real ones."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.core.errors import InputInvalid, SettingsInvalid
from holdfast.testing import Lab, LabError

FAST = holdfast.StepPolicy(retry=holdfast.Retry(first_s=1.0))


@holdfast.tool(effect="idempotent", requires=["env:NO_SUCH_VARIABLE"], retry=2)
async def send(to: str, copies: int = 1) -> str:
    raise AssertionError("the real tool was called")


@holdfast.function
async def write(ctx: holdfast.Context, to: str = "ada") -> str:
    return await ctx.call(send, to)


def plan(**arguments: Any) -> dict[str, Any]:
    return {"name": "p", "steps": [{"id": "s", "tool": "send", "with": arguments}]}


def test_a_fake_returns_what_it_is_told(lab: Lab) -> None:
    fake = lab.fake(send, returns="sent")
    assert lab.run(write).output == "sent"
    call = fake.calls[0]
    assert (call.tool, call.path, call.arguments, call.attempt, call.ended) == (
        "send", "send", {"to": "ada"}, 1, "returned",
    )  # fmt: skip
    assert call.key == f"{call.execution_id}:send"


def test_a_fake_raises_one_error_per_call_and_then_answers(lab: Lab) -> None:
    fake = lab.fake(send, raises=[holdfast.Transient("down"), holdfast.RateLimited], returns="sent")
    outcome = lab.run(write)
    assert outcome.output == "sent"
    assert [(call.attempt, call.ended, call.error) for call in fake.calls] == [
        (1, "raised", "Transient: down"),
        (2, "raised", "RateLimited: The other side asked to come back later."),
        (3, "returned", ""),
    ]
    assert outcome.seconds > 30  # a rate limit that does not say how long


def test_a_fake_that_always_raises_makes_the_step_fail_after_its_retries(lab: Lab) -> None:
    fake = lab.fake(send, raises=holdfast.Transient("down"))
    assert lab.run(write).status == "failed"
    assert len(fake.calls) == 3


def test_a_fake_does_what_a_function_does(lab: Lab) -> None:
    async def answer(to: str, call: holdfast.Call) -> str:
        return f"{call.path} to {to} at {lab.now:%H:%M}"

    lab.fake(send, does=answer, takes="30m")
    assert lab.run(write).output == "send to ada at 08:30"


def test_every_run_begins_with_fresh_fakes(lab: Lab) -> None:
    fake = lab.fake(send, raises=[holdfast.Transient("down")], returns="sent")
    assert [len(fake.calls) for _ in range(2) if lab.run(write)] == [2, 2]


def test_a_fake_of_a_real_tool_checks_arguments_like_it(lab: Lab) -> None:
    lab.fake(send, returns="sent")
    with pytest.raises(holdfast.HoldfastError, match='no such argument; did you mean "to"'):
        lab.run(plan(too="ada"))
    with pytest.raises(holdfast.HoldfastError, match="copies"):
        lab.run(plan(to="ada", copies="many"))


def test_a_fake_of_a_real_tool_checks_its_answer_like_it(lab: Lab) -> None:
    lab.fake(send, returns=17)
    failure = lab.run(write).failure
    assert failure is not None
    assert "send returned something else than it declares" in failure["message"]
    assert failure["message"].endswith("; that came from your fake: correct its returns= or does=")


def test_a_fake_takes_the_effect_of_the_real_tool_unless_told_otherwise(lab: Lab) -> None:
    lab.fake(send, returns="x")
    assert lab.run(write).steps["send"]["effect"] == "idempotent"
    other = Lab()
    other.fake(send, returns="x", effect="once")
    assert other.run(write).steps["send"]["effect"] == "once"


def test_a_fake_by_name_stands_in_for_the_tool_a_function_holds(lab: Lab) -> None:
    lab.fake("send", returns="sent")
    outcome = lab.run(write)
    assert outcome.output == "sent"
    assert outcome.steps["send"]["effect"] == "idempotent"


def test_a_fake_by_name_alone_takes_any_arguments_and_counts_as_once(lab: Lab) -> None:
    fake = lab.fake("send", returns="sent")
    outcome = lab.run(plan(to="ada", colour="blue"))
    assert fake.calls[0].arguments == {"to": "ada", "colour": "blue"}
    assert outcome.steps["s"]["effect"] == "once"


def test_a_function_as_a_fake_lends_its_signature(lab: Lab) -> None:
    lab.fake("send", does=lambda to: to)
    with pytest.raises(holdfast.HoldfastError, match="no such argument"):
        lab.run(plan(colour="blue"))
    other = Lab()
    other.fake("send", does=lambda **given: sorted(given))
    assert other.run(plan(b=1, a=2)).output == ["a", "b"]


def test_a_fake_whose_parameters_are_unknown_takes_no_arguments_by_position(lab: Lab) -> None:
    @holdfast.function
    async def by_name(ctx: holdfast.Context) -> None:
        await ctx.call("send", "ada")

    lab.fake("send")
    failure = lab.run(by_name).failure
    assert failure is not None
    assert failure["message"] == "the fake send does not know its parameters; name the arguments"


def test_an_idempotent_fake_gives_the_same_answer_for_the_same_key(lab: Lab) -> None:
    answers = iter(range(100))
    fake = lab.fake("count", does=lambda: next(answers), effect="idempotent")
    outcome = lab.run({"name": "p", "steps": [{"id": "c", "tool": "count"}]}, crash_at="after:count")
    assert (outcome.output, len(fake.calls)) == (0, 2)


def test_what_a_real_tool_needs_on_the_machine_its_fake_does_not(lab: Lab) -> None:
    lab.fake(send, returns="sent")
    assert lab.run(plan(to="ada")).status == "completed"


def test_the_hooks_of_a_real_tool_do_not_run(lab: Lab) -> None:
    ran: list[str] = []

    @holdfast.tool(effect="once", in_doubt="verify")
    async def pay() -> str:
        raise AssertionError

    @pay.verify
    async def really(call: holdfast.Call, arguments: dict[str, Any]) -> Any:
        ran.append("verify")

    @pay.refresh
    async def renew(call: holdfast.Call, arguments: dict[str, Any]) -> None:
        ran.append("refresh")

    @holdfast.function
    async def pay_once(ctx: holdfast.Context) -> str:
        return await ctx.call(pay)

    fake = lab.fake(pay, raises=[holdfast.NotPermitted("expired")], returns="paid")
    outcome = lab.run(pay_once, crash_at="after:pay")
    assert (outcome.output, outcome.doubts, len(fake.calls), ran) == ("paid", ["pay"], 2, [])
    assert lab.run(pay_once, crash_at=["before:pay", "before:pay"]).output == "paid"


def test_a_function_as_a_fake_gets_what_the_real_tool_would_have_filled_in(lab: Lab) -> None:
    fake = lab.fake(send, does=lambda to, copies: f"{copies} to {to}")
    assert lab.run(write).output == "1 to ada"
    assert fake.calls[0].arguments == {"to": "ada"}
    assert lab.run(plan(to="ada", copies=3)).output == "3 to ada"
    lab.fake(send, does=lambda to, copies=7: f"{copies} to {to}", replace=True)
    assert lab.run(write).output == "7 to ada"


def test_a_fake_may_take_the_place_of_one_from_a_fixture(lab: Lab) -> None:
    first = lab.fake(send, returns="sent")
    second = lab.fake(send, returns="kept", replace=True)
    assert lab.run(write).output == "kept"
    assert (len(first.calls), len(second.calls)) == (0, 1)
    with pytest.raises(LabError, match='there is no fake of sned to replace; did you mean "send"'):
        lab.fake("sned", replace=True)


def test_a_plan_whose_tool_was_not_faked_says_how_to(lab: Lab) -> None:
    lab.fake("sned")
    with pytest.raises(holdfast.HoldfastError) as error:
        lab.run(plan(to="ada"))
    assert 'no tool called "send"; did you mean "sned"?; in the lab, lab.fake("send", returns=…)' in str(error.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"effect": "twice"}, "the fake send: effect= is one of read, idempotent, once, not 'twice'"),
        ({"effect": "onec"}, 'did you mean "once"'),
        ({"raises": "down"}, "raises= takes errors, one or a list"),
        ({"raises": [holdfast.Transient("x"), "down"]}, "not 'down'"),
        ({"raises": int}, "raises= takes errors"),
    ],
)
def test_a_fake_that_cannot_work_is_refused_where_it_is_made(lab: Lab, options: dict[str, Any], text: str) -> None:
    with pytest.raises(LabError) as error:
        lab.fake("send", **options)
    assert text in str(error.value)
    lab.fake("send")  # nothing is left of the one that was refused


def test_limits_are_recorded_and_checked_as_those_of_the_engine(lab: Lab) -> None:
    lab.fake("send", returns="sent")
    plan = {"name": "p", "steps": [{"id": "a", "tool": "send"}]}
    outcome = lab.run(plan, resources={"memory": "1GB", "total": {"cpu": "10m"}})
    created = outcome.events[0]
    assert outcome.output == "sent"
    assert (created["resources"]["memory_bytes"], created["resources_total"]["cpu_s"]) == (10**9, 600.0)
    with pytest.raises(InputInvalid, match=r'resources\.memry: unknown key; did you mean "memory"\?'):
        lab.run(plan, resources={"memry": "1GB"})


def test_mistakes_about_fakes_are_named(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"lab\.fake takes a tool or the name of one, not 5"):
        lab.fake(5)  # type: ignore[arg-type]
    with pytest.raises(LabError, match="does= takes a function, not 3; returns= takes a value"):
        lab.fake("send", does=3)  # type: ignore[arg-type]
    lab.fake("mail")
    with pytest.raises(LabError, match="the fake both: does= says what it returns, so leave out one of"):
        lab.fake("both", returns=None, does=lambda: 3)
    with pytest.raises(LabError, match="there is a fake of mail already"):
        lab.fake("mail")
    assert repr(lab.fake("other")) == "<fake other, called 0 times>"


def test_a_fake_can_check_nothing_that_the_real_tool_cannot() -> None:
    @holdfast.tool(effect="once", in_doubt="verify")
    async def pay() -> str:
        return "paid"

    lab = Lab()
    lab.fake(pay, returns="paid")
    with pytest.raises(SettingsInvalid, match="needs a check"):
        lab.run({"name": "p", "steps": [{"id": "a", "tool": "pay"}]})
