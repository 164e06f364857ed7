"""Commands that begin anew with what another execution has done: retry and fork. Each drives what it has begun."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common import completions
from holdfast.cli.common.bulk import ONE, Many, Selection, do_many
from holdfast.cli.common.bulk_resume_retry import retrying
from holdfast.cli.common.context import driving_engine, existing_store, settings_of, wait_for
from holdfast.cli.common.options import (
    AsJson,
    Id,
    Inputs,
    MaybeId,
    NoAsk,
    UsedAtMost,
    not_empty,
    resources_said,
    spread,
)
from holdfast.cli.common.program_args import locate, typed_inputs
from holdfast.cli.output.format import count, one_line, strip_control_chars
from holdfast.core.errors import UsageError

if TYPE_CHECKING:
    from holdfast.app import Engine
    from holdfast.engine.run import Run
    from holdfast.settings import Settings


def register(app: typer.Typer) -> None:
    for command in (retry, fork):
        app.command()(command)


@spread
def retry(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    execution: MaybeId = "",
    from_step: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="STEP",
            help="Run again from this step on.",
            autocompletion=completions.steps,
            callback=not_empty,
        ),
    ] = "",
    plan: Annotated[str, typer.Option(metavar="FILE", help="A corrected plan to go on with.")] = "",
    given: Inputs = None,
    resource: UsedAtMost = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was retried or forked before.")] = False,
    selection: Selection = ONE,
    as_json: AsJson = False,
    no_ask: NoAsk = False,
) -> int:
    """Run again what did not complete, as a new execution that keeps what did.

    Only what has ended is retried, and once: to do that a second time, say --again, or --from a step.

    With filters, all that fit are handed in again, but not what was retried before; they are driven by the engines that
    run, not by this command.

    \b
    Example:
      holdfast retry @last
      holdfast retry @last --from publish --plan report.yaml
      holdfast retry @last --resource memory=2GB
      holdfast retry --failed-step publish --since 1d
    """
    settings = settings_of(context)
    if selection.is_meant(execution):
        if from_step or plan or given or resource:
            raise UsageError("--from, --plan, -i and --resource go with the ID of one execution")
        many = Many(verb="retry", make=retrying, said={"again": again})
        return do_many(settings, many, selection, execution, as_json=as_json)

    resources = resources_said(resource)

    async def start(engine: Engine, found: Run) -> Run:
        subject = engine.preparer.find(locate(plan, settings)) if plan else None
        inputs = typed_inputs(engine.preparer, subject or await _program_of(found), given, None)
        return await engine.retry(
            found.id, from_step=from_step, program=subject, inputs=inputs, resources=resources, again=again
        )

    return _drive_new(settings, execution, start, as_json=as_json, no_ask=no_ask)


def fork(
    context: typer.Context,
    execution: Id,
    at: Annotated[
        str,
        typer.Option(
            metavar="STEP",
            help="Keep what was done before this step.",
            autocompletion=completions.steps,
            callback=not_empty,
        ),
    ] = "",
    as_json: AsJson = False,
    no_ask: NoAsk = False,
) -> int:
    """Begin a new execution with the outcomes of another one, up to a step.

    \b
    Example:
      holdfast fork @last --at publish
    """

    async def start(engine: Engine, found: Run) -> Run:
        return await engine.fork(found.id, at=at)

    return _drive_new(settings_of(context), execution, start, as_json=as_json, no_ask=no_ask)


def _drive_new(
    settings: Settings, execution: str, start: Callable[[Engine, Run], Awaitable[Run]], *, as_json: bool, no_ask: bool
) -> int:
    existing_store(settings)

    async def work() -> int:
        from holdfast.cli.foreground.foreground import stay

        async with driving_engine(settings) as engine:
            found = await engine.find(execution)
            started = await start(engine, found)
            since, kept = await _kept(engine, started)
            head = await started.head()
            name = one_line(strip_control_chars(head.title or head.name))
            note = f"{name} is execution {head.id}\nkept from {found.id}: {count(kept, 'step')}"
            since = 0 if as_json else since  # programs get every event, people what really happens
            return await stay(engine, started, since=since, note=note, as_json=as_json, no_ask=no_ask)

    return wait_for(work())


async def _kept(engine: Engine, run: Run) -> tuple[int, int]:
    """Of a new execution: the number of its last copied event, and how many steps those complete.

    Steps inside a completed one are not counted.
    """
    from holdfast.core import events as ev
    from holdfast.core.execution import parent_of
    from holdfast.journal.log import read_events

    last, completed = 0, set[str]()
    for seq, event in await read_events(engine.services.store, run.id, 0):
        if isinstance(event, ev.TaskStarted):
            break
        last = seq
        if isinstance(event, ev.StepCompleted):
            completed.add(event.path)

    def is_outermost(path: str) -> bool:
        while path := parent_of(path):
            if path in completed:
                return False
        return True

    return last, sum(map(is_outermost, completed))


async def _program_of(run: Run) -> str | Mapping[str, Any]:
    import msgspec

    program = (await run.state()).facts().program
    return msgspec.json.decode(program.source) if program.kind == "plan" else program.name
