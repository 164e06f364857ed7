"""Commands that drive: run and resume. Each stays until the execution ends or only a person can move it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.detach import Detach, check_detachable, detach
from holdfast.cli.common import completions
from holdfast.cli.common.bulk import ONE, Many, Selection, do_many
from holdfast.cli.common.bulk_resume_retry import resuming
from holdfast.cli.common.context import driving_engine, existing_store, now_us, settings_of, wait_for
from holdfast.cli.common.invocation import holdfast
from holdfast.cli.common.options import (
    AsJson,
    Inputs,
    MaybeId,
    NoAsk,
    OtherFolder,
    UsedAtMost,
    Why,
    dollars,
    pairs,
    read_inputs_file,
    resources_said,
    spread,
)
from holdfast.cli.common.program_args import locate, typed_inputs
from holdfast.cli.output.format import json_line, one_line, strip_control_chars
from holdfast.core.errors import Misconfigured, UsageError

if TYPE_CHECKING:
    from holdfast.cli.foreground.step_mode import StepConfirmer
    from holdfast.engine.drive.scheduler import Recovery
    from holdfast.journal.store import Head

OneByOne = Annotated[bool, typer.Option("--step", help="Ask at the terminal before each step.")]


def register(app: typer.Typer) -> None:
    for command in (run, resume):
        app.command()(command)


def run(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM", help="A plan file, or the name of a function.", autocompletion=completions.programs
        ),
    ],
    given: Inputs = None,
    inputs_file: Annotated[str, typer.Option("--inputs", metavar="FILE", help="Inputs as a JSON object.")] = "",
    key: Annotated[str, typer.Option(help="The same key again means the same execution.")] = "",
    owner: Annotated[str, typer.Option(help="Whom it belongs to.")] = "",
    title: Annotated[str, typer.Option(help="A title in place of the program's own.")] = "",
    label: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A label. Repeatable.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="USD", help="What it may spend, in US dollars.")] = None,
    resource: UsedAtMost = None,
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
    resources = resources_said(resource)
    subject = locate(program, settings)
    from_file = read_inputs_file(inputs_file) if inputs_file else {}
    if detached:
        check_detachable(settings, starts=not (hold or check or dry_run), asks=step)
    if check or dry_run:
        from holdfast.app import preparer_of
        from holdfast.cli.commands.dry_run import look_ahead

        preparer = preparer_of(settings)  # no engine: looking leaves no journal behind
        found = preparer.find(subject)
        inputs = {**from_file, **typed_inputs(preparer, found, given, from_file)}
        return look_ahead(preparer, found, inputs, dry_run=dry_run, as_json=as_json)
    turnstile = _turnstile(step, no_ask or as_json)

    async def work() -> int:
        from holdfast.cli.foreground.foreground import stay

        async with driving_engine(settings, turnstile, recover=_recovery(detached)) as engine:
            found = engine.preparer.find(subject)
            inputs = {**from_file, **typed_inputs(engine.preparer, found, given, from_file)}
            began_at = now_us()
            try:
                started = await engine.start(
                    found, inputs=inputs, owner=owner, key=key, title=title, labels=labels, hold=hold,
                    budget=spendable, resources=resources, cache=not no_cache,
                )  # fmt: skip
            except Misconfigured as error:  # nothing was started, so to whoever typed it it is wrong use
                raise UsageError(str(error)) from None
            if hold:
                return _tell_held(started.id, as_json)
            if detached:
                return await detach(engine, started, as_json)
            note = known_by(key, await started.head(), began_at) if key else ""
            return await stay(engine, started, note=note, as_json=as_json, no_ask=no_ask, turnstile=turnstile)

    return wait_for(work())


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
        from holdfast.cli.foreground.foreground import stay
        from holdfast.core.execution import steps_ended

        async with driving_engine(settings, turnstile, recover=_recovery(detached)) as engine:
            if file:
                found = engine.get((await engine.restore(file, force=force, other_folder=other_folder)).id)
            else:
                found = await engine.find(execution)
            before = await found.head()
            since = before.seq
            if before.status == "completed":
                return _tell_completed(before, as_json)
            await engine.resume(found.id, why=why, force=force, other_folder=other_folder)
            if detached:
                return await detach(engine, found, as_json)
            head = await found.head()
            recorded = _recorded(head, steps_ended(await found.state()))
            title = one_line(strip_control_chars(head.title or head.name))
            note = f"going on with {title} ({head.id}), {recorded} in the journal"
            return await stay(
                engine, found, since=since, note=note, as_json=as_json, no_ask=no_ask, turnstile=turnstile
            )

    return wait_for(work())


def _tell_completed(head: Head, as_json: bool) -> int:
    text = "it is completed already"
    print(json_line({"id": head.id, "status": head.status, "text": text}) if as_json else f"{head.id}: {text}")
    return 0


def _recovery(detached: bool) -> Recovery:
    """A process that detaches leaves everything to the one it starts."""
    return "nothing" if detached else "family"


def _turnstile(wanted: bool, is_blind: bool) -> StepConfirmer | None:
    """Where every step is held until the person lets it through, if they want that and can be asked."""
    if not wanted:
        return None
    from holdfast.cli.foreground.step_mode import StepConfirmer, refuse_without_terminal

    refuse_without_terminal(is_blind)
    return StepConfirmer()


def known_by(key: str, head: Head, began_at: int) -> str:
    """That a key was used before, if it was: what is shown then is what has been, and looks like a second run."""
    if head.created_at >= began_at:
        return ""
    known = f"key {strip_control_chars(key)} is execution {head.id}"
    if not head.ended_at:
        return f"{known}, which was begun before; no other one was started"
    return f"{known}, which {'was' if head.status == 'stopped' else 'has'} {head.status}; nothing was run again"


def _recorded(head: Head, ended: int) -> str:
    """The steps of the plan itself; of one that is nothing but a `for_each`, all that `ended` inside of it."""
    if head.total > 1:
        return f"{head.ended} of {head.total} steps are"
    return "1 step is" if ended == 1 else f"{ended} steps are"


def _tell_held(execution_id: str, as_json: bool) -> int:
    if as_json:
        print(json_line({"id": execution_id, "status": "queued", "held": True}))
    else:
        print(f"handed in and held as {execution_id}\nstart it with: {holdfast()} resume {execution_id}")
    return 0
