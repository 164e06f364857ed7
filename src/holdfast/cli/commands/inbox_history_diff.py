"""Commands that look across executions: inbox (what is asked of people), history (who did what), diff."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.common.context import bare_engine, looked_into, now_us, settings_of, wait_for
from holdfast.cli.common.filters import ANY, Filters
from holdfast.cli.common.options import AsJson, Id, Limit, spread
from holdfast.cli.output.format import (
    VALUE_CHARS_MAX,
    aside,
    distance,
    duration,
    json_line,
    local_time,
    one_line,
    paint,
    size,
    status_word,
    strip_control_chars,
    value,
)
from holdfast.core.errors import StoreCorrupted

if TYPE_CHECKING:
    from holdfast.core.events import AnyEvent
    from holdfast.core.execution_diff import Comparison, Difference, Side
    from holdfast.engine.engine import Engine
    from holdfast.engine.run import Run
    from holdfast.journal.store import Head, Store

INBOX_MAX = 1000  # executions looked into for what they ask
PAGE = 500
PLACES_MAX = 5  # of one value, in which it differs
CHARS_BEFORE = 40  # of a long text are shown before the place in which it differs
VALUE_BYTES_MAX = 16 * 1024  # of a value that `diff` shows; a larger one is shown as its size and digest


def register(app: typer.Typer) -> None:
    for command in (inbox, history, diff):
        app.command()(command)


# ---- inbox ---------------------------------------------------------------------------------------------------------


@spread
def inbox(context: typer.Context, filters: Filters = ANY, limit: Limit = 100, as_json: AsJson = False) -> int:
    """List what is asked of people, over all executions: by whom, since when, until when, and how to answer.

    \b
    Example:
      holdfast inbox
      holdfast inbox --label team=harbour --json
    """
    settings = settings_of(context)

    async def work() -> list[dict[str, Any]]:
        async with looked_into(settings) as store:
            return [] if store is None else [asked async for asked in _open_requests(store, filters, limit)]

    found = wait_for(work())
    if as_json:
        print(json_line(found))
    elif found:
        print("\n\n".join("\n".join(_as_card(strip_control_chars(asked))) for asked in found))
    if not found:
        where = f" by what matches {filters.as_typed()}" if filters.are_given else ""
        aside(f"nothing is asked of anybody{where}", as_json)
    elif len(found) == limit:
        aside(f"these are the newest {limit}; --limit shows more", as_json)
    return 0


async def _open_requests(store: Store, filters: Filters, limit: int) -> AsyncIterator[dict[str, Any]]:
    """Heads say who waits for people; only those are opened, and those that run or are held up, which may ask, too."""
    from holdfast.cli.common.send_command import ASKING
    from holdfast.cli.output.event_lines import commands_for
    from holdfast.engine.at_rest import PEOPLE
    from holdfast.engine.json_view import resolved, wire_request
    from holdfast.journal.log import read_state

    opened, found = 0, 0
    query = await filters.query(store, now_us(), limit=PAGE, status=ASKING)
    while page := await store.heads(query):
        query.before = page[-1].id
        for head in page:
            if head.quarantined or (head.status == "waiting" and not any(r.kind in PEOPLE for r in head.reasons)):
                continue
            with suppress(StoreCorrupted):  # it is the doctor who names it; what others ask can be answered
                _, state, _ = await read_state(store, head.id)
                for asked in state.open_requests():
                    request = wire_request(asked, state)
                    typed = [command for command, _ in commands_for(request, head.id)]
                    yield await resolved(store, {**_of_execution(head), **request, "commands": typed})
                    found += 1
            opened += 1
            if opened >= INBOX_MAX or found >= limit:
                return


def _of_execution(head: Head) -> dict[str, object]:
    return {"execution_id": head.id, "name": head.name, "title": head.title, "owner": head.owner, "labels": head.labels}


def _as_card(asked: dict[str, Any]) -> list[str]:
    from holdfast.cli.output.event_lines import request_lines

    who = f", of {asked['owner']}" if asked["owner"] else ""
    heading = (
        f"{one_line(asked['title'] or asked['name'])} ({asked['execution_id']}{who}), {distance(asked['opened_at'])}"
    )
    return [paint(heading, "bold"), *(f"  {line}" for line in request_lines(asked, asked["execution_id"]))]


# ---- history -------------------------------------------------------------------------------------------------------

_SAID = frozenset(
    {
        "task:paused", "task:resumed", "task:interrupted", "task:stopped", "approval:granted", "approval:denied",
        "request:answered", "event:received", "plan:extended",
    }
)  # fmt: skip


@spread
def history(context: typer.Context, filters: Filters = ANY, limit: Limit = 20, as_json: AsJson = False) -> int:
    """Tell who ran what, how it ended and how long it took, and who commanded what, newest first.

    \b
    Example:
      holdfast history --since 1d
      holdfast history --owner ann --json
    """
    settings = settings_of(context)

    async def work() -> list[dict[str, Any]]:
        async with looked_into(settings) as store:
            if store is None:
                return []
            heads = await store.heads(await filters.query(store, now_us(), limit=limit))
            return [await _told(store, head) for head in heads]

    found = wait_for(work())
    if as_json:
        print(json_line(found))
    else:
        for told in found:
            print("\n".join(_as_story(strip_control_chars(told))))
    if not found:
        aside(f"no execution matches {filters.as_typed()}" if filters.are_given else "nothing was run yet", as_json)
    return 0


async def _told(store: Store, head: Head) -> dict[str, Any]:
    from holdfast.engine.json_view import iso, seconds, why_held, wire_event
    from holdfast.journal.log import read_events

    commands: list[dict[str, object]] = []
    after, started_by = 0, ""
    while page := await read_events(store, head.id, after, PAGE):
        after = page[-1][0]
        started_by = started_by or starter(page[0][1])
        commands += [wire_event(head.id, seq, event) for seq, event in page if _was_commanded(event)]
    took_us = head.ended_at - head.created_at if head.ended_at else None
    facts = _of_execution(head)
    facts["id"] = facts.pop("execution_id")
    return {
        **facts,
        "started_by": started_by or None,
        "status": head.status,
        "held": why_held(head) or None,
        "created_at": iso(head.created_at),
        "ended_at": iso(head.ended_at),
        "duration_s": seconds(took_us),
        "error": (head.error or None) if head.status != "completed" else None,
        "failures": (head.error or None) if head.status == "completed" else None,
        "commands": commands,
    }


def starter(first: AnyEvent) -> str:
    """Who handed an execution in, by its first event; "" where that is not known, and of children."""
    from holdfast.core.events import TaskCreated

    return first.by if isinstance(first, TaskCreated) else ""


def _was_commanded(event: AnyEvent) -> bool:
    from holdfast.core.events import name_of

    return name_of(event) in _SAID


def _as_story(told: dict[str, Any]) -> list[str]:
    from holdfast.cli.output.event_lines import line_of

    who = f" by {told['started_by']}" if told["started_by"] else ""
    who += f" for {told['owner']}" if told["owner"] not in ("", told["started_by"]) else ""
    took = f" after {duration(told['duration_s'])}" if told["duration_s"] is not None else ""
    error = f": {value(told['error'])}" if told["error"] else ""
    failures = f", {value(told['failures'])}" if told["failures"] else ""
    head = f"{local_time(told['created_at'])}  {one_line(told['title'] or told['name'])} ({told['id']}){who}"
    held = f", held: {told['held']}" if told["held"] else ""
    lines = [f"{paint(head, 'bold')}: {status_word(told['status'])}{failures}{held}{took}{error}"]
    return lines + [f"  {local_time(command['at'])}  {line_of(command)}" for command in told["commands"]]


# ---- diff ----------------------------------------------------------------------------------------------------------


def diff(context: typer.Context, execution: Id, other: Id, as_json: AsJson = False) -> int:
    """Compare two executions by the paths of their steps.

    Exit codes: 0 the same, 1 different, 2 wrong use. How long steps took is told where it is striking, and makes no
    difference.

    \b
    Example:
      holdfast diff 01a2 @last
    """
    settings = settings_of(context)

    async def work() -> dict[str, Any]:
        from holdfast.core.execution_diff import compare

        async with bare_engine(settings) as engine:
            a, b = await engine.find(execution), await engine.find(other)
            found = compare(await _side(engine, a), await _side(engine, b))
            return {"a": a.id, "b": b.id, **await _wired(engine, found)}

    found = wait_for(work())
    print(json_line(found) if as_json else "\n".join(_as_lines(strip_control_chars(found))))
    return 1 if found["differences"] else 0


async def _side(engine: Engine, run: Run) -> Side:
    from holdfast.core.execution_diff import side_of
    from holdfast.journal.log import read_events

    events = await read_events(engine.services.store, run.id, 0)
    return side_of(await run.state(), (event for _, event in events))


async def _wired(engine: Engine, found: Comparison) -> dict[str, Any]:
    return {
        "same": not found.differences,
        "differences": [await _wired_one(engine, one) for one in found.differences],
        "durations": [
            {"path": one.path, "a_s": one.a / 1e6, "b_s": one.b / 1e6} for one in found.durations
        ],
    }  # fmt: skip


async def _wired_one(engine: Engine, one: Difference) -> dict[str, Any]:
    return {
        "path": one.path, "what": one.what, "a": await _shown(engine, one.a), "b": await _shown(engine, one.b)
    }  # fmt: skip


async def _shown(engine: Engine, said: Any) -> Any:
    import msgspec

    from holdfast.engine.json_view import plain
    from holdfast.journal.blobs import fetch_blob, reference

    if not isinstance(said, msgspec.Raw):
        return said
    blob = reference(said)
    if blob is None or blob.bytes > VALUE_BYTES_MAX:
        return plain(said)
    return msgspec.json.decode(await fetch_blob(engine.services.store, blob))


def _as_lines(found: dict[str, Any]) -> list[str]:
    lines = [f"a: {found['a']}", f"b: {found['b']}"]
    if found["same"]:
        lines.append("the same")
    for one in found["differences"]:
        where = f"{one['path']}: " if one["path"] else ""
        if one["what"] == "step":
            side, status = ("a", one["a"]) if one["b"] is None else ("b", one["b"])
            lines.append(f"{where}only in {side} ({status})")
        else:
            lines += _sides(f"{where}{one['what']}", one["a"], one["b"])
    for one in found["durations"]:
        lines.append(f"{one['path']}: took {duration(one['a_s'])} in a, {duration(one['b_s'])} in b")
    return lines


def _sides(heading: str, a: Any, b: Any) -> list[str]:
    """Both of them; of what would be cut, only the places that differ, which may lie behind the cut."""
    from holdfast.core.execution_diff import places

    shown = [_brief(a), _brief(b)]
    is_cut = max(map(len, shown)) > VALUE_CHARS_MAX and not (_is_reference(a) or _is_reference(b))
    found = list(islice(places(a, b), PLACES_MAX + 1)) if is_cut else []
    if not found:
        return [heading, f"  a: {shown[0]}", f"  b: {shown[1]}"]
    lines: list[str] = []
    for place, one, other in found[:PLACES_MAX]:
        start = _start(one, other)
        lines += [f"{heading}, {one_line(place)}" if place else heading]
        lines += [f"  a: {_brief(one, start)}", f"  b: {_brief(other, start)}"]
    return lines + ([f"{heading}: more places differ; --json shows all"] if len(found) > PLACES_MAX else [])


def _is_reference(said: Any) -> bool:
    match said:
        case {"holdfast": "blob"}:
            return True
        case _:
            return False


def _start(a: Any, b: Any) -> int:
    """Of two texts that are the same for long: a little before they part."""
    if not isinstance(a, str) or not isinstance(b, str):
        return 0
    same = next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
    return max(0, same - CHARS_BEFORE) if same >= VALUE_CHARS_MAX - CHARS_BEFORE else 0


def _brief(said: Any, start: int = 0) -> str:
    match said:
        case str() if start:
            return f"…{value(said[start:])}"
        case None:
            return "nothing"
        case {"holdfast": "blob", "bytes": int(number), "digest": str(digest)}:
            return f"{size(number)}, too large to be shown here, with the digest {digest[:16]}"
        case _:
            return value(said)
