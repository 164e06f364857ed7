"""The lab, as a test uses it: programs in virtual time, and an outcome that tells what became of them."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import Lab, LabError

ORDER = {
    "name": "order",
    "inputs": {"amount": "number"},
    "steps": [
        {"id": "charge", "tool": "charge", "with": {"amount": "${{ inputs.amount }}"}},
        {"id": "cool_down", "wait": "30d"},
        {"id": "mail", "tool": "mail", "with": {"text": "${{ steps.charge.output }}"}},
    ],
    "output": "${{ steps.mail.output }}",
}


@holdfast.tool(effect="read")
async def double(value: int) -> int:
    await asyncio.sleep(50)
    return 2 * value


@holdfast.function
async def quadruple(ctx: holdfast.Context, value: int) -> int:
    return await ctx.call(double, await ctx.call(double, value))


def test_a_plan_runs_with_fakes_and_a_month_passes_at_once(lab: Lab) -> None:
    charge = lab.fake("charge", returns="paid", effect="once")
    lab.fake("mail", returns="sent")
    outcome = lab.run(ORDER, inputs={"amount": 3})
    assert (outcome.status, outcome.output) == ("completed", "sent")
    assert [call.arguments for call in charge.calls] == [{"amount": 3}]
    assert 30 * 86400 <= outcome.seconds < 30 * 86400 + 1
    assert lab.now == datetime(2027, 2, 14, 8, tzinfo=UTC)


def test_a_plan_file_runs(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text("name: hello\nsteps: [{id: say, tool: say, with: {text: hi}}]\n")
    lab.fake("say", does=lambda text: f"said {text}")
    assert lab.run(str(tmp_path / "hello.yaml")).output == "said hi"
    assert lab.run(tmp_path / "hello.yaml").output == "said hi"


def test_a_function_runs_with_the_real_tools_that_were_handed_over(lab: Lab) -> None:
    lab.use(double)
    outcome = lab.run(quadruple, inputs={"value": 3})
    assert (outcome.output, outcome.seconds) == (12, 100)
    assert [(call.path, call.arguments, call.output) for call in outcome.calls] == [
        ("double", {"value": 3}, 6),
        ("double~2", {"value": 6}, 12),
    ]
    assert outcome.calls_of("double~2")[0].attempt == 1


@pytest.mark.parametrize("where", ["step", "plan", "total"])
def test_a_real_tool_runs_in_the_lab_also_where_it_would_be_held_to_limits(lab: Lab, where: str) -> None:
    lab.use(double)
    limits = {"memory": "500MB"}
    said = {"step": {}, "plan": {"resources": limits}, "total": {"resources": {"total": limits}}}[where]
    own = {"resources": limits} if where == "step" else {}
    outcome = lab.run({"name": "p", "steps": [{"id": "s", "tool": "double", "with": {"value": 2}, **own}], **said})
    assert (outcome.output, outcome.seconds) == (4, 50)


def test_an_outcome_tells_events_and_steps_as_the_command_line_does(lab: Lab) -> None:
    lab.fake(double, returns=5)
    outcome = lab.run(quadruple, inputs={"value": 1})
    assert outcome.names("step:") == ["step:started", "step:completed"] * 2
    assert outcome.events[0]["type"] == "task:created"
    assert outcome.steps["double"]["output"] == 5
    assert (outcome.failure, outcome.requests, outcome.doubts, outcome.crashes) == (None, [], [], [])


def test_a_failed_execution_has_a_failure_and_no_output(lab: Lab) -> None:
    lab.fake(double, raises=holdfast.InvalidCall("no such number"))
    outcome = lab.run(quadruple, inputs={"value": 1})
    assert outcome.failure is not None
    assert outcome.failure["category"] == "logic"
    with pytest.raises(LabError, match="there is no output: the execution is failed: no such number"):
        _ = outcome.output


def test_mistakes_in_a_program_or_its_inputs_are_raised_as_they_are(lab: Lab) -> None:
    with pytest.raises(holdfast.HoldfastError, match="no tool called"):
        lab.run(ORDER, inputs={"amount": 3})
    with pytest.raises(holdfast.HoldfastError, match="value: is missing"):
        lab.run(quadruple)


def test_children_run_too_and_have_outcomes_of_their_own(lab: Lab) -> None:
    @holdfast.function
    async def parent(ctx: holdfast.Context) -> int:
        child = await ctx.start(quadruple, {"value": 2})
        return await child.result()

    lab.fake(double, returns=7)
    outcome = lab.run(parent)
    assert outcome.output == 7
    assert [(child.status, len(child.calls)) for child in outcome.children] == [("completed", 2)]
    assert outcome.calls == []


def test_a_child_that_is_started_by_name_must_be_handed_over(lab: Lab) -> None:
    plan = {"name": "p", "steps": [{"id": "c", "start": "quadruple", "with": {"value": 1}}]}
    lab.fake(double, returns=7)
    with pytest.raises(holdfast.HoldfastError, match="quadruple"):
        lab.run(plan)
    lab.use(quadruple)
    assert lab.run(plan).status == "completed"


def test_the_same_run_gives_the_same_outcome_to_the_byte() -> None:
    @holdfast.tool(effect="idempotent")
    def slow(value: int, call: holdfast.Call) -> int:
        call.note({"at": value})
        time.sleep(0.002 * (value % 3))
        call.say("working")
        call.progress(50)
        return value

    @holdfast.function
    async def busy(ctx: holdfast.Context) -> Any:
        done = await ctx.gather(*(ctx.call(slow, number) for number in range(5)), ctx.call(double, 3))
        return [done, ctx.random(), ctx.uuid(), str(ctx.now())]

    def outcome() -> Any:
        lab = Lab()
        lab.use(slow, double)
        return lab.run(busy, crash_at=["after:slow#2", "step:completed slow~4"])

    first, second = outcome(), outcome()
    assert first.output[0] == [0, 1, 2, 3, 4, 6]
    assert first.recording == second.recording
    assert first.calls == second.calls


def test_everything_stands_still_while_a_blocking_tool_runs(lab: Lab) -> None:
    @holdfast.tool(effect="read")
    def slow() -> None:
        time.sleep(0.1)

    @holdfast.function
    async def both(ctx: holdfast.Context) -> None:
        async def many(inner: holdfast.Context) -> None:
            for _ in range(20):
                await inner.call(double, 1)
                await asyncio.sleep(0)

        await ctx.gather(ctx.call(slow), many)

    lab.use(slow)
    lab.fake(double, returns=2)
    done = [event["path"] for event in lab.run(both).events if event["type"] == "step:completed"]
    assert done.index("slow") < done.index("gather[1]/double~15")


def test_another_seed_rolls_other_dice() -> None:
    @holdfast.function
    async def roll(ctx: holdfast.Context) -> float:
        return ctx.random()

    assert Lab(seed=1).run(roll).output == Lab(seed=1).run(roll).output != Lab(seed=2).run(roll).output


def test_a_lab_starts_when_it_is_told_to() -> None:
    @holdfast.function
    async def wait_for_new_year(ctx: holdfast.Context) -> str:
        await ctx.sleep_until("2031-01-01T00:00:00Z")
        return ctx.now().isoformat()

    lab = Lab(start="2030-12-31T23:00:00Z")
    assert lab.now == datetime(2030, 12, 31, 23, tzinfo=UTC)
    outcome = lab.run(wait_for_new_year)
    assert (outcome.output, outcome.seconds) == ("2031-01-01T00:00:00+00:00", 3600)


def test_a_tool_that_was_not_handed_over_is_never_called_by_accident(lab: Lab) -> None:
    lab.fake("dobule", returns=1)
    with pytest.raises(LabError, match=r'calls the tool "double", which is neither faked nor handed over.*"dobule"'):
        lab.run(quadruple, inputs={"value": 1})


def test_built_in_tools_run_when_they_are_named(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = {"name": "p", "steps": [{"id": "w", "tool": "files.write", "with": {"path": "x.txt", "text": "hi"}}]}
    with pytest.raises(LabError, match=r"files\.write.*neither faked nor handed over"):
        lab.run(plan)
    lab.use("files.write")
    assert lab.run(plan).status == "completed"
    assert (tmp_path / "x.txt").read_text() == "hi"


def test_handing_over_what_is_no_tool_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"names of built-in tools, not 'files\.wrote'; did you mean \"files\.write\""):
        lab.use("files.wrote")
    with pytest.raises(LabError, match=r"lab\.use takes tools"):
        lab.use(print)  # type: ignore[arg-type]


def test_what_is_no_program_or_no_inputs_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"lab\.run takes a plan or a function, and double is a tool"):
        lab.run(double)  # type: ignore[arg-type]
    with pytest.raises(LabError, match=r"inputs= is a mapping of names to values, .*; not \['boat'\]"):
        lab.run(quadruple, inputs=["boat"])  # type: ignore[arg-type]


@pytest.mark.parametrize("events_max", [0, -1, True, "many"])
def test_a_lab_in_which_nothing_can_happen_is_refused(events_max: Any) -> None:
    with pytest.raises(LabError, match=f"events_max= is how many events .* not {events_max!r}"):
        Lab(events_max=events_max)


async def test_a_lab_inside_a_coroutine_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="make the test a plain `def`"):
        lab.run(quadruple, inputs={"value": 1})


def test_a_function_that_is_not_the_same_on_replay_is_found_out(lab: Lab) -> None:
    rounds: list[int] = []

    @holdfast.function
    async def fickle(ctx: holdfast.Context) -> None:
        rounds.append(1)
        await ctx.call(double, len(rounds))
        await ctx.sleep("1h")

    lab.fake(double, returns=1)
    with pytest.raises(holdfast.HoldfastError, match=r'recorded:  double {"value":1}\n  attempted: double {"value":2}'):
        lab.run(fickle)
