"""Commands that only look: list, show, events, watch."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common.context import bare_engine, left_alone, liveness_of, looked_into, now_us, settings_of, wait_for
from holdfast.cli.common.filters import ANY, Filters
from holdfast.cli.common.options import LIMIT_MAX, AsJson, Id, Limit, spread
from holdfast.cli.output.format import (
    STATUS_COLOURS,
    aside,
    columns,
    is_terminal,
    json_line,
    local_time,
    one_line,
    paint,
    strip_control_chars,
    terminal_width,
    writable,
)
from holdfast.core.errors import StoreCorrupted

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.engine.run import Run
    from holdfast.journal.store import Store
    from holdfast.settings import Settings

LEFT_ALONE_S = 1.0  # for so long, twice, nobody must drive it before a follower says so
Since = Annotated[int, typer.Option(min=0, metavar="N", help="Only events after number N.")]


def register(app: typer.Typer) -> None:
    app.command("list")(list_)
    for command in (show, events, watch):
        app.command()(command)


@spread
def list_(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORDS]...", help="Words to find, as --text.")] = None,
    filters: Filters = ANY,
    limit: Limit = 20,
    everywhere: Annotated[bool, typer.Option("--all", help="In all folders where you have run something.")] = False,
    as_json: AsJson = False,
) -> int:
    """List executions, newest first: all of them, or those that fit every filter.

    One that was imported counts as new when it came here, whenever it was created; so `@last` is the first of the list.

    \b
    Example:
      holdfast list --status waiting --status paused
      holdfast list --label team=harbour --since 2h tides
      holdfast list --all
    """
    filters.check()
    wanted = " ".join(words or ())
    settings = settings_of(context)

    def read(settings: Settings) -> Coroutine[Any, Any, list[dict[str, Any]]]:
        return _heads(settings, filters, wanted, limit + 1, with_folder=everywhere)  # one more: is that all of it?

    if everywhere:
        from holdfast.cli.common.all_stores import heads_everywhere

        found = wait_for(heads_everywhere(settings, read, as_json))
    else:
        found = wait_for(read(settings))
    more, found = len(found) > limit, found[:limit]
    if as_json:
        print(json_line(found))
    elif found:
        print("\n".join(_table(found)))
        if not all(
            head["driven"] or head["held"] or head["quarantined"] for head in found if head["status"] == "running"
        ):
            aside("what nobody drives goes on with: holdfast resume ID, or holdfast worker for all of it", as_json)
    if more:
        aside(f"there are more; these are the newest {limit}: --limit shows more, filters narrow it down", as_json)
    if not found and (filters.are_given or wanted):
        aside(f"no execution matches {f'{filters.as_typed()} {wanted}'.strip()}", as_json)
    elif not found:
        aside("no executions; start one with `holdfast run PLAN`", as_json)
    return 0


async def _heads(
    settings: Settings, filters: Filters, words: str, limit: int, *, with_folder: bool
) -> list[dict[str, Any]]:
    """Read with the store alone: a list must come at once."""
    from holdfast.engine.json_view import wire_head

    async with looked_into(settings) as store:
        if store is None:
            return []  # nothing was ever run here
        heads = await store.heads(await filters.query(store, now_us(), limit=limit, words=words))
        await store.drivers()  # which lets a database say who of them is alive
        shown = [wire_head(head, liveness_of(settings, store).is_dead) for head in heads]
        if not with_folder:
            return shown
        return [{**head, "folder": await _folder(store, str(head["id"]), settings)} for head in shown]


async def _folder(store: Store, execution_id: str, settings: Settings) -> str:
    """Where it was started, which may be another worktree than the store's; or the store's, if that is not here."""
    from holdfast.core.events import TaskCreated
    from holdfast.journal.log import read_events

    with suppress(StoreCorrupted):
        for _, event in await read_events(store, execution_id, 0, 1):
            if isinstance(event, TaskCreated) and _is_here(event.folder):
                return event.folder
    return str(settings.root)


def _is_here(folder: str) -> bool:
    return os.path.isdir(folder)


def _table(found: Sequence[dict[str, Any]]) -> list[str]:
    found = strip_control_chars(list(found))
    at_terminal = is_terminal()
    has_folders = any("folder" in head for head in found)
    rows = [["ID", "STATUS", "STEPS", "CREATED", "NAME", *(["FOLDER"] if has_folders else []), "TITLE"]]
    for head in found:
        total = f"/{head['steps_total']}" if head["steps_total"] else ""
        status = "set aside" if head["quarantined"] else "held" if head["held"] else head["status"]
        about = one_line(head["title"] or "")
        if head["held"]:
            about = f"{about} ({head['held']})".strip()
        if head["status"] == "waiting" and head["waiting_for"]:
            about = f"{about} (waits for {', '.join(sorted(set(head['waiting_for'])))})".strip()
        if head["status"] == "running" and not (head["driven"] or head["held"] or head["quarantined"]):
            about = f"{about} (nobody drives it)".strip()
        if head["failures"]:
            about = f"{about} ({one_line(head['failures'])})".strip()
        if head["parent_id"]:
            about = f"{about} (child of {_short(head['parent_id'], at_terminal)})".strip()
        identity = _short(head["id"], at_terminal)
        name = f"{writable('↳', '>')} {head['name']}" if head["parent_id"] else head["name"]
        if total and head["status"] in ("failed", "stopped"):
            total += " ended"  # and not all completed: those that failed or were skipped have ended, too
        steps = f"{head['steps_ended']}{total}"
        folder = [_place(head)] if has_folders else []
        rows.append([identity, status, steps, local_time(head["created_at"]), name, *folder, about])
    lines = columns(
        rows, {1: {**STATUS_COLOURS, "set aside": "red", "held": "yellow"}}, terminal_width() if at_terminal else 0
    )
    return [paint(lines[0], "bold"), *lines[1:]]


def _place(head: dict[str, Any]) -> str:
    """Where it was found: the project's folder, or the database that several may share."""
    return head["store"] if "://" in head["store"] else head["folder"]


def _short(execution_id: str, at_terminal: bool) -> str:
    """An id as far as people need it; programs get all of it."""
    return execution_id.rpartition("-")[2] if at_terminal else execution_id


def show(
    context: typer.Context,
    execution: Id,
    everything: Annotated[bool, typer.Option("--all", help="Every item and child, however many there are.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show one execution: its steps, its children, what it waits for, what failed and what can be done.

    \b
    Example:
      holdfast show @last
      holdfast show @last --json
    """
    settings = settings_of(context)

    async def work() -> dict[str, Any]:
        async with bare_engine(settings) as engine:
            return await whole(engine, await engine.find(execution))

    shown = wait_for(work())
    if as_json:
        print(json_line(shown))
    else:
        from holdfast.cli.output.show_page import page_of

        print("\n".join(page_of(shown, everything=everything)))
    return 0


async def whole(engine: Engine, run: Run) -> dict[str, Any]:
    """The execution with its large output, and with how its children stand now and what they ask."""
    from holdfast.cli.commands.inbox_history_diff import starter
    from holdfast.cli.foreground.foreground import open_requests
    from holdfast.engine.transfer.forks import newest_fork
    from holdfast.journal.log import read_events
    from holdfast.journal.store import Query

    shown: dict[str, Any] = await run.show()
    with suppress(StoreCorrupted):
        ((_, first),) = await read_events(engine.services.store, run.id, 0, 1)
        shown["started_by"] = starter(first) or None
    fork = await newest_fork(engine.services.store, run.id)
    shown["retried_as"] = {"id": fork.id, "status": fork.status} if fork else None
    if shown["status"] == "completed":
        with suppress(StoreCorrupted):  # then its reference is all there is to show
            shown["output"] = await run.result()
    if not shown["children"]:
        return shown
    now = {head.id: head.status for head in await engine.list(Query(parent_id=run.id, limit=LIMIT_MAX))}
    for child in shown["children"]:
        child["status"] = now.get(child["id"], child["status"])
        asked = await open_requests(engine, engine.get(child["id"])) if child["status"] == "waiting" else []
        child["requests"] = [{"execution_id": execution_id, **request} for execution_id, request in asked]
    return shown


def events(
    context: typer.Context,
    execution: Id,
    since: Since = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay and print new ones, until the end.")] = False,
    as_json: AsJson = False,
) -> int:
    """Print the journal of an execution, one line per event.

    \b
    Example:
      holdfast events @last --since 10
      holdfast events @last --follow --json
    """
    settings = settings_of(context)

    async def work() -> None:
        from holdfast.cli.output.event_lines import line_of

        async with bare_engine(settings) as engine:
            run = await engine.find(execution)
            last = (await run.head()).seq
            if not follow and last <= since:
                return
            async with telling_when_left_alone(engine, run, as_json) if follow else nullcontext():
                async for watched in run.watch(since):
                    if watched.seq is None:
                        continue
                    event = (await watched.whole(engine.services.store)).as_dict()
                    if as_json:
                        print(json_line(event), flush=True)
                    else:
                        at = local_time(str(event["at"]))
                        print(f"{watched.seq:>5}  {at}  {watched.type:<20}  {line_of(event)}", flush=True)
                    if not follow and watched.seq >= last:
                        return

    wait_for(work())
    return 0


def watch(context: typer.Context, execution: Id, since: Since = 0, as_json: AsJson = False) -> int:
    """Follow an execution that another process drives, until it ends or waits for a person.

    \b
    Example:
      holdfast watch @last
    """
    settings = settings_of(context)

    async def work() -> int:
        from holdfast.cli.foreground.foreground import Foreground
        from holdfast.cli.output.views import view_for

        async with bare_engine(settings) as engine:
            run: Run = await engine.find(execution)
            async with telling_when_left_alone(engine, run, as_json):
                return await Foreground(engine, run, view_for(as_json, follows=True), follows=True).drive(since)

    return wait_for(work())


@asynccontextmanager
async def telling_when_left_alone(engine: Engine, run: Run, as_json: bool) -> AsyncGenerator[None]:
    """Say once, now or later, that what is being followed does not move because nobody drives it."""
    import asyncio

    from holdfast.engine.at_rest import is_left_alone

    if is_left_alone(await run.head(), engine.is_dead):
        aside(left_alone(run.id), as_json)
        yield
        return

    async def look() -> None:
        looks = 0
        while looks < 2:  # an engine that recovers may be about to take it over
            await asyncio.sleep(LEFT_ALONE_S)
            head = await run.head()
            looks = looks + 1 if head.status == "running" and is_left_alone(head, engine.is_dead) else 0
        aside(left_alone(run.id), as_json)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
