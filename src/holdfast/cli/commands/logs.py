"""`logs`: what tools said, printed and logged, by step and attempt; what is stored first, then what comes.

A line comes by twice, live and with its attempt's outcome, in either order: the second time it is passed over.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.cli.commands.inspect import telling_when_left_alone
from holdfast.cli.common import completions
from holdfast.cli.common.context import bare_engine, settings_of, wait_for
from holdfast.cli.common.options import AsJson, Id, not_empty
from holdfast.cli.output.format import aside, json_line, local_time, paint, strip_control_chars
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import NotFound

if TYPE_CHECKING:
    from holdfast.core.events import StepLogged, TaskError, TaskMessage
    from holdfast.engine.engine import Engine
    from holdfast.engine.run import Run
    from holdfast.tools.runtime.attempt_log import Logbook, LogLine

PAGE_EVENTS = 1000
_COLOURS = {"stderr": "yellow", "warning": "yellow", "error": "red", "critical": "red", "dropped": "dim"}


class LogSelection(NamedTuple):
    """Of which step, with everything inside it, and of which attempt; "" and 0 are all."""

    step: str = ""
    attempt: int = 0

    def fits(self, path: str, attempt: int) -> bool:
        inside = not self.step or path == self.step or path.startswith((f"{self.step}/", f"{self.step}["))
        return inside and self.attempt in (0, attempt)


class LogRecord(NamedTuple):
    path: str
    attempt: int
    line: LogLine


def register(app: typer.Typer) -> None:
    app.command()(logs)


def logs(
    context: typer.Context,
    execution: Id,
    step: Annotated[
        str,
        typer.Argument(
            metavar="[STEP]",
            help="Only of this step and what is inside it.",
            autocompletion=completions.steps,
            callback=not_empty,
        ),
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay and print what comes, until the end.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only of this attempt.")] = None,
    as_json: AsJson = False,
) -> int:
    """Print what tools said, printed and logged: time, step, attempt, stream and line.

    \b
    Example:
      holdfast logs @last
      holdfast logs @last fetch --attempt 2
      holdfast logs @last --follow
    """
    settings = settings_of(context)
    wanted = LogSelection(step, attempt or 0)

    async def work() -> None:
        async with bare_engine(settings) as engine:
            run = await engine.find(execution)
            await _check_step(run, step)
            found = 0
            async with telling_when_left_alone(engine, run, as_json) if follow else nullcontext():
                async for said in _followed(engine, run, wanted) if follow else _stored(engine, run, wanted):
                    found += 1
                    print(_as_json(said) if as_json else _as_text(said), flush=follow)
            if not found:
                aside(f"nothing was said{f' by {step}' if step else ''}, or nothing of it is stored yet", as_json)

    wait_for(work())
    return 0


async def _check_step(run: Run, step: str) -> None:
    if not step:
        return
    from holdfast.engine.json_view import planned_steps

    state = await run.state()
    known = {*state.steps, *planned_steps(state)}
    if not any(LogSelection(step).fits(path, 1) for path in known):
        raise NotFound(f'there is no step "{step}" in {run.id}{did_you_mean(step, sorted(known))}')


# ---- what is stored ------------------------------------------------------------------------------------------------


async def _stored(engine: Engine, run: Run, wanted: LogSelection) -> AsyncIterator[LogRecord]:
    from holdfast.core.events import StepLogged, TaskError
    from holdfast.journal.log import read_events

    after = 0
    while page := await read_events(engine.services.store, run.id, after, PAGE_EVENTS):
        for seq, event in page:
            after = seq
            if isinstance(event, StepLogged) and wanted.fits(event.path, event.attempt):
                for said in await _lines_of(engine, event):
                    yield said
            elif isinstance(event, TaskError) and wanted.fits("", 1):
                for said in await _trace_of(engine, event):
                    yield said


async def _trace_of(engine: Engine, event: TaskError) -> list[LogRecord]:
    """Of what a function raised in its own body, which is no step."""
    from holdfast.journal.blobs import fetch_value
    from holdfast.tools.runtime.attempt_log import LogLine

    trace: str | None = json.loads(await fetch_value(engine.services.store, event.trace))
    return [LogRecord("", 1, LogLine(event.at, "error", text)) for text in (trace or "").splitlines()]


async def _lines_of(engine: Engine, event: StepLogged) -> list[LogRecord]:
    from holdfast.journal.blobs import fetch_blob
    from holdfast.tools.runtime.attempt_log import decode_lines

    body = await fetch_blob(engine.services.store, event.log)
    return [LogRecord(event.path, event.attempt, line) for line in decode_lines(body)]


# ---- what comes ----------------------------------------------------------------------------------------------------


async def _followed(engine: Engine, run: Run, wanted: LogSelection) -> AsyncIterator[LogRecord]:
    from holdfast.core.events import StepLogged, TaskError, TaskMessage

    live = _Live()
    async for watched in run.watch():
        event: Any = watched.event
        if isinstance(event, TaskMessage):
            found = live.lines_of(event)
        elif isinstance(event, StepLogged):
            found = live.not_shown(event, await _lines_of(engine, event))
        elif isinstance(event, TaskError) and not event.path:
            found = await _trace_of(engine, event)
        else:
            continue
        if wanted.fits(event.path, getattr(event, "attempt", 1)):
            for said in found:
                yield said


class _Live:
    """What was shown already, while it was said or when it was stored, so that it is not shown again."""

    def __init__(self) -> None:
        self._books: dict[tuple[str, int], Logbook] = {}  # join pieces to lines, as the driver does
        self._live: dict[tuple[str, int], tuple[int, int]] = {}  # from when to when lines were shown live
        self._stored: dict[tuple[str, int], int] = {}

    def lines_of(self, frame: TaskMessage) -> list[LogRecord]:
        from holdfast.tools.runtime.attempt_log import HEARD, SAID, Logbook

        stream = frame.role if frame.role in HEARD else SAID
        key = (frame.path, frame.attempt)
        if frame.at <= self._stored.get(key, -1):
            return []
        if key not in self._books:
            self._books[key] = Logbook(frame.at)
        lines = self._books[key].write(frame.at, stream, frame.content, ends=not frame.streaming)
        if lines:
            first, _ = self._live.get(key, (frame.at, 0))
            self._live[key] = (first, frame.at)
        return [LogRecord(*key, line) for line in lines]

    def not_shown(self, event: StepLogged, lines: list[LogRecord]) -> list[LogRecord]:
        key = (event.path, event.attempt)
        self._books.pop(key, None)
        self._stored[key] = max(said.line.at for said in lines)
        first, last = self._live.get(key, (0, -1))
        return [said for said in lines if not first <= said.line.at <= last]


# ---- how it is put -------------------------------------------------------------------------------------------------


def _as_text(said: LogRecord) -> str:
    from holdfast.engine.json_view import iso

    again = f"#{said.attempt}" if said.attempt > 1 else ""
    at, stream = local_time(iso(said.line.at)), said.line.stream
    line = strip_control_chars(said.line.text)
    text = paint(line, _COLOURS[stream]) if stream in _COLOURS else line
    path = f"  {said.path}{again}" if said.path else ""
    return f"{at}{path}  {stream:<7}  {text}"


def _as_json(said: LogRecord) -> str:
    from holdfast.engine.json_view import iso

    line = said.line
    fields = {"at": iso(line.at), "path": said.path, "attempt": said.attempt, "stream": line.stream}
    return json_line({**fields, "text": line.text})
