"""What a replay compares beside inputs: questions, approvals, waits, conditions and effects, open or ended."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import Lab, LabError, record, replay

PLAN: dict[str, Any] = {
    "name": "p",
    "inputs": {"big": "boolean"},
    "steps": [
        {"id": "rest", "wait": "3d"},
        {"id": "go", "wait": {"event": "go", "timeout": "2d"}},
        {"id": "sure", "approval": "go on?"},
        {"id": "charge", "tool": "charge", "when": "${{ inputs.big }}"},
        {"id": "part", "steps": [{"id": "tell", "tool": "tell"}, {"id": "nap", "wait": "1h"}]},
        {"id": "each", "for_each": [1, 2], "tool": "tell"},
        {"id": "born", "start": "child", "with": {"n": 1}},
    ],
}


@holdfast.tool(effect="once")
async def charge(amount: int = 1) -> str: ...


@holdfast.tool(effect="once")
async def mail(to: str) -> str: ...


def with_effect(name: str, effect: Any, **options: Any) -> Any:
    @holdfast.tool(name=name, effect=effect, **options)
    async def tool(amount: int = 1) -> str: ...

    return tool


@holdfast.function
async def child(ctx: holdfast.Context, n: int) -> int:
    return n


def buying(change: str = "", tool: Any = charge, policy: Any = None) -> Any:
    @holdfast.function(name="buying" if change != "other name" else "selling")
    async def buy(ctx: holdfast.Context) -> Any:
        await ctx.call(tool, 3, policy=policy or holdfast.StepPolicy())
        if change == "later":
            await ctx.call(mail, "bob", name="first")
        if change != "no event":
            await ctx.wait_for("paid", timeout={"sooner": "1d", "no limit": None}.get(change, "2d"))
        if change != "no until":
            await ctx.sleep_until("2027-06-02T00:00Z" if change == "other day" else "2027-06-01T00:00Z")
        if change != "no ask":
            message = "agree?" if change != "other question" else "agreed?"
            await ctx.ask(message, type="any" if change != "other type" else "string", name="agree")
        return await ctx.call(mail, "ada")

    return buy


@pytest.fixture
def shop(lab: Lab) -> Lab:
    lab.fake(charge, returns="paid")
    lab.fake(mail, returns="sent")
    return lab


CHANGES = [
    ("no ask", "no longer asks for the recorded step agree"),
    ("no event", "no longer asks for the recorded step wait_for.paid"),
    ("no until", "no longer asks for the recorded step sleep"),
    ("later", "no longer asks for the recorded step agree, or not before the new one"),
    ("other question", "step agree\n    recorded:  human.ask agree?\n    attempted: human.ask agreed?"),
    (
        "other type",
        'step agree\n    recorded:  human.ask {"type":"any"}\n    attempted: human.ask {"type":"string"}',
    ),
    ("sooner", "step wait_for.paid\n    recorded:  wait.event, 172800 s\n    attempted: wait.event, 86400 s"),
    ("no limit", "recorded:  wait.event, 172800 s\n    attempted: wait.event, no limit"),
    (
        "other day",
        "step sleep\n    recorded:  wait.timer until 2027-06-01T00:00:00+00:00\n"
        "    attempted: wait.timer until 2027-06-02T00:00:00+00:00",
    ),
    ("other name", "diverged at the program\n    recorded:  function buying\n    attempted: function selling"),
]


@pytest.mark.parametrize("answers", [{}, {"agree": 1}])
@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_function_that_asks_otherwise_is_not_the_same(
    shop: Lab, change: str, said: str, answers: dict[str, Any]
) -> None:
    recording = shop.run(buying(), events={"paid": 1}, answers=answers).recording
    replayed = replay(recording, buying(change))
    assert not replayed.is_same
    assert said in str(replayed)


@pytest.mark.parametrize("answers", [{}, {"agree": 1}])
def test_an_unchanged_function_is_the_same_and_its_open_question_is_not_new(shop: Lab, answers: dict[str, Any]) -> None:
    recording = shop.run(buying(), events={"paid": 1}, answers=answers).recording
    replayed = replay(recording, buying())
    assert (replayed.is_same, replayed.new_steps) == (True, [])
    assert [str(step) for step in replayed.open_steps] == ([] if answers else ['agree: human.ask "agree?"'])


def test_an_open_wait_is_compared_too(shop: Lab) -> None:
    recording = shop.run(buying(), commands={"1h": "pause"}).recording
    replayed = replay(recording, buying())
    assert (replayed.is_same, [str(step) for step in replayed.open_steps]) == (
        True,
        ['wait_for.paid: wait.event "paid"'],
    )
    assert not replay(recording, buying("sooner")).is_same
    assert replay(recording, buying("no event")).left_out == ["wait_for.paid"]
    assert replay(recording, buying("no ask")).is_same  # nothing of it was recorded


def test_a_wait_that_was_held_before_it_began_is_not_taken_for_a_shorter_one(lab: Lab) -> None:
    @holdfast.function
    async def side_by_side(ctx: holdfast.Context) -> None:
        async def wait(inner: holdfast.Context) -> None:
            await inner.call(mail, "ada")
            await inner.wait_for("paid", timeout="2d")

        await ctx.gather(lambda inner: inner.call(charge), wait)

    lab.fake(charge, returns="paid", takes="8m")  # what still runs keeps a paused execution in memory
    lab.fake(mail, returns="sent", takes="1m")
    recording = lab.run(side_by_side, commands={"30s": "pause", "5m": "resume"}, events={"paid": 1}).recording
    assert str(replay(recording, side_by_side)) == "same"


def test_another_effect_of_a_tool_is_a_difference(shop: Lab) -> None:
    recording = shop.run(buying(), events={"paid": 1}).recording
    replayed = replay(recording, buying(tool=with_effect("charge", "read")))
    assert "recorded:  charge, effect once\n    attempted: charge, effect read" in str(replayed)


def test_an_approval_that_comes_or_goes_or_asks_otherwise_is_a_difference(shop: Lab) -> None:
    asked = holdfast.StepPolicy(approval=holdfast.Approval(message="pay?"))
    other = holdfast.StepPolicy(approval=holdfast.Approval(message="really pay?"))
    without = shop.run(buying(), events={"paid": 1}).recording
    assert 'recorded:  no approval\n    attempted: approval "pay?" within' in str(replay(without, buying(policy=asked)))
    assert not replay(without, buying(tool=with_effect("charge", "once", approval=True))).is_same
    for answers in ({"charge": True}, {}):
        recording = shop.run(buying(policy=asked), answers=answers, events={"paid": 1} if answers else {}).recording
        assert replay(recording, buying(policy=asked)).is_same
        assert 'recorded:  approval "pay?"' in str(replay(recording, buying(policy=other)))
        assert "attempted: no approval" in str(replay(recording, buying()))


def test_an_approval_for_the_rest_of_the_execution_is_not_missed(shop: Lab) -> None:
    asked = holdfast.StepPolicy(approval=holdfast.Approval(message="pay?"))

    @holdfast.function
    async def twice(ctx: holdfast.Context) -> None:
        await ctx.call(charge, 1, policy=asked)
        await ctx.call(charge, 2, policy=asked)

    recording = shop.run(twice, answers={"charge": shop.approve(sticky=True, arguments={"amount": 9})}).recording
    assert str(replay(recording, twice)) == "same"


def test_what_a_live_engine_recorded_is_the_same_for_unchanged_code(tmp_path: Path) -> None:
    @holdfast.tool(effect="once", approval=True)
    async def pay(amount: int) -> int:
        return amount

    @holdfast.function
    async def paying(ctx: holdfast.Context) -> Any:
        ctx.random()
        await ctx.call(pay, 3)
        await ctx.wait_for("paid", timeout="1h")
        return await ctx.ask("agree?", name="agree")

    steps = [{"id": "a", "tool": "pay", "with": {"amount": 3}}, {"id": "agree", "approval": "agree?"}]
    plan = {"name": "p", "steps": steps}

    async def live() -> list[tuple[Any, bytes]]:
        recorded: list[tuple[Any, bytes]] = []
        async with holdfast.Engine(folder=tmp_path, tools=[pay]) as engine:
            for subject, step in ((paying, "pay"), (plan, "a")):
                run = await engine.start(subject)
                await run.settled()
                recorded.append((subject, await record(engine, run.id)))
                await run.send("paid", 1)
                await run.approve(step)
                await run.settled()
                recorded.append((subject, await record(engine, run.id)))
                await (run.answer("agree", 1) if subject is paying else run.approve("agree"))
                await run.result()
                forked = await engine.fork(run.id)
                await forked.result()
                recorded += [(subject, await record(engine, one.id)) for one in (run, forked)]
        return recorded

    for subject, recording in asyncio.run(live()):
        replayed = replay(recording, subject, tools=[pay])
        assert (replayed.is_same, replayed.new_steps) == (True, []), str(replayed)


# ---- questions of the tool human.ask ---------------------------------------------------------------------------


def asking(**words: Any) -> dict[str, Any]:
    return {"name": "q", "steps": [{"id": "ask", "tool": "human.ask", "with": {"question": "How many?", **words}}]}


def calling(**words: Any) -> Any:
    @holdfast.function(name="q")
    async def ask(ctx: holdfast.Context) -> Any:
        return await ctx.call("human.ask", question="How many?", name="ask", **words)

    return ask


@pytest.mark.parametrize("answers", [{}, {"ask": 3}])
@pytest.mark.parametrize("words", [{"type": "integer"}, {"type": "integer", "expires": "2d"}])
@pytest.mark.parametrize("program", [asking, calling])
def test_an_unchanged_question_of_the_tool_is_the_same(
    lab: Lab, program: Any, words: dict[str, Any], answers: dict[str, Any]
) -> None:
    recording = lab.run(program(**words), answers=answers).recording
    for tools in ([], ["human.ask"]):
        replayed = replay(recording, program(**words), tools=tools)
        assert (replayed.is_same, replayed.divergences, replayed.new_steps) == (True, [], [])
        assert [step.path for step in replayed.open_steps] == ([] if answers else ["ask"])


@pytest.mark.parametrize("program", [asking, calling])
def test_another_question_of_the_tool_is_told_as_a_question(lab: Lab, program: Any) -> None:
    recording = lab.run(program(type="integer", expires="2d")).recording
    replayed = replay(recording, program(type="string"))
    assert [str(difference) for difference in replayed.divergences] == [
        'step ask\n    recorded:  human.ask "How many?" {"type":"integer"} within 172800 s\n'
        '    attempted: human.ask {"question":"How many?","type":"string"}'
    ]


@pytest.mark.parametrize("answers", [{}, {"charge": 0.5}])
def test_a_step_that_asked_for_money_was_not_asking_for_an_approval(lab: Lab, answers: dict[str, Any]) -> None:
    dear = with_effect("charge", "read", cost=0.3)

    @holdfast.function
    async def spend(ctx: holdfast.Context) -> Any:
        return await ctx.call(dear, 1)

    lab.fake(dear, returns="paid")
    recording = lab.run(spend, budget=0.1, answers=answers).recording
    assert replay(recording, spend).is_same


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        ("human.aks", "tools= takes tools and names of built-in tools, not 'human.aks'; did you mean \"human.ask\"?"),
        (3, "tools= takes tools and names of built-in tools, not 3"),
    ],
)
def test_what_is_no_tool_is_refused_in_words(lab: Lab, thing: Any, said: str) -> None:
    recording = lab.run(asking()).recording
    with pytest.raises(LabError) as refused:
        replay(recording, asking(), tools=[thing])
    assert str(refused.value) == said


# ---- plans -----------------------------------------------------------------------------------------------------


def changed(at: int, **words: Any) -> dict[str, Any]:
    plan = copy.deepcopy(PLAN)
    plan["steps"][at] = {key: word for key, word in {**plan["steps"][at], **words}.items() if word is not None}
    return plan


@pytest.fixture
def office(lab: Lab) -> Lab:
    lab.fake("charge", returns="paid")
    lab.fake("tell", returns="told")
    lab.use(child)
    return lab


def record_plan(lab: Lab, answers: dict[str, Any]) -> bytes:
    return lab.run(PLAN, inputs={"big": True}, events={"go": 1}, answers=answers).recording


@pytest.mark.parametrize("answers", [{}, {"sure": True}])
def test_an_unchanged_plan_is_the_same_wherever_it_stands(office: Lab, answers: dict[str, Any]) -> None:
    replayed = replay(record_plan(office, answers), PLAN, functions=[child])
    assert (replayed.is_same, replayed.new_steps) == (True, [])
    assert [step.path for step in replayed.open_steps] == ([] if answers else ["sure"])


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (changed(0, wait="4d"), "step rest\n    recorded:  wait: 3d\n    attempted: wait: 4d"),
        (changed(1, wait={"event": "go"}), "step go\n    recorded:  wait: "),
        (
            changed(2, approval="really?"),
            "step sure\n    recorded:  approval: go on?\n    attempted: approval: really?",
        ),
        (changed(3, when="${{ false }}"), "step charge\n    recorded:  when: ${{ inputs.big }}\n    attempted: when: "),
        (changed(3, when=None), "attempted: no when"),
        (changed(3, approval="required"), "recorded:  no approval\n    attempted: approval: required"),
        (changed(4, steps=[{"id": "tell", "tool": "tell"}]), "no longer asks for the recorded step part/nap"),
        (
            changed(4, steps=[{"id": "tell", "tool": "tell"}, {"id": "nap", "wait": "2h"}]),
            "step part/nap\n    recorded:  wait: 1h\n    attempted: wait: 2h",
        ),
        (changed(5, for_each=[1, 2, 3]), "recorded:  for_each: [1,2]\n    attempted: for_each: [1,2,3]"),
        (changed(6, **{"with": {"n": 2}}), 'recorded:  with: {"n":1}\n    attempted: with: {"n":2}'),
        (changed(2, approval=None, wait="1s"), "recorded:  no wait, approval: go on?"),
        ({**PLAN, "name": "q"}, "diverged at the program\n    recorded:  plan p\n    attempted: plan q"),
    ],
)
def test_a_plan_that_says_otherwise_about_a_recorded_step_is_not_the_same(
    office: Lab, plan: dict[str, Any], said: str
) -> None:
    replayed = replay(record_plan(office, {"sure": True}), plan, functions=[child])
    assert not replayed.is_same
    assert said in str(replayed)


def test_of_a_tool_that_is_only_named_effect_and_approval_are_not_compared(office: Lab) -> None:
    recording = record_plan(office, {"sure": True})
    other = with_effect("charge", "read", approval=True)
    assert replay(recording, PLAN, functions=[child]).is_same
    replayed = replay(recording, PLAN, functions=[child], tools=[other])
    assert "recorded:  charge, effect once\n    attempted: charge, effect read" in str(replayed)


def test_what_was_not_recorded_yet_may_change(office: Lab) -> None:
    recording = record_plan(office, {})
    assert replay(recording, changed(3, when="${{ false }}"), functions=[child]).is_same
    assert replay(recording, changed(5, max_parallel=1), functions=[child]).is_same


def test_an_open_approval_that_is_gone_or_asks_otherwise_is_not_the_same(office: Lab) -> None:
    recording = record_plan(office, {})
    gone = copy.deepcopy(PLAN)
    del gone["steps"][2]
    assert replay(recording, gone, functions=[child]).left_out == ["sure"]
    assert not replay(recording, changed(2, approval="really?"), functions=[child]).is_same
    assert not replay(recording, changed(2, title="Really"), functions=[child]).is_same
