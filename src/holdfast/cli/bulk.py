"""Commands for many executions at once: which are meant, what would be touched, what became of each.

The engine writes all commands before it waits for any, under ids made from the bulk's own. So a process that dies
leaves nothing half-meant: drivers and other engines apply the rest, and the same bulk again goes on with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.filters import Filters
from holdfast.cli.place import bare_engine, now_us, wait_for
from holdfast.cli.text import aside, count, json_line, local_time, one_line, tame
from holdfast.core.errors import InputInvalid, NotFound, Refused, UsageError
from holdfast.core.suggest import quoted

if TYPE_CHECKING:
    from holdfast.core.commands import Answer
    from holdfast.engine.engine import Engine
    from holdfast.journal.store import Head, Query, Store
    from holdfast.settings import Settings

PAGE = 1000  # executions looked at in one go
EXECUTIONS_MAX = 100_000  # of one bulk: more at once is a slip of the pen, and `--until` divides it
BULK_ID_CHARS_MAX = 100
KNOWN_US = 30 * 24 * 3600 * 1_000_000  # a bulk can be gone on with for so long; who comes later looks anew
REASONS_SHOWN = 10
IDS_SHOWN = 5
OUTCOMES = ("applied", "unchanged", "queued", "refused")


@dataclass(frozen=True, kw_only=True)
class Selection(Filters):
    """Many executions, and how to deal with them."""

    everything: Annotated[bool, typer.Option("--all", help="Yes, all of them, if the filters leave none out.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be touched.")] = False
    bulk_id: Annotated[
        str, typer.Option("--id", metavar="BULK", help="Go on with a bulk that was cut off; nothing is done twice.")
    ] = ""

    def is_meant(self, execution: str) -> bool:
        """Whether many are meant, and not one execution by its id."""
        if execution and self.are_given:
            raise UsageError("give the ID of one execution, or filters for many, not both")
        if not (execution or self.are_given or self.everything or self.bulk_id):
            raise UsageError("say which: the ID of an execution, filters such as --status waiting, or --all")
        return not execution or self.dry_run or bool(self.bulk_id)


ONE = Selection()
Work = Callable[["Engine", list[str], str], AsyncIterator[tuple[str, "Answer"]]]


async def _anyone(_store: Store, _head: Head) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Doing:
    """One verb for many: whom it means unless a status is asked for, and how it is done.

    `first` is done even if nothing fits. `refusals` foresees who would be refused, and why.
    `done_before` names those of them, and why, that a new bulk leaves out because they were done by an earlier one.
    """

    word: str
    status: tuple[str, ...]
    work: Work
    fits: Callable[[Store, Head], Awaitable[bool]] = _anyone
    with_children: bool = True  # whether children are meant by themselves, too
    done_before: Callable[[Engine, list[Head]], Awaitable[tuple[set[str], str]]] | None = None
    refusals: Callable[[Engine, list[str]], Awaitable[dict[str, str]]] | None = None
    first: Callable[[Engine], Awaitable[object]] | None = None
    after: str = ""  # a sentence for what was applied


def do_many(settings: Settings, doing: Doing, selection: Selection, execution: str, *, as_json: bool) -> int:
    """Exit code 0 if nothing was refused, 1 if something was."""
    if len(selection.bulk_id) > BULK_ID_CHARS_MAX:
        raise InputInvalid(f"--id has {len(selection.bulk_id):,} characters, {BULK_ID_CHARS_MAX} are allowed")

    async def work() -> int:
        async with bare_engine(settings) as engine:
            if selection.bulk_id:
                await _check_known(engine, doing, selection.bulk_id)
            if doing.first and not selection.dry_run:
                await doing.first(engine)
            heads = await _selected(engine, doing, selection, execution)
            if heads and doing.done_before and not selection.bulk_id:
                left_out, why = await doing.done_before(engine, heads)
                heads = [head for head in heads if head.id not in left_out]
                if left_out:
                    aside(why, as_json)
            if not heads:
                by = f" by bulk {selection.bulk_id}" if selection.bulk_id else "; nothing was changed"
                aside(f"nothing is left to be {doing.word}{by}", as_json)
                return 0
            if selection.dry_run:
                refused = await doing.refusals(engine, [head.id for head in heads]) if doing.refusals else {}
                return _tell_dry(doing, heads, refused, as_json)
            bulk_id = selection.bulk_id or await _begin(engine, doing)
            meant = f"{count(len(heads), 'execution')} to be {doing.word}"
            aside(f"{meant}; if this is cut off, add --id {bulk_id}", as_json)
            telling = _Telling(doing, as_json)
            # Parents first: what is passed down to a child must not come after what the child is told itself.
            async for execution_id, answer in doing.work(engine, sorted(head.id for head in heads), bulk_id):
                telling.hear(execution_id, answer)
            return telling.close()

    return wait_for(work())


# ---- going on ------------------------------------------------------------------------------------------------------


async def _begin(engine: Engine, doing: Doing) -> str:
    """A new bulk, written down before it does anything: only an id that is known can be gone on with."""
    from holdfast.journal.store import Mark

    bulk_id = engine.services.new_id()
    now = engine.services.clock.now_us()
    await engine.services.writer.write(Mark(key=_key(doing, bulk_id), at=now, expires_at=now + KNOWN_US))
    return bulk_id


async def _check_known(engine: Engine, doing: Doing, bulk_id: str) -> None:
    """A mistyped id must not begin a second bulk, which would do everything again."""
    now = engine.services.clock.now_us()
    if await engine.services.store.cached(_key(doing, bulk_id), now) is None:
        raise NotFound(
            f"no such bulk: none of the last 30 days with the id {quoted(bulk_id)} had executions to be {doing.word}; "
            "nothing was changed. Give the id that was printed, or leave --id out to begin a new one"
        )


def _key(doing: Doing, bulk_id: str) -> str:
    return f"bulk:{doing.word}:{bulk_id}"


# ---- which ---------------------------------------------------------------------------------------------------------


async def _selected(engine: Engine, doing: Doing, selection: Selection, execution: str) -> list[Head]:
    store = engine.services.store
    heads: dict[str, Head] = {}
    if execution:
        run = await engine.find(execution)
        heads[run.id] = await run.head()
    elif selection.are_given or selection.everything:
        query = await selection.query(store, now_us(), limit=PAGE, status=doing.status)
        query.parent_id = None if doing.with_children else ""
        begun_us = _begun_us(selection.bulk_id)
        if begun_us is not None and (query.created_before is None or query.created_before > begun_us):
            query.created_before = begun_us  # a bulk means what was there when it began
        found = await _all(store, query)
        heads = {head.id: head for head in found if selection.status or await doing.fits(store, head)}
    if selection.bulk_id:
        heads = {one: head for one, head in heads.items() if await store.answer(f"{selection.bulk_id}:{one}") is None}
        for execution_id in await _unanswered(store, selection.bulk_id):
            heads[execution_id] = await store.head(execution_id)
    if not heads and not selection.bulk_id:
        typed = selection.as_typed() or "--all"
        raise NotFound(f"nothing that could be {doing.word} matches {typed}; nothing was changed")
    if selection.are_given and not (selection.everything or selection.dry_run):
        chosen = bool(selection.status or selection.bulk_id)
        await _check_not_everything(store, () if chosen else doing.status, heads)
    return list(heads.values())


async def _unanswered(store: Store, bulk_id: str) -> list[str]:
    """Whom the commands of a bulk that was cut off were written for, and who has not answered."""
    found: list[str] = []
    page = await store.pending()
    while page:
        found += [command.execution_id for command in page if command.id == f"{bulk_id}:{command.execution_id}"]
        page = await store.pending(after=page[-1].id)
    return found


async def _all(store: Store, query: Query) -> list[Head]:
    found: list[Head] = []
    while page := await store.heads(query):
        found += page
        if len(found) > EXECUTIONS_MAX:
            raise UsageError(f"more than {EXECUTIONS_MAX:,} executions match; narrow the filters, as with --until")
        query.before = page[-1].id
    return found


async def _check_not_everything(store: Store, status: tuple[str, ...], heads: dict[str, Head]) -> None:
    """What has ended makes no choice out of a filter for what has not; a status that is asked for is a choice."""
    from holdfast.journal.store import Query

    found = await store.heads(Query(status=status, limit=len(heads) + 1))
    if len(heads) > 1 and all(head.id in heads for head in found):
        which = f"that are {' or '.join(status)}" if status else "there are"
        raise Refused(
            f"the filters leave nothing out: they match all {len(heads):,} executions {which}; "
            "add --all if that is meant, or look first with --dry-run"
        )


def _begun_us(bulk_id: str) -> int | None:
    """When a bulk began, if its id was made here (a UUIDv7 begins with the time)."""
    plain = bulk_id.replace("-", "")
    if len(plain) != 32 or plain[12:13] != "7":
        return None
    try:
        return (int(plain[:12], 16) + 1) * 1000
    except ValueError:
        return None


# ---- what became of them -------------------------------------------------------------------------------------------


def dry_line(head: Head, as_json: bool = False) -> str:
    """One execution that would be touched."""
    from holdfast.engine.wire import iso, why_held

    held = why_held(head)
    if as_json:
        said = {"id": head.id, "status": head.status, "held": held or None, "name": head.name, "title": head.title}
        return json_line(said)
    status = "held" if held else head.status
    return f"{head.id}  {status:<11}  {local_time(iso(head.created_at))}  {one_line(tame(head.title or head.name))}"


def _tell_dry(doing: Doing, heads: list[Head], refused: dict[str, str], as_json: bool) -> int:
    touched = [head for head in heads if head.id not in refused]
    for head in touched:
        print(dry_line(head, as_json))
    aside(f"{count(len(touched), 'execution')} would be {doing.word}; nothing was changed", as_json)
    reasons = Reasons()
    for execution_id, why in refused.items():
        reasons.add(execution_id, why)
    for line in reasons.lines("would refuse"):
        aside(line.strip(), as_json)
    return 0


class Reasons:
    """Why each of many was not touched: the same reason is told once, with some of those it is true for."""

    def __init__(self) -> None:
        self._ids: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, execution_id: str, why: str) -> None:
        self._ids[why.replace(execution_id, "ID")].append(execution_id)

    def lines(self, word: str) -> Iterator[str]:
        for text, ids in sorted(self._ids.items(), key=lambda item: -len(item[1]))[:REASONS_SHOWN]:
            more = f" and {len(ids) - IDS_SHOWN} more" if len(ids) > IDS_SHOWN else ""
            yield f"  {word} {len(ids)}: {text}\n    {' '.join(ids[:IDS_SHOWN])}{more}"


class _Telling:
    """One object for each with `--json`; for people a count of each outcome, and why what was refused was."""

    def __init__(self, doing: Doing, as_json: bool) -> None:
        self._doing = doing
        self._as_json = as_json
        self._outcomes: Counter[str] = Counter()
        self._refused = Reasons()

    def hear(self, execution_id: str, answer: Answer) -> None:
        self._outcomes[answer.outcome] += 1
        if answer.outcome == "refused":
            self._refused.add(execution_id, answer.text)
        if self._as_json:
            said = {"id": execution_id, "outcome": answer.outcome, "text": answer.text, "seq": answer.seq or None}
            print(json_line({**said, "command_id": answer.command_id}), flush=True)

    def close(self) -> int:
        if not self._as_json:
            print(", ".join(f"{self._outcomes[one]} {one}" for one in OUTCOMES if self._outcomes[one]))
            for line in self._refused.lines("refused"):
                print(line)
        if self._doing.after and self._outcomes["applied"]:
            aside(self._doing.after, self._as_json)
        return 1 if self._outcomes["refused"] else 0
