"""Commands that carry executions around: checkpoint, export, import. `resume --from` is in run.py."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.bulk import ONE, BulkOperation, Many, Selection, Told, do_many
from holdfast.cli.common.context import bare_engine, driving_engine, settings_of, wait_for
from holdfast.cli.common.invocation import holdfast, pastable
from holdfast.cli.common.options import AsJson, MaybeId, OtherFolder, Replace, check_new, spread
from holdfast.cli.output.format import count, json_line
from holdfast.core.errors import JournalError, Refused, UsageError

if TYPE_CHECKING:
    from holdfast.core.commands import Answer, Outcome
    from holdfast.engine.engine import Engine
    from holdfast.engine.transfer.restore import Restored

Force = Annotated[bool, typer.Option("--force", help="Take it in though tools, folder or version are others here.")]


def register(app: typer.Typer) -> None:
    app.command()(checkpoint)
    app.command()(export)
    app.command("import")(import_)


@spread
def checkpoint(
    context: typer.Context, execution: MaybeId = "", selection: Selection = ONE, as_json: AsJson = False
) -> int:
    """Save an execution, or all that fit, as files in .holdfast/executions, whether or not they run.

    A file holds what is in the journal now, with its children; the newest three of each execution are kept.

    \b
    Example:
      holdfast checkpoint @last
      holdfast checkpoint --status running --label team=harbour
    """
    settings = settings_of(context)
    if selection.is_meant(execution):
        many = Many(verb="checkpoint", make=_saving, said={})
        return do_many(settings, many, selection, execution, as_json=as_json)

    async def work() -> int:
        async with bare_engine(settings) as engine:
            run = await engine.find(execution)
            saved, answer = await engine.checkpoint(run.id)
        if as_json:
            told = {"id": run.id, "file": saved.file, "through": saved.through, "bytes": saved.bytes}
            print(json_line({**told, "outcome": answer.outcome, "text": answer.text, "seq": answer.seq or None}))
        else:
            print(saved.file)
        return 0

    return wait_for(work())


def _saving() -> BulkOperation:
    return BulkOperation(word="saved", status=(), work=_save_all, with_children=False)


async def _save_all(engine: Engine, ids: list[str], bulk_id: str) -> Told:
    for execution_id in ids:
        command_id = f"{bulk_id}:{execution_id}"
        before = await engine.services.store.answer(command_id)
        if before is not None:  # by this bulk, which was cut off before it could note it
            yield execution_id, before
            continue
        try:
            saved, answer = await engine.checkpoint(execution_id, command_id=command_id)
        except (UsageError, JournalError, OSError) as error:
            yield execution_id, _said(command_id, "refused", str(error))
        else:
            # What was refused or is queued is told as it was said; the file lies there all the same.
            told = (
                saved.file if answer.outcome == "applied" else f"{pastable(answer.text)}; it is saved as {saved.file}"
            )
            yield execution_id, _said(command_id, answer.outcome, told, answer.seq)


def _said(command_id: str, outcome: Outcome, text: str, seq: int = 0) -> Answer:
    from holdfast.core.commands import Answer

    return Answer(command_id=command_id, outcome=outcome, text=text, seq=seq)


@spread
def export(  # noqa: PLR0917 -- one parameter per option
    context: typer.Context,
    execution: MaybeId = "",
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE",
            help="Where to; - is standard output. Default: ID.json. With filters: a folder.",
        ),
    ] = "",
    force: Replace = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Keep it from going on here, because it goes on elsewhere.")
    ] = False,
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:  # fmt: skip
    """Write an execution and its children into one portable file, which `holdfast import` reads.

    Nothing is stopped: the file holds what is in the journal now. With --hold the original stays as it is in the file
    until you resume it, or import what became of it elsewhere. With filters, each that fits and has no parent is
    written to ID.json in a folder, which is made if need be; a file that holds the same is left.

    \b
    Example:
      holdfast export @last -o report.json
      holdfast export @last --hold -o - | ssh there holdfast import - --other-folder
      holdfast export --status completed --since 7d -o archive/
    """
    settings = settings_of(context)
    if selection.is_meant(execution):
        folder = "" if selection.bulk_id and not output else str(_folder(output).absolute())
        many = Many(verb="export", make=_exporting, said={"folder": folder, "force": force, "hold": hold})
        return do_many(settings, many, selection, execution, as_json=as_json)

    async def work() -> int:
        from holdfast.journal.checkpoint_files import write_file

        async with bare_engine(settings) as engine:
            run = await engine.find(execution)
            path = Path(output or f"{run.id}.json")
            if output != "-":
                check_new(path, force)
            async with _kept_still(engine, run.id, hold):
                bundle = await engine.export(run.id)
                size = write_file(path, [bundle]) if output != "-" else sys.stdout.buffer.write(bundle)
        if output != "-":
            print(json_line({"id": run.id, "file": str(path), "bytes": size}) if as_json else path)
        return 0

    return wait_for(work())


@asynccontextmanager
async def _kept_still(engine: Engine, execution_id: str, hold: bool) -> AsyncGenerator[None]:
    """Held from before it is read, so that the file is how the original stays; unless no file comes of it."""
    from holdfast.core.held import EXPORTED
    from holdfast.engine.commands.hold import hold as keep_from_driving
    from holdfast.engine.commands.hold import let_go

    head = await engine.get(execution_id).head()
    holds = hold and not head.ended_at and not head.held
    if holds:
        for why in (await keep_from_driving(engine.services.store, engine.is_dead, [execution_id], EXPORTED)).values():
            raise Refused(f"execution {execution_id} was not exported, because it cannot be held: {why}")
    try:
        yield
    except BaseException:
        if holds:
            await let_go(engine.services.store, execution_id)
        raise


def _folder(output: str) -> Path:
    folder = Path(output or ".")
    if output == "-":
        raise UsageError("many executions do not fit into standard output; name a folder with -o")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; with filters -o names a folder")
    return folder


def _exporting(folder: str, force: bool, hold: bool = False) -> BulkOperation:
    async def work(engine: Engine, ids: list[str], bulk_id: str) -> Told:
        for execution_id in ids:
            path = Path(folder) / f"{execution_id}.json"
            try:
                async with _kept_still(engine, execution_id, hold):
                    is_new = _write_new(path, await engine.export(execution_id), force)
            except (UsageError, JournalError, OSError) as error:
                yield execution_id, _said(bulk_id, "refused", str(error))
            else:
                yield execution_id, _said(bulk_id, "applied" if is_new else "unchanged", str(path))

    return BulkOperation(word="exported", status=(), work=work, with_children=False)


def _write_new(path: Path, bundle: bytes, force: bool) -> bool:
    """Whether there was anything to write: the file may hold it since a bulk that was cut off."""
    from holdfast.journal.checkpoint_files import write_file

    if path.is_file() and path.read_bytes() == bundle:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    check_new(path, force)
    write_file(path, [bundle])
    return True


def import_(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What export or checkpoint wrote; - is standard input.")],
    force: Force = False,
    other_folder: OtherFolder = False,
    as_new: Annotated[
        bool, typer.Option("--as-new", help="As a copy under a new id, which keeps what was done.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Bring an exported execution into this journal, under the id it has.

    It is checked whole before anything is written. Nobody drives it before you resume it: the original may still run.
    If it is here already and has only gone on in the file, what it has done since is added. If it is here and damaged,
    it is repaired: file and journal must agree up to the damage.

    \b
    Example:
      holdfast import report.json --other-folder
      holdfast resume @last
    """
    settings = settings_of(context)

    async def work() -> int:
        from holdfast.journal.bundle.write import BUNDLE_BYTES_MAX

        async with driving_engine(settings, recover="none") as engine:
            source = sys.stdin.buffer.read(BUNDLE_BYTES_MAX + 1) if file == "-" else file
            restored = await engine.restore(source, force=force, other_folder=other_folder, as_new=as_new)
        print(json_line(_as_data(restored)) if as_json else _in_words(restored))
        return 0

    return wait_for(work())


def _as_data(restored: Restored) -> dict[str, object]:
    held = restored.outcome != "unchanged" and not is_over(restored)
    return {**restored._asdict(), "held": held, "differences": [str(one) for one in restored.differences]}


def _in_words(restored: Restored) -> str:
    if restored.outcome == "unchanged":
        return f"execution {restored.id} is here already, as it is in the file; nothing was changed"
    family = f" with {count(restored.executions - 1, 'descendant')}" if restored.executions > 1 else ""
    lines = [f"imported {restored.id}{family}: {restored.status}"]
    if restored.outcome == "continued":
        more = count(restored.added, "event")
        lines = [f"{restored.id}{family} was here and has gone on elsewhere, {more} added: {restored.status}"]
    if restored.outcome == "repaired":
        lines = [f"repaired {restored.id}{family}: {restored.status}"]
        if restored.lost:
            lines.append(f"lost: {count(restored.lost, 'event')} at the end; steps that ran then may run again")
    if not is_over(restored):
        lines.append(
            f"nobody drives it until you say so; go on with: {holdfast()} resume {restored.id}{_accepted(restored)}"
        )
    return "\n".join(lines)


def _accepted(restored: Restored) -> str:
    """The option that accepts the same once more."""
    from holdfast.engine.transfer.compatibility import only_of_folder

    if not restored.differences:
        return ""
    return " --other-folder" if only_of_folder(restored.differences) else " --force"


def is_over(restored: Restored) -> bool:
    from holdfast.core.lifecycle import ENDS

    return restored.status in ENDS
