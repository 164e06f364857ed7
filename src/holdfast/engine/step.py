"""One step, from the program's asking to its outcome.

The story is a loop over the step's status: each turn does what that status calls for and journals one move, until the
step has ended. A first run enters with no status, a replay with whatever the journal says; nothing else differs.

    nothing yet → gates → attempt → completed | failed | retrying | in doubt | waiting for a correction
    lost in a crash → read and idempotent: another attempt; once: in doubt
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET

from holdfast.core import events as ev
from holdfast.core.errors import Suspended
from holdfast.core.execution import Step
from holdfast.core.failure import (
    AskForCorrection,
    Doubt,
    Failure,
    FallBack,
    GiveUp,
    Means,
    decide,
    describe,
)
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.core.policy import LOSSES_MAX, RUN_AHEAD_EVENTS_MAX, Effect
from holdfast.engine import waiting
from holdfast.engine.attempt import AnsweredLate, invoke, reduced, refresh, verified
from holdfast.engine.program import Outcome, StepCall
from holdfast.engine.reckoning import doubtful, doubts, edited, losses, retrying, tally
from holdfast.engine.requests import ask_for_approval, ask_for_correction, ask_in_doubt, denied
from holdfast.journal.store import CacheItem
from holdfast.tools.call import Call, DidNotHappen
from holdfast.tools.threads import NeverBegan
from holdfast.tools.tool import Tool
from holdfast.tools.values import encode

if TYPE_CHECKING:
    from holdfast.engine.driver import Driver


async def perform(run: Driver, call: StepCall) -> Outcome:
    """Answer from history, or take the step from where it stands to its end."""
    steps = run.state.steps
    step = steps.get(call.path)
    asked = encode(call.arguments, call.path)
    digest = input_digest(call.tool.name, asked)
    if step is not None and (step.digest != digest if step.digest else step.kind != call.kind):
        await _diverged(run, call, step, digest, asked)
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    runner = _Runner(run, call, digest, asked, task)
    while step is None or step.status not in STEP_ENDS:
        if run.must_wait():
            await run.admit()
        before = run.busy(task)
        try:
            await _MOVES[step.status if step is not None else "pending"](runner, step)
        finally:
            run.idle(task, before)
        step = steps[call.path]
    return await outcome_of(run, step)


async def outcome_of(run: Driver, step: Step) -> Outcome:
    """An ended step as its program sees it."""
    if step.status == "completed":
        return Outcome(status="completed", output=await run.value(step.output))
    if step.status == "failed":
        return Outcome(status="failed", failure=step.failure)
    return Outcome(status="skipped", reason=step.reason)


def input_digest(tool: str, arguments: bytes) -> str:
    """What a step was asked to do: its tool and its input, whatever the order of its keys."""
    if arguments.count(b":") > 1:  # with one key there is no order
        arguments = msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
    return blake2b(b"%b\0%b" % (tool.encode(), arguments), digest_size=16).hexdigest()


class _Runner:
    """One step being taken to its end; `_MOVES` names what each status calls for."""

    __slots__ = ("asked", "call", "digest", "run", "task")

    def __init__(self, run: Driver, call: StepCall, digest: str, asked: bytes, task: asyncio.Task[Any]) -> None:
        self.run = run
        self.call = call
        self.digest = digest
        self.asked = asked
        self.task = task

    # ---- one move per status ------------------------------------------------------------------------------------

    async def begin(self, step: Step | None) -> None:
        """Nothing has happened yet: a person's yes, a cached answer, or the first attempt."""
        approval = self.call.policy.approval or self.call.tool.approval
        if approval is not None and self.call.tool.name not in self.run.state.sticky:
            ask_for_approval(self.run, self.call, self.call.tool, approval, self.asked, self.digest)
        elif self._cache_s() and await self._answer_from_cache():
            return
        else:
            await self._attempt(step, self.asked)

    async def go_on_waiting(self, step: Step | None) -> None:
        """It waits for a person: for a yes, or for a way out of a failure."""
        assert step is not None
        await waiting.answer(self.run, step)
        asked = self.run.state.requests[step.request_id]
        if asked.request.kind == "approval":
            if asked.remedy == "granted":
                edits = await self.run.value(asked.data) if asked.data else None
                shown = await self.run.value(asked.request.arguments)  # what was agreed to, and nothing else
                await self._attempt(step, edited(shown, edits))
            else:
                self._fail(step, denied(asked.remedy, asked.by, asked.why), by=asked.by)
        else:
            await self._remedy(step)

    async def retry(self, step: Step | None) -> None:
        """Wait for the time of the next attempt, then make it."""
        assert step is not None
        await waiting.due(self.run, step)
        arguments = await self._arguments_of(step)
        if step.failure is not None and not step.fallback:  # the hooks are those of the step's own tool
            if step.reduced and step.failure.category == "resource":
                arguments = await reduced(self.call.tool, arguments, self._as_call(step))
            elif step.refreshed and step.failure.category == "permission":
                await refresh(self.call.tool, arguments, self._as_call(step))
        tool = self._tool_of(step)
        if step.fallback and tool.approval is not None and tool.name not in self.run.state.sticky:
            # Another tool than the one that was approved, and one that wants to be approved itself.
            ask_for_approval(self.run, self.call, tool, tool.approval, arguments, self.digest)
        else:
            await self._attempt(step, arguments)

    async def again_after_loss(self, step: Step | None) -> None:
        """Its driver died, or a person interrupted it: what may run again does, what must not is in doubt."""
        assert step is not None
        if step.status == "running" and step.effect == "once":
            why = "its process ended, or lost its journal, while it ran"
            self.run.append(ev.StepInDoubt(at=self.run.now_us(), path=step.path, why=why, attempt=step.attempt))
        elif step.status == "running" and losses(step) >= LOSSES_MAX:
            self._give_up_after_losses(step)
        else:
            await self._attempt(step, await self._arguments_of(step))

    def _give_up_after_losses(self, step: Step) -> None:
        """A step that takes its process down with it would otherwise do so for ever."""
        message = f"its process ended {LOSSES_MAX} times while it ran"
        failure = Failure(category="unknown", message=message, happened="unknown")
        if self.call.policy.on_error == "ask":
            ask_for_correction(self.run, self.call, step, self.call.stakes.described(failure))
        else:
            self._fail(step, failure)

    async def settle_doubt(self, step: Step | None) -> None:
        """A `once` step that may have happened: its policy decides, and by default a person does."""
        assert step is not None
        tool = self._tool_of(step)
        policy = self.call.policy.in_doubt or tool.in_doubt
        if step.request_id:
            await waiting.answer(self.run, step)
            await self._remedy(step)
        elif policy != "fail" and (self._lives_on(step) or doubts(step) > self._means(tool, "once").retries()):
            ask_in_doubt(self.run, self.call, step)  # no check and no policy can tell, or it would go on for ever
        elif policy == "verify" and tool.can_verify:
            await self._verify(step)
        elif policy == "retry":
            await self._attempt(step, await self._arguments_of(step))
        elif policy == "fail":
            self._fail(step, Failure(category="unknown", message=doubtful(step), happened="unknown"))
        else:
            ask_in_doubt(self.run, self.call, step)

    def _lives_on(self, step: Step) -> bool:
        """Whether a call of it that was cut off still runs here."""
        return self.run.services.is_living(f"{self.run.state.id}:{step.path}")

    # ---- gates --------------------------------------------------------------------------------------------------

    def _cache_s(self) -> float | None:
        cache_s = self.call.policy.cache_s or self.call.tool.cache_s
        return cache_s if cache_s and self._effect(self.call.tool) == "read" else None

    async def _answer_from_cache(self) -> bool:
        run, call = self.run, self.call
        output = await run.services.store.cached(self._cache_key(), run.now_us())
        if output is None:
            return False
        at = run.now_us()
        run.append(
            self._started(at, 1, call.tool, 0, self.asked),
            ev.StepCompleted(at=at, path=call.path, output=run.keep(output), started_at=at, cached=True),
        )
        return True

    def _cache_key(self) -> str:
        owner = self.run.state.facts().owner
        parts = msgspec.json.encode([owner, self.call.tool.name, self.call.tool.version, self.digest])
        return blake2b(parts, digest_size=16).hexdigest()

    # ---- the attempt --------------------------------------------------------------------------------------------

    async def _attempt(self, step: Step | None, arguments: bytes) -> None:
        run, call = self.run, self.call
        number = step.attempt + 1 if step is not None else 1
        fallback = step.fallback if step is not None else 0
        tool = self._tool_of(step) if step is not None else call.tool
        effect = self._effect(tool)
        started_at = run.now_us()
        run.append(self._started(started_at, number, tool, fallback, arguments, step))
        if effect != "read" or run.log.ahead() > RUN_AHEAD_EVENTS_MAX:
            # The outcomes it builds on, and for `once` its own intent, are on disk before anything happens.
            await self._durable(number, started_at)
        call_ = run.make_call(call.path, number, step.notes if step is not None else UNSET)
        if run.state.id in run.services.feed.watched:
            run.voice.call(call_, tool.name, arguments)
        began = run.loop_time()
        try:
            output = await invoke(run, self.task, tool, arguments, call_, call.policy.timeout_s or tool.timeout_s)
        except NeverBegan:
            self._interrupted(number, started_at)
            raise asyncio.CancelledError from None
        except AnsweredLate as late:
            run.append(ev.StepCompleted(at=run.now_us(), path=call.path, attempt=number, output=run.keep(late.output)))
            raise asyncio.CancelledError from None
        except asyncio.CancelledError:
            self._cut_off(effect, number, started_at)
            raise
        except BaseException as error:
            if isinstance(error, Suspended | GeneratorExit):
                raise
            failure = describe(error)
            self._failed(failure, tool, effect, number, started_at, round((run.loop_time() - began) * 1e6))
            return
        completed = ev.StepCompleted(
            at=run.now_us(),
            path=call.path,
            attempt=number,
            output=run.keep(output),
            started_at=started_at,
            duration_us=int((run.loop_time() - began) * 1e6),
            tool=tool.name if fallback else "",
        )
        if not fallback and self._cache_s():
            run.append(completed, cached=self._to_cache(output))
        else:
            run.append(completed)

    async def _durable(self, number: int, started_at: int) -> None:
        try:
            await self.run.durable()
        except asyncio.CancelledError:
            if self.run.cause is None and self.run.log.error is None:
                self._interrupted(number, started_at)  # whatever its effect: the tool was never called
            raise

    def _cut_off(self, effect: Effect, number: int, started_at: int) -> None:
        """The program cancelled its own step, as when another branch failed. (If all is cut, the driver records it.)"""
        run, path = self.run, self.call.path
        if run.cause is not None or run.log.error is not None:
            return
        if effect == "once":
            why = "its program cancelled it while it ran"
            run.append(ev.StepInDoubt(at=run.now_us(), path=path, why=why, attempt=number))
        else:
            self._interrupted(number, started_at)

    def _interrupted(self, number: int, started_at: int) -> None:
        run = self.run
        run.append(ev.StepInterrupted(at=run.now_us(), path=self.call.path, attempt=number, started_at=started_at))

    def _started(
        self, at: int, number: int, tool: Tool[..., Any], fallback: int, arguments: bytes, step: Step | None = None
    ) -> ev.StepStarted:
        return ev.StepStarted(
            at=at,
            path=self.call.path,
            tool=tool.name,
            attempt=number,
            kind=self.call.kind,
            effect=self._effect(tool),
            arguments=self.run.keep(arguments),
            digest=self.digest,
            title=self.call.title,
            fallback=fallback,
            reduced=step.reduced if step is not None else False,
            refreshed=step.refreshed if step is not None else False,
        )

    def _tool_of(self, step: Step) -> Tool[..., Any]:
        """The step's own tool, or the fallback it has come to."""
        return self.call.fallbacks[step.fallback - 1].tool if step.fallback else self.call.tool

    def _effect(self, tool: Tool[..., Any]) -> Effect:
        return self.call.policy.effect or tool.effect

    def _to_cache(self, output: bytes) -> tuple[CacheItem, ...]:
        cache_s = self._cache_s() or 0.0
        return (CacheItem(self._cache_key(), output, self.run.now_us() + int(cache_s * 1e6)),)

    async def _arguments_of(self, step: Step) -> bytes:
        """The input of the next attempt: what the last one had, reduced or for the fallback if that was decided."""
        fallback = self.call.fallbacks[step.fallback - 1] if step.fallback else None
        if fallback is not None and fallback.arguments is not None:
            return encode(fallback.arguments, f"the fallback arguments of {step.path}")
        return await self.run.value(step.arguments) if step.arguments else self.asked

    # ---- what follows a failure ---------------------------------------------------------------------------------

    def _failed(
        self, failure: Failure, tool: Tool[..., Any], effect: Effect, number: int, started_at: int, duration_us: int
    ) -> None:
        run, call = self.run, self.call
        step = run.state.steps[call.path]
        decision = decide(failure, self._means(tool, effect), tally(step), run.services.dice.random())
        at = run.now_us()
        match decision:
            case Doubt():
                run.append(ev.StepInDoubt(at=at, path=call.path, attempt=number, why=failure.message))
            case AskForCorrection():
                ask_for_correction(run, call, step, self.call.stakes.described(failure))
            case GiveUp():
                self._fail(step, failure, started_at=started_at, duration_us=duration_us)
            case _:
                run.append(retrying(step, decision, failure, at, started_at, duration_us))

    def _means(self, tool: Tool[..., Any], effect: Effect) -> Means:
        return Means(
            effect=effect,
            retry=self.call.policy.retry or tool.retry,
            fallbacks=len(self.call.fallbacks),
            can_reduce=tool.can_reduce,
            can_refresh=tool.can_refresh,
            on_error=self.call.policy.on_error,
            repeats_known=self.call.policy.retry is not None,
        )

    def _fail(self, step: Step, failure: Failure, *, by: str = "", started_at: int = 0, duration_us: int = 0) -> None:
        described = self.call.stakes.described(failure)
        self.run.append(
            ev.StepFailed(
                at=self.run.now_us(),
                path=step.path,
                failure=described,
                attempt=step.attempt or 1,
                critical=self.call.stakes.critical,
                started_at=started_at,
                duration_us=duration_us,
                by=by,
            )
        )

    # ---- ways out -----------------------------------------------------------------------------------------------

    async def _verify(self, step: Step) -> None:
        arguments = await self._arguments_of(step)
        match await verified(self._tool_of(step), arguments, self._as_call(step)):
            case bytes() as output:
                self._complete(step, output)
            case DidNotHappen():
                await self._attempt(step, arguments)
            case _:
                ask_in_doubt(self.run, self.call, step)

    def _as_call(self, step: Step) -> Call:
        return self.run.make_call(step.path, step.attempt, step.notes)

    async def _remedy(self, step: Step) -> None:
        """Do what a person chose."""
        asked = self.run.state.requests[step.request_id]
        data = await self.run.value(asked.data) if asked.data else None
        match asked.remedy:
            case "done":
                self._complete(step, data if data is not None else b"null", asked.by)
            case "again":
                base = await self._arguments_of(step)
                await self._attempt(step, edited(base, data))
            case "skip":
                reason = f"skipped by {asked.by}" if asked.by else "skipped by a person"
                self.run.append(ev.StepSkipped(at=self.run.now_us(), path=step.path, reason=reason, by=asked.by))
            case "fallback":
                failure = step.failure or Failure(category="unknown", message=doubtful(step))
                self.run.append(retrying(step, FallBack(step.fallback), failure, self.run.now_us()))
            case _:
                failure = step.failure or Failure(category="unknown", message=doubtful(step), happened="unknown")
                self._fail(step, failure, by=asked.by)

    def _complete(self, step: Step, output: bytes, by: str = "") -> None:
        run = self.run
        run.append(
            ev.StepCompleted(
                at=run.now_us(), path=step.path, attempt=step.attempt, output=run.keep(output),
                started_at=step.started_at, by=by,
            )
        )  # fmt: skip


_Move = Callable[[_Runner, Step | None], Awaitable[None]]
_MOVES: dict[str, _Move] = {
    "pending": _Runner.begin,
    "waiting": _Runner.go_on_waiting,
    "retrying": _Runner.retry,
    "running": _Runner.again_after_loss,
    "interrupted": _Runner.again_after_loss,
    "in_doubt": _Runner.settle_doubt,
}


async def _diverged(run: Driver, call: StepCall, step: Step, digest: str, asked: bytes) -> None:
    """The program asks for something else than it did. A function must not go on; in a plan, what happened counts."""
    if not call.strict:
        if not step.diverged:
            run.append(ev.StepDiverged(at=run.now_us(), path=call.path, recorded=step.digest, attempted=digest))
        return
    first = await run.recorded_start(call.path)
    recorded = f"{first.tool} {_short(bytes(first.arguments))}" if first is not None else step.tool
    raise run.diverged(call.path, recorded, f"{call.tool.name} {_short(asked)}")


def _short(value: bytes, limit: int = 200) -> str:
    text = value.decode("utf-8", "replace")
    return text if len(text) <= limit else text[:limit] + "…"
