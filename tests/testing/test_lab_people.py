"""What people and the outside do in the lab: answers, events, commands, and silence."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.testing import Lab, LabError

PUBLISH = {"name": "p", "steps": [{"id": "publish", "tool": "publish", "with": {"page": 1}, "approval": "required"}]}


@holdfast.function
async def paint(ctx: holdfast.Context) -> Any:
    return [await ctx.ask("colour?", type="string"), await ctx.wait_for("dry", timeout="2d")]


def test_without_an_answer_the_execution_waits_and_says_for_what(lab: Lab) -> None:
    publish = lab.fake("publish", returns="done")
    outcome = lab.run(PUBLISH)
    assert (outcome.status, outcome.waiting_for, publish.calls) == ("waiting", "an approval (publish)", [])
    assert outcome.requests[0]["tool"] == "publish"
    assert repr(outcome) == "<outcome: waiting for an approval (publish)>"


@pytest.mark.parametrize("yes", [True, Lab.approve(), Lab.later("3h", True)])
def test_an_approval_is_granted(lab: Lab, yes: Any) -> None:
    lab.fake("publish", returns="done")
    assert lab.run(PUBLISH, answers={"publish": yes}).output == "done"


def test_an_approval_comes_as_late_as_the_test_says(lab: Lab) -> None:
    lab.fake("publish", returns="done")
    assert 3 * 3600 <= lab.run(PUBLISH, answers={"publish": lab.later("3h", True)}).seconds < 3 * 3600 + 1


def test_an_approval_may_change_the_arguments(lab: Lab) -> None:
    publish = lab.fake("publish", returns="done")
    lab.run(PUBLISH, answers={"publish": lab.approve(arguments={"page": 2})})
    assert publish.calls[0].arguments == {"page": 2}


@pytest.mark.parametrize("no", [False, Lab.deny("not now")])
def test_an_approval_is_denied(lab: Lab, no: Any) -> None:
    lab.fake("publish")
    outcome = lab.run(PUBLISH, answers={"publish": no})
    assert outcome.status == "failed"
    assert "denied by person" in outcome.described()


def test_with_patience_an_approval_expires(lab: Lab) -> None:
    lab.fake("publish")
    outcome = lab.run(PUBLISH, patience="8d")
    assert (outcome.status, outcome.seconds) == ("failed", pytest.approx(7 * 86400, abs=1))
    assert "approval:expired" in outcome.names()


def test_a_question_of_a_plan_is_answered_without_handing_its_tool_over(lab: Lab) -> None:
    plan = {"name": "q", "steps": [{"id": "many", "tool": "human.ask", "with": {"question": "?", "type": "integer"}}]}
    assert lab.run(plan, answers={"many": 3}).output == 3
    assert lab.run(plan).waiting_for == "an answer (many)"
    lab.use("human.ask")  # changes nothing
    assert lab.run(plan, answers={"many": 4}, crash_at="everywhere").output == 4


def test_a_fake_of_a_person_is_refused_because_nobody_would_call_it(lab: Lab) -> None:
    with pytest.raises(LabError) as refused:
        lab.fake("human.ask", returns=3)
    assert str(refused.value) == (
        "human.ask asks a person and calls nothing, so a fake of it would never be called; "
        'say what the person answers: lab.run(…, answers={"STEP": …})'
    )


def test_questions_are_answered_and_events_sent_when_they_are_waited_for(lab: Lab) -> None:
    outcome = lab.run(paint, answers={"ask": "blue"}, events={"dry": lab.later("1d", {"ok": True})})
    assert outcome.output == ["blue", {"ok": True}]
    assert outcome.seconds == pytest.approx(86400, abs=1)


def test_an_event_that_nobody_sends_times_out(lab: Lab) -> None:
    outcome = lab.run(paint, answers={"ask": "blue"})
    assert outcome.described() == 'failed: no event "dry" arrived in time'


def test_an_event_without_a_limit_that_nobody_sends_leaves_it_waiting(lab: Lab) -> None:
    plan = {"name": "p", "steps": [{"id": "w", "wait": {"event": "go"}}]}
    assert lab.run(plan).waiting_for == "an event (go)"


def test_what_is_asked_twice_is_answered_in_turn(lab: Lab) -> None:
    fake = lab.fake("flaky", raises=[holdfast.InvalidCall("a"), holdfast.InvalidCall("b")], returns="done")
    plan = {"name": "p", "steps": [{"id": "f", "tool": "flaky"}]}
    assert lab.run(plan, answers={"f": lab.in_turn("again", "again")}).output == "done"
    assert len(fake.calls) == 3
    assert lab.run(plan, answers={"f": "again"}).waiting_for == "a correction (f)"
    assert lab.run(plan, answers={"f": lab.resolve("done", output=5)}).output == 5


def test_commands_are_given_at_an_event_and_at_a_time(lab: Lab) -> None:
    lab.fake("a", returns=1)
    lab.fake("b", returns=2)
    plan = {"name": "p", "steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b"}]}
    assert lab.run(plan, commands={"step:completed a": "pause"}).status == "paused"
    outcome = lab.run(plan, commands={"step:completed a": "pause", "2h": "resume"})
    assert (outcome.output, outcome.seconds) == (2, pytest.approx(7200, abs=1))
    assert lab.run(plan, commands={"step:completed a": ["pause", "stop"]}).status == "stopped"


def test_what_runs_when_a_pause_comes_finishes_before_the_run_is_over(lab: Lab) -> None:
    lab.fake("a", returns=1, takes="10m")
    lab.fake("b", returns=2)
    plan = {"name": "p", "steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b"}]}
    outcome = lab.run(plan, commands={"1m": "pause"})
    assert (outcome.status, outcome.steps["a"]["status"], outcome.calls_of("b")) == ("paused", "completed", [])


def test_with_patience_a_pause_reaches_its_limit(lab: Lab) -> None:
    outcome = lab.run(paint, commands={"1h": "pause"}, patience="31d")
    assert outcome.status == "stopped"
    assert "task:pause_expiring" in outcome.names()


def test_an_event_may_be_sent_before_anybody_waits(lab: Lab) -> None:
    outcome = lab.run(paint, commands={"task:started": lab.send("dry", 1)}, answers={"ask": lab.later("1h", "red")})
    assert outcome.output == ["red", 1]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ({"answers": {"ask": "x", "aks": "y"}}, 'answers["aks"] was never asked for; did you mean "ask"?'),
        ({"answers": {"ask": "x", "publish": 1}}, 'answers["publish"] was never asked for; asked about: ask'),
        ({"answers": {"ask": "x"}, "events": {"wet": 1}}, 'events["wet"] was never waited for; waited for: dry'),
        (
            {"answers": {"ask": Lab.in_turn("x", "y", "z")}},
            'answers["ask"]: there are 3 answers, and only 1 asked for\nthe execution is failed: no event "dry"',
        ),
        ({"answers": {"ask": "x"}, "events": {"dry": Lab.in_turn(1, 2)}}, 'events["dry"]: 1 of them came too late'),
        ({"answers": {"ask": Lab.approve()}}, 'answers["ask"]: this is a question, so say a value; not lab.approve(…)'),
        ({"commands": {"step:completed aks": "stop"}}, 'that moment never came; did you mean "ask"?'),
        ({"answers": {"ask": 5}}, 'answers["ask"] was refused: ask: expected'),
        ({"commands": {"step:failed": "stop"}}, 'commands["step:failed"]: that moment never came'),
        ({"answers": {"ask": "x"}, "commands": {"9d": "stop"}}, 'commands["9d"]: it was over before that'),
        ({"commands": {"soon": "stop"}}, 'commands["soon"]: expected a time since the start such as "2h"'),
        ({"commands": {"2h": "puase"}}, 'commands["2h"]: there is no command "puase"; did you mean "pause"?'),
        ({"commands": {"task:begun": "pause"}}, "there is no event task:begun"),
        ({"commands": {"1h": "stop", "2h": "stop"}}, 'commands["2h"]: it was over before that'),
    ],
)
def test_a_script_that_does_not_fit_the_program_is_named(lab: Lab, script: dict[str, Any], text: str) -> None:
    with pytest.raises(LabError) as error:
        lab.run(paint, **script)
    assert text in str(error.value)


def test_an_answer_of_the_wrong_kind_is_named(lab: Lab) -> None:
    lab.fake("publish", raises=holdfast.InvalidCall("no"))
    with pytest.raises(LabError, match=r'answers\["publish"\]: this is an approval, so say True or False; not 3'):
        lab.run(PUBLISH, answers={"publish": 3})
    with pytest.raises(LabError, match=r"this is an approval, so say True or False; not 'maybe'"):
        lab.run(PUBLISH, answers={"publish": "maybe"})
    with pytest.raises(LabError, match=r"this is an approval, so say True or False; not lab.resolve\(…\)"):
        lab.run(PUBLISH, answers={"publish": lab.resolve("again")})
    with pytest.raises(LabError, match="so say one of again, done, skip, fail; not 'agian'; did you mean \"again\""):
        lab.run(PUBLISH, answers={"publish": lab.in_turn(True, "agian")})
    with pytest.raises(LabError, match="in_turn needs an answer"):
        lab.in_turn()
    with pytest.raises(LabError, match="this is a correction, so say one of again, done, skip, fail; not True"):
        lab.run(PUBLISH, answers={"publish": lab.in_turn(True, True)})


def test_an_answer_that_is_not_reached_because_of_a_wrong_fake_tells_what_is_wrong_with_it(lab: Lab) -> None:
    plan = {"name": "p", "steps": [{"id": "look", "tool": "priced"}, {"id": "agree", "approval": "sure?"}]}
    lab.fake(priced, returns=5)
    cause = r"a correction \(look\); look: priced returned something else .* got `int`; that came from your fake"
    with pytest.raises(LabError, match=f'(?s)answers\\["agree"\\] was never asked for.*{cause}'):
        lab.run(plan, answers={"agree": True})
    with pytest.raises(LabError, match=f"there is no output: the execution is waiting for {cause}"):
        _ = lab.run(plan).output


@holdfast.tool(effect="read", cost=0.30)
async def priced() -> str:
    return "bought"


PAID = {"name": "paid", "budget": 0.1, "steps": [{"id": "buy", "tool": "priced", "critical": False}]}


def test_a_budget_is_said_as_it_is_to_an_engine(lab: Lab) -> None:
    lab.fake(priced, returns="bought")
    plan = {"name": "paid", "steps": [{"id": "buy", "tool": "priced"}]}
    assert lab.run(plan, budget=0.1).waiting_for == "a larger budget (buy)"
    assert lab.run(plan, budget=0.1, answers={"buy": 0.5}).output == "bought"
    assert "budget:warned" in lab.run(plan, budget={"usd": 0.5, "warn_at": 0.5}).names()
    with pytest.raises(holdfast.HoldfastError, match="budget"):
        lab.run(plan, budget=-1)


def test_a_request_for_money_is_answered_with_dollars_or_a_remedy(lab: Lab) -> None:
    lab.fake(priced, returns="bought")
    assert lab.run(PAID, answers={"buy": 0.5}).output == "bought"
    assert lab.run(PAID, answers={"buy": "skip"}).steps["buy"]["status"] == "skipped"
    with pytest.raises(
        LabError, match="this is a budget, so say how many dollars more, or one of skip, fail; not True"
    ):
        lab.run(PAID, answers={"buy": True})
