"""Commands that drive: run, resume, retry, fork. Each stays until the execution ends or only a person can move it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import AsJson, Id, Inputs, pairs, read_inputs_file
from holdfast.cli.place import driving_engine, existing_store, settings_of, wait_for
from holdfast.cli.text import count, is_terminal, json_line
from holdfast.core.errors import InputInvalid

if TYPE_CHECKING:
    from holdfast.app import Engine
    from holdfast.engine.run import Run
    from holdfast.journal.store import Head
    from holdfast.settings import Settings

PLAN_ENDINGS = (".yaml", ".yml", ".json")
NoAsk = Annotated[bool, typer.Option("--no-ask", help="Do not ask at the terminal; exit 3 when a person is needed.")]


def register(app: typer.Typer) -> None:
    for command in (run, resume, retry, fork):
        app.command()(command)


def run(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="A plan file, or the name of a function.")],
    given: Inputs = None,
    inputs_file: Annotated[str, typer.Option("--inputs", metavar="FILE", help="Inputs as a JSON object.")] = "",
    key: Annotated[str, typer.Option(help="The same key again means the same execution.")] = "",
    owner: Annotated[str, typer.Option(help="Whom it belongs to.")] = "",
    title: Annotated[str, typer.Option(help="A title in place of the program's own.")] = "",
    label: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A label. Repeatable.")] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Hand it in without starting it.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check it; start nothing.")] = False,
    as_json: AsJson = False,
    no_ask: NoAsk = False,
) -> int:
    """Run a plan or a function to its end.

    Ctrl-C interrupts and says how to resume. Exit codes: 0 completed, 1 failed or stopped, 2 wrong use, 3 paused or
    waiting for a person, 130 interrupted, 143 told to end (SIGTERM): what it drove can be resumed.

    \b
    Example:
      holdfast run report.yaml -i topic=tides
      holdfast run report.yaml --check
    """
    settings = settings_of(context)
    labels = pairs(label, "--label")

    async def work() -> int:
        async with driving_engine(settings) as engine:
            subject = locate(program, settings)
            inputs = {**(read_inputs_file(inputs_file) if inputs_file else {}), **typed_inputs(engine, subject, given)}
            if check:
                return _tell_checked(await engine.check(subject, inputs=inputs), program, as_json)
            started = await engine.start(
                subject, inputs=inputs, owner=owner, key=key, title=title, labels=labels, hold=hold
            )
            if hold:
                return _tell_held(started.id, as_json)
            return await _drive(engine, started, as_json=as_json, no_ask=no_ask)

    return wait_for(work())


def resume(
    context: typer.Context,
    execution: Id,
    force: Annotated[bool, typer.Option("--force", help="Go on though tools, folder or version have changed.")] = False,
    as_json: AsJson = False,
    no_ask: NoAsk = False,
) -> int:
    """Go on with an execution: paused, interrupted, waiting, or left behind by a process that died.

    \b
    Example:
      holdfast resume @last
    """
    settings = settings_of(context)
    existing_store(settings)

    async def work() -> int:
        async with driving_engine(settings) as engine:
            found = await engine.find(execution)
            since = (await found.head()).seq
            await engine.resume(found.id, force=force)
            head = await found.head()
            note = f"going on with {head.title or head.name} ({head.id}), {_recorded(head)} in the journal"
            return await _drive(engine, found, since=since, note=note, as_json=as_json, no_ask=no_ask)

    return wait_for(work())


def retry(  # noqa: PLR0917 -- one parameter per option
    context: typer.Context,
    execution: Id,
    from_step: Annotated[str, typer.Option("--from", metavar="STEP", help="Run again from this step on.")] = "",
    plan: Annotated[str, typer.Option(metavar="FILE", help="A corrected plan to go on with.")] = "",
    given: Inputs = None,
    as_json: AsJson = False,
    no_ask: NoAsk = False,
) -> int:
    """Run again what did not complete, as a new execution that keeps what did.

    \b
    Example:
      holdfast retry @last
      holdfast retry @last --from publish --plan report.yaml
    """
    settings = settings_of(context)

    async def start(engine: Engine, found: Run) -> Run:
        subject = locate(plan, settings) if plan else None
        inputs = typed_inputs(engine, subject or await _program_of(found), given)
        return await engine.retry(found.id, from_step=from_step, program=subject, inputs=inputs)

    return _drive_new(settings, execution, start, as_json=as_json, no_ask=no_ask)


def fork(
    context: typer.Context,
    execution: Id,
    at: Annotated[str, typer.Option(metavar="STEP", help="Keep what was done before this step.")] = "",
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
            note = f"{head.title or head.name} is execution {head.id}\nkept from {found.id}: {count(kept, 'step')}"
            since = 0 if as_json else since  # programs get every event, people what really happens
            return await _drive(engine, started, since=since, note=note, as_json=as_json, no_ask=no_ask)

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


async def _drive(engine: Engine, run: Run, *, as_json: bool, no_ask: bool, since: int = 0, note: str = "") -> int:
    from holdfast.cli.drive import Foreground
    from holdfast.cli.views import view_for

    view = view_for(as_json)
    head = await run.head()
    follows = head.driver not in ("", engine.services.driver) and not engine.is_dead(head.driver)
    if follows:
        view.note(f"another process drives {run.id}; following it{_should_it_be_dead(engine)}")
    elif note:
        view.note(note)
    asks = not (no_ask or as_json or follows) and is_terminal() and is_terminal(sys.stdin)
    return await Foreground(engine, run, view, asks=asks, follows=follows).drive(since)


def _recorded(head: Head) -> str:
    if head.total > 1:
        return f"{head.ended} of {head.total} steps are"
    return "1 step is" if head.ended == 1 else f"{head.ended} steps are"


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


def typed_inputs(engine: Engine, subject: str | Mapping[str, Any], given: list[str] | None) -> dict[str, Any]:
    """`-i` texts as the types the program declares; every mistake at once."""
    from holdfast.core.inputs import parse_cli_input

    texts = pairs(given, "-i")
    if not texts:
        return {}
    specs = _input_specs(engine, subject)
    found: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in texts.items():
        try:
            found[name] = parse_cli_input(specs.get(name), text)
        except InputInvalid as error:
            problems.append(f"  inputs.{name}: {error}")
    if problems:
        raise InputInvalid("\n".join(["the inputs do not fit:", *problems]))
    return found


def _input_specs(engine: Engine, subject: str | Mapping[str, Any]) -> dict[str, Any]:
    from holdfast.core.inputs import InputSpec
    from holdfast.programs.prepare import read_document

    if isinstance(subject, Mapping):
        return engine.preparer.read(dict(subject), check_tools=False).inputs
    if subject.endswith(PLAN_ENDINGS):
        path = engine.settings.root / subject
        return engine.preparer.read(read_document(path), check_tools=True, name=path.stem).inputs
    if subject not in engine.services.registry.function_names():
        return {}  # refused by the engine, which knows all names
    schema: dict[str, Any] = engine.services.registry.function(subject).signature.schema()
    # A text stays a text for `str`; anything else is read as JSON and checked by the function's own types.
    return {
        name: InputSpec(type="string" if described.get("type") == "string" else "any")
        for name, described in schema.get("properties", {}).items()
    }


async def _program_of(run: Run) -> str | Mapping[str, Any]:
    import msgspec

    program = (await run.state()).facts().program
    return msgspec.json.decode(program.source) if program.kind == "plan" else program.name


def _tell_checked(unmet: list[str], program: str, as_json: bool) -> int:
    if as_json:
        print(json_line({"ok": not unmet, "unmet": unmet}))
    else:
        print("\n".join(unmet) or f"{program} is in order; nothing was started")
    return 1 if unmet else 0


def _tell_held(execution_id: str, as_json: bool) -> int:
    if as_json:
        print(json_line({"id": execution_id, "status": "queued", "held": True}))
    else:
        print(f"handed in and held as {execution_id}\nstart it with: holdfast resume {execution_id}")
    return 0
