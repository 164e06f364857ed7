"""More of the engine broken on purpose: effects, approvals, times, plans, families."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec import UNSET

from holdfast.core import commands, fold
from holdfast.core import events as ev
from holdfast.core import failure as failure_rules
from holdfast.core.execution import Execution
from holdfast.core.failure import RetryLater
from holdfast.core.lifecycle import STEP_ENDS, STEP_MOVES
from holdfast.core.plan.schedule import Schedule
from holdfast.engine.commands import child_messages
from holdfast.engine.drive import activity, claims, driver  # fmt: skip
from holdfast.engine.drive.steps_port import DriverSteps
from holdfast.engine.step import admission, human_requests, parking, perform, resolution
from holdfast.engine.step import attempt as step_attempt
from holdfast.engine.step import invoke as attempt
from holdfast.engine.step.call_host import CallHost
from holdfast.programs.answer_order import AnswerOrder
from holdfast.programs.context import Context
from holdfast.programs.plan_items import PlanItems
from holdfast.programs.plan_level import RunningLevel
from holdfast.programs.plan_program import PlanProgram
from holdfast.programs.plan_runner import Walker
from holdfast.tools.call import DidNotHappen, Unknown
from holdfast.tools.tool import Tool
from proof.sabotage.saboteur import Broken, broken, together

# ---- effects ---------------------------------------------------------------------------------------------------


def call_everything_harmless() -> Broken:
    """Every failure says that nothing happened."""
    describe = failure_rules.describe
    return patch.object(
        step_attempt, "describe", lambda *at: msgspec.structs.replace(describe(*at), happened="nothing")
    )


def verify_nothing() -> Broken:
    async def verified(*_: Any) -> DidNotHappen:
        return DidNotHappen()

    return patch.object(resolution, "verified", verified)


def ask_no_check() -> Broken:
    async def verified(*_: Any) -> Unknown:
        return Unknown()

    return patch.object(resolution, "verified", verified)


def keep_quiet_about_checks() -> Broken:
    """A check that failed is as good as one that cannot tell."""
    ask = human_requests.ask_in_doubt
    return patch.object(resolution, "ask_in_doubt", lambda *at, **said: ask(*at, **{**said, "check_failed": ""}))


def run_ahead_of_the_disk() -> Broken:
    """An idempotent tool that costs nothing is called before its start is durable, as a read may be."""
    durable = step_attempt._durable

    async def hasty(work: Any, number: int, started_at: int, tool: Any) -> None:
        if work.effect_of(tool) != "idempotent" or tool.cost_micros:
            await durable(work, number, started_at, tool)

    return patch.object(step_attempt, "_durable", hasty)


def call_twice() -> Broken:
    invoke = attempt.invoke

    async def twice(*arguments: Any) -> bytes:
        await invoke(*arguments)
        return await invoke(*arguments)

    return patch.object(step_attempt, "invoke", twice)


def believe_every_answer() -> Broken:
    """What is said of a step that has ended is recorded as its outcome, too."""
    resolve, complete = commands._RULES["resolve"], STEP_MOVES["step:completed"]
    always = complete._replace(frm=complete.frm | STEP_ENDS)

    def believe(state: Execution, arguments: commands.Arguments, by: str, at: int) -> commands.Ruling:
        ended = state.steps.get(arguments.step)
        if state.is_ended or ended is None or ended.status not in STEP_ENDS or arguments.remedy != "done":
            return resolve(state, arguments, by, at)
        event = ev.StepCompleted(at=at, path=ended.path, attempt=ended.attempt, output=arguments.data or msgspec.Raw())
        return commands.Ruling(outcome="applied", text="heard again", events=(event,))

    believing = patch.dict(commands._RULES, {"resolve": believe})
    return together(believing, patch.dict(STEP_MOVES, {"step:completed": always}))


def key_per_attempt() -> Broken:
    make_call = CallHost.make_call

    def make(self: CallHost, path: str, attempt: int, notes: Any) -> Any:
        call = make_call(self, path, attempt, notes)
        call.key = f"{call.key}#{attempt}"
        return call

    return patch.object(CallHost, "make_call", make)


def forget_notes() -> Broken:
    make_call = CallHost.make_call
    return patch.object(CallHost, "make_call", lambda self, path, attempt, notes: make_call(self, path, attempt, UNSET))


def forge_outputs() -> Broken:
    return patch.object(Tool, "output", lambda self, value: b'"forged"')


def retry_for_ever() -> Broken:
    return patch.object(failure_rules, "_backoff", lambda *_: RetryLater(0.05))


def cache_everything() -> Broken:
    return together(
        *(patch.object(module, "cache_s", lambda work: 30.0) for module in (admission, perform, step_attempt))
    )


def draw_again() -> Broken:
    """The time and random numbers of a function are not recorded."""
    return patch.object(Context, "_once", lambda self, name, make: make())


# ---- people and time -------------------------------------------------------------------------------------------


def ask_nobody() -> Broken:
    async def begin(work: Any, found: Any) -> None:
        await step_attempt.attempt(work, found, work.asked)

    return patch.dict(perform._MOVES, {"pending": begin})


def ask_about_something_else() -> Broken:
    """A person agrees to the input of a fallback, and it is called with that of the step."""
    try_it = step_attempt.attempt

    async def attempt(work: Any, found: Any, arguments: bytes) -> None:
        asked = work.driver.state.requests.get(found.request_id) if found is not None else None
        is_agreed = asked is not None and asked.remedy == "granted" and not asked.data
        await try_it(work, found, work.asked if is_agreed else arguments)

    return patch.object(perform, "attempt", attempt)


def take_no_for_yes() -> Broken:
    def denied(state: Execution, event: ev.ApprovalDenied) -> None:
        fold._answer(state, event.request_id, "granted", event.by, event.why)

    return patch.dict(fold._FOLD, {ev.ApprovalDenied: denied})


def ring_at_once() -> Broken:
    return patch.object(parking, "is_due", lambda run, due_at: due_at is not None)


def take_an_event_twice() -> Broken:
    return patch.object(fold, "_take", lambda *_: None)


def receive_twice() -> Broken:
    send = commands._RULES["send"]

    def twice(*arguments: Any) -> commands.Ruling:
        ruling = send(*arguments)
        return msgspec.structs.replace(ruling, events=ruling.events * 2)

    return patch.dict(commands._RULES, {"send": twice})


def name_the_first_reason() -> Broken:
    """Of all that an execution waits for, it says one thing: whatever comes first of the others wakes nobody."""
    return patch.object(activity, "listed", lambda reasons: parking.listed(reasons)[:1])


def ignore_pause_limits() -> Broken:
    return patch.object(claims, "_mind_pause_limit", lambda *_: None)


def stop_at_a_pause_limit_at_once() -> Broken:
    return patch.object(commands, "_has_finally", lambda _: False)


# ---- plans and families ----------------------------------------------------------------------------------------


def ignore_needs() -> Broken:
    add = Schedule.add

    def careless(self: Schedule, steps: Any) -> None:
        add(self, tuple(dataclasses.replace(one, needs=()) for one in steps))

    return patch.object(Schedule, "add", careless)


def pass_over_failures() -> Broken:
    run = RunningLevel.run

    async def careless(self: RunningLevel) -> None:
        await run(self)

    return patch.object(RunningLevel, "run", careless)


def forget_the_last_steps() -> Broken:
    init = PlanProgram.__init__

    def forgetful(self: PlanProgram, plan: Any, *others: Any) -> None:
        init(self, dataclasses.replace(plan, finally_=(), on_failure=()), *others)

    return patch.object(PlanProgram, "__init__", forgetful)


def forget_an_item() -> Broken:
    run = PlanItems.run

    async def forgetful(self: Any, names: Any, items: Any, parallel: int) -> Any:
        return await run(self, names[:-1], items[:-1], parallel)

    return patch.object(PlanItems, "run", forgetful)


class _Backwards:
    def __init__(self, items: Any) -> None:
        self._items = items

    def render(self, values: Any) -> Any:
        rendered = self._items.render(values)
        return rendered[::-1] if isinstance(rendered, list) else rendered


def make_lists_backwards() -> Broken:
    items = Walker._items

    async def backwards(self: Walker, wanted: Any, each: Any, path: str, values: Any) -> Any:
        turned: Any = dataclasses.replace(each, items=_Backwards(each.items))
        return await items(self, wanted, turned, path, values)

    return patch.object(Walker, "_items", backwards)


def pass_nothing_down() -> Broken:
    return patch.object(child_messages, "pass_down", lambda *_: [])


def answer_in_any_order() -> Broken:
    """A function's calls are answered as soon as they are asked for, and dropped steps are let pass."""

    async def at_once(_: AnswerOrder, asking: Any, work: Any) -> Any:
        return await work()

    async def let_pass(*_: Any) -> None: ...

    return together(patch.object(AnswerOrder, "answer", at_once), patch.object(AnswerOrder, "finish", let_pass))


def run_both_versions() -> Broken:
    """Changed code always runs its new version, and the old step is let pass."""

    async def let_pass(*_: Any) -> None: ...

    return together(
        patch.object(AnswerOrder, "is_new_ground", lambda *_: True),
        patch.object(AnswerOrder, "_refuse_dropped", let_pass),
    )


def leave_waits_open() -> Broken:
    """When a branch fails, the others end, and what they waited for stays open."""
    return patch.object(DriverSteps, "cancelled", lambda *_: None)


def keep_quiet_about_failures() -> Broken:
    return patch.object(driver, "failures_in_words", lambda state: "")


RULE_SABOTEURS = (
    broken("answer a function in any order", answer_in_any_order, "a_race_has_one_winner", 150),
    broken("run both versions of changed code", run_both_versions, "changed_code_runs_one_version", 100),
    broken("leave the waits of cancelled branches open", leave_waits_open, "what_is_waited_for_is_named", 150),
    broken("call every failure harmless", call_everything_harmless, "no_effect_happens_more_often_than_allowed", 60),
    broken("verify nothing", verify_nothing, "a_once_step_runs_again_only_when_allowed", 60),
    broken("ask a person before the check", ask_no_check, "a_person_is_asked_after_the_check", 60),
    broken("do not say that a check failed", keep_quiet_about_checks, "a_person_is_asked_after_the_check", 500),
    broken("skip the sync before an idempotent call", run_ahead_of_the_disk, "intents_are_durable_before_effects"),
    broken("call a tool twice", call_twice, "each_attempt_calls_its_tool_once"),
    broken("believe every answer", believe_every_answer, "a_step_has_one_outcome", 60),
    broken("make a key for each attempt", key_per_attempt, "keys_are_one_per_step"),
    broken("forget what was noted", forget_notes, "notes_are_handed_back", 100),
    broken("record other outputs", forge_outputs, "recorded_outputs_are_what_tools_answered"),
    broken("retry without a limit", retry_for_ever, "retries_are_bounded", 40),
    broken("answer effects from the cache", cache_everything, "only_reads_are_answered_from_the_cache"),
    broken("do not record random numbers", draw_again, "a_replay_sees_what_was_recorded"),
    broken("never ask for an approval", ask_nobody, "what_wants_a_yes_is_called_after_it"),
    broken("call what nobody agreed to", ask_about_something_else, "what_wants_a_yes_is_called_after_it", 500),
    broken("take a no for a yes", take_no_for_yes, "a_no_ends_a_step", 40),
    broken("ring every timer at once", ring_at_once, "nothing_is_early"),
    broken("let one event satisfy many waits", take_an_event_twice, "an_event_satisfies_one_wait", 150),
    broken("receive an event twice", receive_twice, "a_command_acts_once"),
    broken("name the first reason alone", name_the_first_reason, "what_is_waited_for_is_named", 40),
    broken("ignore pause limits", ignore_pause_limits, "what_can_go_on_does_without_a_person", 150),
    broken(
        "stop at a pause limit at once",
        stop_at_a_pause_limit_at_once,
        "a_pause_limit_stops_a_plan_after_its_last_steps",
        150,
    ),
    broken("ignore what a step needs", ignore_needs, "a_step_begins_after_what_it_needs"),
    broken("pass over critical failures", pass_over_failures, "a_critical_failure_fails_what_it_is_part_of"),
    broken("forget the last steps", forget_the_last_steps, "every_step_of_a_plan_has_an_outcome"),
    broken("forget an item", forget_an_item, "every_item_has_an_outcome"),
    broken("make lists of items backwards", make_lists_backwards, "a_list_of_items_is_made_once", 40),
    broken("keep quiet about failures", keep_quiet_about_failures, "an_end_tells_whether_steps_failed"),
    broken("pass nothing down", pass_nothing_down, "what_is_said_to_a_parent_reaches_its_children", 40),
)
