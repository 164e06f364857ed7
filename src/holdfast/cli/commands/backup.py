"""`holdfast backup`: a copy of the store, made while engines work. A database's server makes its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.context import existing_store, open_store, settings_of, wait_for
from holdfast.cli.common.options import AsJson
from holdfast.cli.output.format import count, json_line, size
from holdfast.core.errors import UsageError
from holdfast.settings.invocation import program, with_options

if TYPE_CHECKING:
    from holdfast.settings import Settings


def register(app: typer.Typer) -> None:
    app.command()(backup)


def backup(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where the copy is written.")],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    as_json: AsJson = False,
) -> int:
    """Copy the store to a file while engines go on working, and check the copy.

    In the copy every execution that has not ended is held: nobody drives it before `holdfast resume`.

    \b
    Example:
      holdfast backup monday.db
      holdfast --store monday.db list
    """
    from holdfast.core.held import restored
    from holdfast.engine.json_view import iso
    from holdfast.journal.sqlite.backup import back_up

    settings = settings_of(context)
    source, target = _source(settings), Path(file).absolute()
    _check_target(source, target, force)

    wait_for(_look_over(settings))  # upgraded if need be, and looked over
    made_at = iso(int(time.time()) * 1_000_000)
    made = back_up(source, target, restored(made_at or ""))
    if as_json:
        print(json_line({"file": str(target), "made_at": made_at, **made._asdict()}))
    else:
        print(f"{target} holds {count(made.executions, 'execution')} ({size(made.bytes)}), checked and whole")
        if made.held:
            resume = f"{with_options(program(), store=str(target))} resume ID"
            print(f"{count(made.held, 'execution')} had not ended and will be held there until `{resume}`")
    return 0


async def _look_over(settings: Settings) -> None:
    await open_store(settings).close()


def _source(settings: Settings) -> Path:
    from holdfast.journal.postgres.address import is_postgres, parse_address

    if is_postgres(settings.store):
        address = parse_address(settings.store)
        raise UsageError(
            f"{address.shown} is backed up by its server's own tools: pg_dump --schema={address.schema} copies it "
            "while engines work; in the restored copy, give `holdfast hold --all` before an engine is started"
        )
    path = existing_store(settings)
    assert path is not None  # it is a file, and it is there
    return path


def _check_target(source: Path, target: Path, force: bool) -> None:
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name a file in it, such as {target / 'backup.db'}")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}; make it first")
    if target.resolve() == source.resolve() or (target.exists() and target.samefile(source)):
        raise UsageError(f"{target} is the store itself; name another file")
    if target.exists() and not force:
        raise UsageError(f"{target} exists; name another file, or replace it with --force")
