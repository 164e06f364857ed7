"""`holdfast worker`: drives everything it can in this store, until it is told to end; then it drains.

This is what `holdfast service` keeps running. It asks nobody anything: what waits for a person goes on waiting, and is
taken up when the answer comes. It says one line when it takes an execution up and one when it lets go of it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.cli.common.context import settings_of, wait_for
from holdfast.cli.common.options import AsJson
from holdfast.cli.output.format import aside, count, json_line, local_time, status_word
from holdfast.core.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.app import Engine
    from holdfast.cli.foreground.signals import Signals
    from holdfast.core.execution import Execution
    from holdfast.journal.store import Head

LOOK_S = 0.2  # how often it is looked whether there is nothing left to do

Until = Literal["told", "rested", "idle"]


def register(app: typer.Typer) -> None:
    app.command()(worker)


def worker(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="End when all that can go on now has ended or waits.")] = False,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing can go on without a person; wait for timers.")
    ] = False,
    log: Annotated[str, typer.Option(metavar="FILE", help="Write to this file instead, 10 MB of it at most.")] = "",
    as_json: AsJson = False,
) -> int:
    """Drive every execution of this store that can be driven here, until SIGTERM or Ctrl-C.

    It takes up what nobody drives, what becomes due and what is answered. Told to end, it lets running steps finish
    for `limits.drain_s` and leaves the rest to be taken up again; its exit code is then 0.

    \b
    Example:
      holdfast worker
      holdfast worker --until-idle --json
    """
    settings = settings_of(context)
    if once and until_idle:
        raise UsageError("--once and --until-idle are two ways to end; give one of them")
    if log:
        _log_to(log)
    until: Until = "rested" if once else "idle" if until_idle else "told"

    async def work() -> int:
        from holdfast.app import Engine
        from holdfast.cli.foreground.signals import Signals
        from holdfast.cli.output.format import keep_stdout_for_answers

        signals = Signals()
        signals.listen()  # first of all: who is told to end while he begins must not just fall over
        teller = Teller(as_json)
        if as_json:
            keep_stdout_for_answers()
        async with Engine(settings=settings, recover="all") as engine:
            engine.tell(teller)
            teller.say("began", f"process {os.getpid()} drives what can be driven in {settings.store_shown}")
            code = await _stay(engine, signals, until, as_json)
        teller.say("ended", "everything is let go of")
        return code

    return wait_for(work())


def _log_to(log: str) -> None:
    from pathlib import Path

    from holdfast.cli.output.rotating_log import take_over_output
    from holdfast.settings import ensure_folder

    ensure_folder(Path(log).absolute().parent)
    try:
        take_over_output(Path(log))
    except OSError as error:
        raise UsageError(f"--log {log}: {error.strerror}; name a file that can be written") from None


async def _stay(engine: Engine, signals: Signals, until: Until, as_json: bool) -> int:
    """Until somebody says so or nothing is left to do. Returns the exit code."""
    import asyncio

    from holdfast.engine.at_rest import is_all_waiting, is_idle

    while not signals.came.is_set():
        if until != "told" and await (is_all_waiting(engine) if until == "rested" else is_idle(engine)):
            return 0
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S if until != "told" else None):
                await signals.came.wait()
    aside(f"draining for up to {engine.services.limits.drain_s:g} s; the same signal again leaves at once", as_json)
    return 128 + signals.number if signals.number == signal.SIGINT else 0


class Teller:
    """One line per execution taken up, let go of, or left alone: for a log file or for another program."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def taken(self, state: Execution) -> None:
        self._tell("taken", state)

    def let_go(self, state: Execution, problem: HoldfastError | None) -> None:
        self._tell("let_go", state, problem=str(problem) if problem else None)

    def left(self, head: Head, why: str) -> None:
        shown = {"id": head.id, "name": head.name, "title": head.title, "status": head.status, "problem": why}
        self.say("left", f"{head.name} ({head.id}) is left as it is: {why}", shown)

    def deleted(self, execution_ids: Sequence[str]) -> None:
        text = f"deleted {count(len(execution_ids), 'execution')}, as retention says: {' '.join(execution_ids)}"
        self.say("deleted", text, {"ids": list(execution_ids)})

    def _tell(self, event: str, state: Execution, problem: str | None = None) -> None:
        created = state.facts()
        name = state.title or created.program.name
        shown = {"id": state.id, "name": created.program.name, "title": state.title, "status": state.status}
        waiting_for = sorted({reason.kind for reason in state.reasons}) if state.status == "waiting" else []
        if event == "taken":
            text = f"took up {name} ({state.id})"
        elif problem or state.status == "running":
            text = f"let go of {name} ({state.id})" + (f": {problem}" if problem else "; it can be taken up again")
        else:
            waits = f" for {', '.join(waiting_for)}" if waiting_for else ""
            text = f"{status_word(state.status)}{waits}: {name} ({state.id})"
        self.say(event, text, {**shown, "waiting_for": waiting_for, "problem": problem})

    def say(self, event: str, text: str, more: Mapping[str, Any] | None = None) -> None:
        from datetime import UTC, datetime

        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._as_json:
            print(json_line({"at": at, "event": event, **(more or {"text": text})}), flush=True)
        else:
            print(f"{local_time(at)}  {text}", flush=True)
