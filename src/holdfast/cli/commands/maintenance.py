"""Commands that keep a store small and safe: prune, delete, hold. What has not ended is never deleted."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common.bulk import ONE, BulkOperation, Many, Reasons, Selection, Told, do_many, dry_line, heads_of
from holdfast.cli.common.context import bare_engine, is_alone, now_us, settings_of, wait_for
from holdfast.cli.common.filters import ANY, Filters
from holdfast.cli.common.invocation import holdfast
from holdfast.cli.common.options import AsJson, MaybeId, Why, not_empty, spread
from holdfast.cli.common.send_command import UNFINISHED
from holdfast.cli.output.format import count, json_line, size
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import InputInvalid, Refused, UsageError

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.journal.store import Head, Query
    from holdfast.settings import Settings

TOGETHER = 100  # deleted or held in one go
REASONS_SOUGHT = 200  # of those that stay, so many are asked why: each answer takes some looking
ENDS = ("completed", "failed", "stopped")


def register(app: typer.Typer) -> None:
    for command in (prune, delete, hold):
        app.command()(command)


@spread
def prune(
    context: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Only what ended so long ago, such as 30d or 12h.", callback=not_empty),
    ] = "",
    filters: Filters = ANY,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted, and what not.")] = False,
    as_json: AsJson = False,
) -> int:
    """Delete executions that have ended, with all that belongs to them, and give the space back.

    What has not ended is never touched, nor what a parent or a fork that has not ended still needs. Children go with
    their parents.

    \b
    Example:
      holdfast prune --older-than 30d --dry-run
      holdfast prune --older-than 7d --status completed --label team=harbour
    """
    ended_before = _check_prune(older_than, filters)
    settings = settings_of(context)

    async def work() -> int:
        async with bare_engine(settings) as engine:
            query = await filters.query(engine.services.store, now_us(), limit=TOGETHER, status=ENDS)
            query.ended_before = ended_before
            return await _tidy(engine, settings, query, dry_run, as_json)

    return wait_for(work())


def _check_prune(older_than: str, filters: Filters) -> int:
    """Before when it must have ended. Refuses what may be a slip of the pen."""
    from holdfast.core.durations import parse_duration

    if not older_than and not filters.status:
        raise UsageError("say what may go, with --older-than 30d or --status completed; --dry-run shows it first")
    for wanted in filters.status or ():
        if wanted not in ENDS:
            known = did_you_mean(wanted, ENDS) or f"; there are: {', '.join(ENDS)}"
            raise UsageError(f'--status: only what has ended is deleted, and "{wanted}" is no end{known}')
    filters.check()
    try:
        return now_us() + 1 - (int(parse_duration(older_than) * 1e6) if older_than else 0)
    except InputInvalid as error:
        raise InputInvalid(f"--older-than: {error}") from None


async def _tidy(engine: Engine, settings: Settings, query: Query, dry_run: bool, as_json: bool) -> int:
    from holdfast.journal.deletion import why_kept

    store: Any = engine.services.store
    before = await _taken(engine)
    gone: list[str] = []
    kept: dict[str, Head] = {}
    async for bite in engine.prune(query, rehearse=dry_run):
        gone += bite.gone
        kept.update((head.id, head) for head in bite.kept)
    stays = [head for head in kept.values() if head.id not in set(gone)]  # a child may come before its parent
    why = {head.id: await why_kept(store, head) for head in stays[:REASONS_SOUGHT]}
    note = "" if dry_run else await _shrink(store, settings, engine.services.driver)
    freed = None if dry_run else await _freed(engine, before)
    if as_json:
        told = {"dry_run": dry_run, "deleted": len(gone), "ids": gone, "kept": len(stays), "why_kept": why}
        print(json_line(told if dry_run else {**told, "bytes_freed": freed, "note": note or None}))
        return 0
    if dry_run:
        there = {head.id: head for head in await heads_of(engine, gone)}
        for one in gone:
            if one in there:  # it may have gone meanwhile
                print(dry_line(there[one]))
        print(f"{count(len(gone), 'execution')} would be deleted; nothing was changed")
    else:
        _tell_deleted(len(gone), freed)
    if stays:
        reasons = Reasons()
        for execution_id, text in why.items():
            reasons.add(execution_id, text or "it can go now: something has just ended")
        print(f"{count(len(stays), 'execution')} would fit, too, and {'stays' if len(stays) == 1 else 'stay'}:")
        print("\n".join(reasons.lines("kept")))
    if note:
        print(note)
    return 0


def _tell_deleted(gone: int, freed: int | None) -> None:
    print(f"deleted {count(gone, 'execution')}{'' if freed is None else f', {size(freed)} freed'}")


@spread
def delete(
    context: typer.Context,
    execution: MaybeId = "",
    force: Annotated[bool, typer.Option("--force", help="Also what was set aside because it is damaged.")] = False,
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Delete one execution that has ended, or all that fit, with their children and all that belongs to them.

    \b
    Example:
      holdfast delete 01a1e4b3
      holdfast delete --name probe --status failed --dry-run
    """
    settings = settings_of(context)
    if selection.is_meant(execution):
        many = Many(verb="delete", make=partial(_deleting, settings), said={"force": force})
        return do_many(settings, many, selection, execution, as_json=as_json)

    async def work() -> int:
        async with bare_engine(settings) as engine:
            store: Any = engine.services.store
            found = (await engine.find(execution)).id
            before = await _taken(engine)
            gone, kept = await engine.delete([found], force=force)
            if found in kept:
                raise Refused(f"{kept[found]}; nothing was deleted")
            note = await _shrink(store, settings, engine.services.driver)
            freed = await _freed(engine, before)
        if as_json:
            told = {"dry_run": False, "deleted": len(gone), "ids": gone, "kept": 0}
            print(json_line({**told, "bytes_freed": freed, "note": note or None}))
        else:
            _tell_deleted(len(gone), freed)
            print(note, end="\n" if note else "")
        return 0

    return wait_for(work())


def _deleting(settings: Settings, force: bool) -> BulkOperation:
    async def work(engine: Engine, ids: list[str], bulk_id: str) -> Told:
        from holdfast.core.commands import Answer

        done: set[str] = set()
        for at in range(0, len(ids), TOGETHER):
            page = [one for one in ids[at : at + TOGETHER] if one not in done]
            there = {head.id for head in await heads_of(engine, page)}
            for one in page:
                if one not in there:
                    yield one, Answer(command_id=bulk_id, outcome="unchanged", text="it is gone already")
            page = [one for one in page if one in there]
            gone, kept = await engine.delete(page, force=force)
            done |= {*page, *gone}
            for one in page:
                if one in kept:
                    yield one, Answer(command_id=bulk_id, outcome="refused", text=kept[one])
            for one in gone:
                yield one, Answer(command_id=bulk_id, outcome="applied", text="deleted")
        await _shrink(engine.services.store, settings, engine.services.driver)

    def tidy_up(engine: Engine) -> Awaitable[object]:
        """What a delete that was killed has left behind: files, and space that was not given back."""
        return engine.delete([])

    async def refusals(engine: Engine, ids: list[str]) -> dict[str, str]:
        gone, kept = await engine.delete(ids, rehearse=True)
        return {one: why for one, why in kept.items() if one not in gone}

    return BulkOperation(word="deleted", status=ENDS, work=work, first=tidy_up, refusals=refusals)


# ---- hold ----------------------------------------------------------------------------------------------------------


@spread
def hold(
    context: typer.Context,
    execution: MaybeId = "",
    why: Why = "",
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Keep engines from driving an execution, or all that fit, with their children, until a person resumes it.

    For a store that was restored without `holdfast backup`, such as from a dump of its database: what was unfinished
    in the copy may have gone on since. What is driven now is refused; pause that.

    \b
    Example:
      holdfast hold --all --why "restored from Monday's dump"
      holdfast resume --held --all
    """
    settings = settings_of(context)
    if selection.is_meant(execution):
        many = Many(verb="hold", make=_holding, said={"why": why})
        return do_many(settings, many, selection, execution, as_json=as_json)

    async def work() -> int:
        async with bare_engine(settings) as engine:
            found = (await engine.find(execution)).id
            for refused in (await engine.hold([found], why)).values():
                raise Refused(f"{refused}; nothing was changed")
        if as_json:
            print(json_line({"id": found, "outcome": "applied", "text": "held", "seq": None, "command_id": None}))
        else:
            print(f"held; it goes on with: {holdfast()} resume {found}")
        return 0

    return wait_for(work())


def _holding(why: str) -> BulkOperation:
    async def work(engine: Engine, ids: list[str], bulk_id: str) -> Told:
        from holdfast.core.commands import Answer

        for at in range(0, len(ids), TOGETHER):
            page = ids[at : at + TOGETHER]
            refused = await engine.hold(page, why)
            for one in page:
                text = refused.get(one, "")
                yield one, Answer(command_id=bulk_id, outcome="refused" if text else "applied", text=text or "held")

    after = "they go on with: holdfast resume ID, or --held --all"
    return BulkOperation(word="held", status=UNFINISHED, work=work, after=after)


# ---- space ---------------------------------------------------------------------------------------------------------


async def _shrink(store: Any, settings: Settings, us: str) -> str:
    """What is to be said about the space. A file from before files could shrink is written anew if nobody uses it."""
    room = await store.room()
    if room is None:
        return "the server makes their space free for others with its next vacuum"
    if not room.free or room.can_shrink:
        return ""
    if is_alone(settings, us):
        await store.rebuild()
        return ""
    return (
        f"{size(room.free)} will be reused, but the file is from before files could shrink, and another process uses "
        "it; prune again when nothing else runs"
    )


async def _taken(engine: Engine) -> int | None:
    """By the store and the files beside it; None if the room is a server's."""
    from holdfast.journal.deletion import files_bytes

    store: Any = engine.services.store
    room = await store.room()
    return None if room is None else room.total + files_bytes(engine.services.data_folder)


async def _freed(engine: Engine, before: int | None) -> int | None:
    after = await _taken(engine)
    return None if before is None or after is None else max(0, before - after)
