"""Commands that drive: run, resume, retry, fork. Each stays until the execution ends or only a person can move it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import candidates
from holdfast.cli.bulk import ONE, Many, Selection, do_many
from holdfast.cli.detaching import Detach, check_detachable, detach
from holdfast.cli.going_on import resuming, retrying
from holdfast.cli.options import (
    AsJson,
    Id,
    Inputs,
    MaybeId,
    OtherFolder,
    Why,
    dollars,
    not_empty,
    pairs,
    read_inputs_file,
    spread,
)
from holdfast.cli.place import driving_engine, existing_store, now_us, settings_of, wait_for
from holdfast.cli.text import count, is_terminal, json_line, one_line, tame
from holdfast.core.errors import InputInvalid, Misconfigured, Refused, UsageError

if TYPE_CHECKING:
    from holdfast.app import Engine
    from holdfast.cli.stepping import Turnstile
    from holdfast.engine.keeping import Recovery
    from holdfast.engine.run import Run
    from holdfast.journal.store import Head
    from holdfast.programs.prepare import Preparer
    from holdfast.settings import Settings

PLAN_ENDINGS = (".yaml", ".yml", ".json")
OneByOne = Annotated[bool, typer.Option("--step", help="Ask at the terminal before each step.")]
NoAsk = Annotated[bool, typer.Option("--no-ask", help="Do not ask at the terminal; exit 3 when a person is needed.")]


def register(app: typer.Typer) -> None:
    for command in (run, resume, retry, fork):
        app.command()(command)


def run(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM", help="A plan file, or the name of a function.", autocompletion=candidates.programs
        ),
    ],
    given: Inputs = None,
    inputs_file: Annotated[str, typer.Option("--inputs", metavar="FILE", help="Inputs as a JSON object.")] = "",
    key: Annotated[str, typer.Option(help="The same key again means the same execution.")] = "",
    owner: Annotated[str, typer.Option(help="Whom it belongs to.")] = "",
    title: Annotated[str, typer.Option(help="A title in place of the program's own.")] = "",
    label: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A label. Repeatable.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="USD", help="What it may spend, in US dollars.")] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Hand it in without starting it.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check it; start nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, with which arguments.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Ask every tool anew.")] = False,
    step: OneByOne = False,
    detached: Detach = False,
    as_json: AsJson = False,
    no_ask: NoAsk = False,
) -> int:
    """Run a plan or a function to its end.

    Ctrl-C interrupts and says how to resume. Exit codes: 0 completed, 1 failed or stopped, 2 wrong use, 3 paused or
    waiting for a person, 130 interrupted, 143 told to end (SIGTERM): what it drove can be resumed.

    \b
    Example:
      holdfast run report.yaml -i topic=tides
      holdfast run report.yaml -i topic=tides --dry-run
      holdfast run report.yaml --detach
    """
    settings = settings_of(context)
    labels = pairs(label, "--label")
    spendable = dollars(budget, "--budget")
    subject = locate(program, settings)
    from_file = read_inputs_file(inputs_file) if inputs_file else {}
    if detached:
        check_detachable(settings, starts=not (hold or check or dry_run), asks=step)
    if check or dry_run:
        from holdfast.app import preparer_of
        from holdfast.cli.dry import look_ahead

        preparer = preparer_of(settings)  # no engine: looking leaves no journal behind
        inputs = {**from_file, **typed_inputs(preparer, subject, given, from_file)}
        return look_ahead(preparer, subject, inputs, dry_run=dry_run, as_json=as_json)
    turnstile = _turnstile(step, no_ask or as_json)

    async def work() -> int:
        async with driving_engine(settings, turnstile, recover=_recovery(detached)) as engine:
            inputs = {**from_file, **typed_inputs(engine.preparer, subject, given, from_file)}
            began_at = now_us()
            try:
                started = await engine.start(
                    subject, inputs=inputs, owner=owner, key=key, title=title, labels=labels, hold=hold,
                    budget=spendable, cache=not no_cache,
                )  # fmt: skip
            except Misconfigured as error:  # nothing was started, so to whoever typed it it is wrong use
                raise UsageError(str(error)) from None
            if hold:
                return _tell_held(started.id, as_json)
            if detached:
                return await detach(engine, started, as_json)
            note = _known_by(key, await started.head(), began_at) if key else ""
            return await _drive(engine, started, note=note, as_json=as_json, no_ask=no_ask, turnstile=turnstile)

    return wait_for(work(), drives=not detached)


@spread
def resume(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    execution: MaybeId = "",
    file: Annotated[
        str, typer.Option("--from", metavar="FILE", help="Import it from a file first, unless it is here.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Go on though tools, folder or version have changed.")] = False,
    other_folder: OtherFolder = False,
    step: OneByOne = False,
    detached: Detach = False,
    why: Why = "",
    selection: Selection = ONE,
    as_json: AsJson = False,
    no_ask: NoAsk = False,
) -> int:
    """Go on with an execution: paused, interrupted, waiting, or left behind by a process that died.

    With filters, all that are held and fit are let go on; they are driven by the engines that run, not by this command.

    \b
    Example:
      holdfast resume @last
      holdfast resume --from report.json --other-folder
      holdfast resume --status paused --label team=harbour
      holdfast resume @last --detach
    """
    settings = settings_of(context)
    if file and execution:
        raise UsageError("say what to resume: the id of an execution, or --from FILE, and not both")
    if not file:
        for_many = selection.is_meant(execution)
        existing_store(settings)
        if for_many:
            if force or other_folder:
                raise UsageError(f"{'--force' if force else '--other-folder'} goes with the ID of one execution")
            many = Many(verb="resume", make=resuming, said={"why": why})
            return do_many(settings, many, selection, execution, as_json=as_json)
    turnstile = _turnstile(step, no_ask or as_json)
    if detached:
        check_detachable(settings, starts=True, asks=step)

    async def work() -> int:
        from holdfast.core.execution import steps_ended

        async with driving_engine(settings, turnstile, recover=_recovery(detached)) as engine:
            if file:
                found = engine.get((await engine.restore(file, force=force, other_folder=other_folder)).id)
            else:
                found = await engine.find(execution)
            since = (await found.head()).seq
            await engine.resume(found.id, why=why, force=force, other_folder=other_folder)
            if detached:
                return await detach(engine, found, as_json)
            head = await found.head()
            recorded = _recorded(head, steps_ended(await found.state()))
            note = f"going on with {one_line(tame(head.title or head.name))} ({head.id}), {recorded} in the journal"
            return await _drive(
                engine, found, since=since, note=note, as_json=as_json, no_ask=no_ask, turnstile=turnstile
            )

    return wait_for(work(), drives=not detached)


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
            autocompletion=candidates.steps,
            callback=not_empty,
        ),
    ] = "",
    plan: Annotated[str, typer.Option(metavar="FILE", help="A corrected plan to go on with.")] = "",
    given: Inputs = None,
    again: Annotated[
        bool, typer.Option("--again", help="With filters: also what was retried or forked before.")
    ] = False,
    selection: Selection = ONE,
    as_json: AsJson = False,
    no_ask: NoAsk = False,
) -> int:
    """Run again what did not complete, as a new execution that keeps what did.

    With filters, all that fit are handed in again, but not what was retried before; they are driven by the engines that
    run, not by this command.

    \b
    Example:
      holdfast retry @last
      holdfast retry @last --from publish --plan report.yaml
      holdfast retry --failed-step publish --since 1d
    """
    settings = settings_of(context)
    if selection.is_meant(execution):
        if from_step or plan or given:
            raise UsageError("--from, --plan and -i go with the ID of one execution")
        many = Many(verb="retry", make=retrying, said={"again": again})
        return do_many(settings, many, selection, execution, as_json=as_json)

    async def start(engine: Engine, found: Run) -> Run:
        subject = locate(plan, settings) if plan else None
        inputs = typed_inputs(engine.preparer, subject or await _program_of(found), given, None)
        return await engine.retry(found.id, from_step=from_step, program=subject, inputs=inputs)

    return _drive_new(settings, execution, start, as_json=as_json, no_ask=no_ask)


def fork(
    context: typer.Context,
    execution: Id,
    at: Annotated[
        str,
        typer.Option(
            metavar="STEP",
            help="Keep what was done before this step.",
            autocompletion=candidates.steps,
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


# ---- driving -------------------------------------------------------------------------------------------------------


def _recovery(detached: bool) -> Recovery:
    """A process that detaches leaves everything to the one it starts."""
    return "nothing" if detached else "family"


def _drive_new(
    settings: Settings, execution: str, start: Callable[[Engine, Run], Awaitable[Run]], *, as_json: bool, no_ask: bool
) -> int:
    existing_store(settings)

    async def work() -> int:
        async with driving_engine(settings) as engine:
            found = await engine.find(execution)
            started = await start(engine, found)
            since, kept = await _kept(engine, started)
            head = await started.head()
            name = one_line(tame(head.title or head.name))
            note = f"{name} is execution {head.id}\nkept from {found.id}: {count(kept, 'step')}"
            since = 0 if as_json else since  # programs get every event, people what really happens
            return await _drive(engine, started, since=since, note=note, as_json=as_json, no_ask=no_ask)

    return wait_for(work(), drives=True)


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


def _turnstile(wanted: bool, is_blind: bool) -> Turnstile | None:
    """Where every step is held until the person lets it through, if they want that and can be asked."""
    if not wanted:
        return None
    from holdfast.cli.stepping import Turnstile, refuse_without_terminal

    refuse_without_terminal(is_blind)
    return Turnstile()


async def _drive(
    engine: Engine,
    run: Run,
    *,
    as_json: bool,
    no_ask: bool,
    since: int = 0,
    note: str = "",
    turnstile: Turnstile | None = None,
) -> int:
    from holdfast.cli.drive import Foreground
    from holdfast.cli.views import view_for

    view = view_for(as_json)
    head = await run.head()
    follows = head.driver not in ("", engine.services.driver) and not engine.is_dead(head.driver)
    if follows and turnstile is not None:
        raise Refused(f"another process drives {run.id}, and --step can only hold what this one drives")
    if follows:
        view.note(f"another process drives {run.id}; following it{_should_it_be_dead(engine)}")
    elif note:
        view.note(note)
    asks = not (no_ask or as_json or follows) and is_terminal() and is_terminal(sys.stdin)
    return await Foreground(engine, run, view, asks=asks, follows=follows, turnstile=turnstile).drive(since)


def _known_by(key: str, head: Head, began_at: int) -> str:
    """That a key was used before, if it was: what is shown then is what has been, and looks like a second run."""
    if head.created_at >= began_at:
        return ""
    known = f"key {tame(key)} is execution {head.id}"
    if not head.ended_at:
        return f"{known}, which was begun before; no other one was started"
    return f"{known}, which {'was' if head.status == 'stopped' else 'has'} {head.status}; nothing was run again"


def _recorded(head: Head, ended: int) -> str:
    """The steps of the plan itself; of one that is nothing but a `for_each`, all that `ended` inside of it."""
    if head.total > 1:
        return f"{head.ended} of {head.total} steps are"
    return "1 step is" if ended == 1 else f"{ended} steps are"


def _should_it_be_dead(engine: Engine) -> str:
    """A dead process holds no lock, but on a server it holds its lease until that has run out."""
    address = getattr(engine.services.store, "address", None)
    return f"; if it is dead, its lease runs out within {address.lease_s:g} s" if address is not None else ""


# ---- what is run, and with what ------------------------------------------------------------------------------------


def locate(program: str, settings: Settings) -> str:
    """A plan file is meant from where the command was typed, and recorded from the project's folder."""
    if not program.endswith(PLAN_ENDINGS):
        return program
    path = (Path.cwd() / program).resolve()
    return str(path.relative_to(settings.root)) if path.is_relative_to(settings.root) else str(path)


def typed_inputs(
    preparer: Preparer, subject: str | Mapping[str, Any], given: list[str] | None, beside: Mapping[str, Any] | None
) -> dict[str, Any]:
    """`-i` texts as the types the program declares; every mistake at once. `beside`: see `parse_cli_inputs`."""
    from holdfast.core.inputs import parse_cli_inputs

    texts = pairs(given, "-i")
    if not texts:
        return {}
    found, problems = parse_cli_inputs(preparer.inputs_of(subject), texts, beside)
    if problems:
        raise InputInvalid("\n".join(["the inputs do not fit:", *(f"  {problem}" for problem in problems)]))
    return found


async def _program_of(run: Run) -> str | Mapping[str, Any]:
    import msgspec

    program = (await run.state()).facts().program
    return msgspec.json.decode(program.source) if program.kind == "plan" else program.name


def _tell_held(execution_id: str, as_json: bool) -> int:
    if as_json:
        print(json_line({"id": execution_id, "status": "queued", "held": True}))
    else:
        print(f"handed in and held as {execution_id}\nstart it with: holdfast resume {execution_id}")
    return 0
