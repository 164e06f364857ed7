"""Drives one execution in the foreground until it has ended or only a person can move it.

Owns what Ctrl-C, SIGTERM and a closed terminal mean. The journal is the engine's business: whatever happens here,
nothing that was durable is lost, and what was not finished can be resumed.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from holdfast.cli.common.context import bare_engine, left_alone
from holdfast.cli.common.invocation import holdfast
from holdfast.cli.foreground.prompt import ask_person
from holdfast.cli.foreground.signals import Signals
from holdfast.cli.foreground.step_mode import StepConfirmer
from holdfast.cli.output.format import is_terminal
from holdfast.cli.output.views import Audience, View, view_for
from holdfast.core.errors import Refused, StoreCorrupted
from holdfast.core.events import TaskWaiting
from holdfast.core.execution import Execution, parent_of
from holdfast.engine.at_rest import is_at_rest, is_left_alone, is_undriven, mover_of, waited_children
from holdfast.engine.engine import Engine
from holdfast.engine.json_view import why_held
from holdfast.engine.run import Run
from holdfast.journal.store import Head
from holdfast.settings import MEMORY, Settings

EXIT_CODES = {"completed": 0, "failed": 1, "stopped": 1, "paused": 3, "waiting": 3, "interrupted": 130}
_RESULT_KEYS = (
    "id", "name", "kind", "title", "status", "output", "error", "failed_step", "failure", "failures", "failed",
    "waiting_for", "steps_ended", "steps_total", "created_at", "started_at", "ended_at",
)  # fmt: skip
LOOK_S = 0.5  # how often to look again when nothing was announced
CATCH_UP_S = 5.0  # how long the last events may take to be shown
LONG_US = 60_000_000  # who waits for longer is told how to leave


async def stay(
    engine: Engine,
    run: Run,
    *,
    as_json: bool,
    no_ask: bool,
    since: int = 0,
    note: str = "",
    turnstile: StepConfirmer | None = None,
) -> int:
    """Drive it, or follow whoever does, as long as there is something to see."""
    signals = Signals()
    signals.listen()  # from here on the first step may begin
    view = view_for(as_json)
    head = await run.head()
    follows = head.driver != engine.services.driver and not is_undriven(head, engine.is_dead)
    if follows and turnstile is not None:
        raise Refused(f"another process drives {run.id}, and --step can only hold what this one drives")
    if follows:
        view.note(f"another process drives {run.id}; following it{_should_it_be_dead(engine)}")
    elif note:
        view.note(note)
    asks = not (no_ask or as_json or follows) and is_terminal() and is_terminal(sys.stdin)
    foreground = Foreground(engine, run, view, asks=asks, follows=follows, turnstile=turnstile, signals=signals)
    return await foreground.drive(since)


def _should_it_be_dead(engine: Engine) -> str:
    """A dead process holds no lock, but on a server it holds its lease until that has run out."""
    address = getattr(engine.services.store, "address", None)
    return f"; if it is dead, its lease runs out within {address.lease_s:g} s" if address is not None else ""


class Foreground:
    """`asks`: a person sits at this terminal. `follows`: another process drives, this one only looks on.

    `stays`: nobody sits here, so it is waited for people's answers, too. `turnstile`: the person is asked before each
    step.
    """

    def __init__(  # noqa: PLR0913 -- what it drives, and each thing that may be different about it
        self,
        engine: Engine,
        run: Run,
        view: View,
        *,
        asks: bool = False,
        follows: bool = False,
        stays: bool = False,
        turnstile: StepConfirmer | None = None,
        signals: Signals | None = None,
    ) -> None:
        self._engine = engine
        self._run = run
        self._view = Audience(view)
        self._asks = asks
        self._follows = follows
        self._turnstile = turnstile
        self._floor = asyncio.Lock()  # whoever speaks: events are not shown in the middle of a question
        self._stays = stays
        self._shown = 0
        self._knows_how_to_leave = follows or stays
        self._signals = signals or Signals()
        self._signals.before_leaving = self._view.rest

    async def drive(self, since: int = 0) -> int:
        """Show events after number `since` until nothing more can happen here. Returns the exit code."""
        self._signals.listen()
        self._view.begin(await self._run.state() if since else Execution(id=self._run.id))
        self._shown = since
        watcher = asyncio.create_task(self._watch(since))
        try:
            code = await self._until_settled(watcher)
            lets_go = code is not None and self._signals.number and not self._follows
            if not lets_go:  # or else the engine closes first: nothing more is to begin
                await self._catch_up(watcher)
        finally:
            watcher.cancel()
            self._view.rest()
        result = await (self._after_draining() if lets_go else result_of(self._engine, self._run))
        self._view.end(result)
        if self._follows and self._view.has_left:
            return 0
        return code if code is not None else EXIT_CODES.get(result["status"], 1)

    async def _until_settled(self, watcher: asyncio.Task[None]) -> int | None:
        """None when the execution's status decides the exit code."""
        while True:
            head = await self._settled_or_signalled(watcher)
            if head is None:
                if self._signals.number != signal.SIGINT and not self._follows:
                    self._view.note(f"letting go; it goes on with: {holdfast()} resume {self._run.id}")
                    return 128 + self._signals.number
                if self._follows:
                    self._view.note(await self._without_us())
                    return 128 + self._signals.number
                await self._interrupt()
                continue
            if head.quarantined:
                raise StoreCorrupted(f"execution {head.id} is set aside: {head.quarantined}; run `holdfast doctor`")
            if held := why_held(head):
                self._view.note(f"it is held: {held}")
                return EXIT_CODES["waiting"]
            if self._turnstile is not None and self._turnstile.is_wanted:
                await self._ask_about_step(self._turnstile)
            elif head.status != "waiting" or not self._asks or not await self._ask():
                return None

    async def _after_draining(self) -> dict[str, Any]:
        """Running steps may still finish while the engine closes; how it stands is known when they have."""
        settings: Settings | None = getattr(self._engine, "settings", None)
        if settings is None or settings.store == MEMORY:
            return await result_of(self._engine, self._run)
        await self._engine.close()
        async with bare_engine(settings) as looking:
            run = looking.get(self._run.id)
            last = (await run.head()).seq
            if self._shown < last:
                async for watched in run.watch(self._shown):
                    self._view.show(await watched.whole(looking.services.store))
                    self._shown = watched.seq or self._shown
                    if self._shown >= last:
                        break
            return await result_of(looking, run)

    async def _without_us(self) -> str:
        if is_left_alone(await self._run.head(), self._engine.is_dead):
            return left_alone(self._run.id)
        return f"it goes on in the other process; to interrupt it: {holdfast()} interrupt {self._run.id}"

    async def _interrupt(self) -> None:
        self._signals.came.clear()
        self._view.note("interrupting; Ctrl-C again leaves at once and loses nothing")
        with suppress(Refused):  # it ended in the meantime
            await self._run.interrupt(why="Ctrl-C")

    async def _ask(self) -> bool:
        """Put the open requests to the person; False when they are left for later."""
        await self._catch_up(None)
        async with self._floor:
            self._view.rest()
            for execution_id, request in await open_requests(self._engine, self._run):
                answered = await ask_person(self._engine.get(execution_id), request, self._signals.came)
                if self._signals.came.is_set():
                    return True
                if not answered:
                    return False
        return True

    async def _ask_about_step(self, turnstile: StepConfirmer) -> None:
        await self._catch_up(None)
        async with self._floor:
            self._view.rest()
            await turnstile.ask(self._run, self._signals.came)

    async def _settled_or_signalled(self, watcher: asyncio.Task[None]) -> Head | None:
        settled = asyncio.create_task(self._settled())
        signalled = asyncio.create_task(self._signals.came.wait())
        try:
            await asyncio.wait({settled, signalled}, return_when=asyncio.FIRST_COMPLETED)
            if self._signals.came.is_set():
                return None
            if watcher.done():
                watcher.result()
            return settled.result()
        finally:
            for task in (settled, signalled):
                task.cancel()
            await asyncio.gather(settled, signalled, return_exceptions=True)

    async def _settled(self) -> Head:
        feed = self._engine.services.feed
        subscription = feed.subscribe(self._run.id)
        try:
            while True:
                subscription.changed.clear()
                head = await self._run.head()
                if self._turnstile is not None:
                    self._turnstile.tell = subscription.changed.set
                    if self._turnstile.is_wanted:
                        return head
                is_waiting_here = self._stays and head.status == "waiting"
                if not is_waiting_here and await is_at_rest(self._engine, head):
                    return head
                if self._follows and self._view.has_left:
                    return head
                self._engine.raise_problem(self._run.id)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await subscription.changed.wait()
        finally:
            feed.unsubscribe(self._run.id, subscription)

    # ---- showing ------------------------------------------------------------------------------------------------

    async def _watch(self, since: int) -> None:
        async for watched in self._run.watch(since):
            whole = await watched.whole(self._engine.services.store)
            async with self._floor:
                self._view.show(whole)
                if isinstance(whole.event, TaskWaiting):
                    self._say_how_to_leave(whole.event)
            if watched.seq is not None:
                self._shown = watched.seq

    def _say_how_to_leave(self, waiting: TaskWaiting) -> None:
        """Once, if nobody but time or somebody outside can move it for long: this process stays until then."""
        until = [reason.due_at for reason in waiting.reasons if mover_of(reason) in ("time", "event")]
        soonest = min((due_at for due_at in until if due_at is not None), default=None)
        is_long = soonest is None or soonest > self._engine.services.clock.now_us() + LONG_US
        if not self._knows_how_to_leave and until and len(until) == len(waiting.reasons) and is_long:
            self._knows_how_to_leave = True
            self._view.note(
                "this command stays until then; Ctrl-C loses nothing, and it goes on in the background with: "
                f"{holdfast()} resume {self._run.id} --detach"
            )

    async def _catch_up(self, watcher: asyncio.Task[None] | None) -> None:
        """Everything durable is shown before the last word."""
        last = (await self._run.head()).seq
        give_up = time.monotonic() + CATCH_UP_S
        while self._shown < last and time.monotonic() < give_up:
            if watcher is not None and watcher.done():
                return watcher.result()
            await asyncio.sleep(0.005)


async def open_requests(engine: Engine, run: Run) -> list[tuple[str, Mapping[str, Any]]]:
    """What is asked of people by this execution and by the children it waits for, each with the execution's id."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    waiting = [run.id]
    while waiting:
        shown: Any = await engine.get(waiting.pop()).show()
        found += [(shown["id"], request) for request in shown["requests"]]
        waiting += await waited_children(engine, await engine.get(shown["id"]).head()) if shown["reasons"] else []
    return found


async def result_of(engine: Engine, run: Run) -> dict[str, Any]:
    """How an execution stands: the last line of `--json`."""
    shown: dict[str, Any] = await run.show()
    result = {key: shown[key] for key in _RESULT_KEYS}
    result["steps_completed"] = sum(
        step["status"] == "completed" and not parent_of(step["path"]) for step in shown["steps"]
    )
    result["driven"] = shown["driven"] and not engine.drives(run.id)
    if result["status"] == "completed":
        result["output"] = await run.result()
    asked = await open_requests(engine, run) if result["status"] == "waiting" else []
    result["requests"] = [{"execution_id": execution_id, **request} for execution_id, request in asked]
    return result
