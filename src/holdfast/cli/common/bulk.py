"""Commands for many executions at once: which are meant, what would be touched, what became of each.

What is meant is written down before anybody is touched (journal/bulk_log.py), whatever the verb. So a process that dies
leaves nothing half-meant: the same bulk again goes on where it was, and does nothing twice. Orders are written into the
inbox before the first is waited for, so that drivers and other engines apply the rest even if nobody goes on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common.context import bare_engine, now_us, wait_for
from holdfast.cli.common.filters import Filters
from holdfast.cli.common.invocation import pastable
from holdfast.cli.common.options import not_empty
from holdfast.cli.output.format import aside, count, json_line, local_time, one_line, strip_control_chars
from holdfast.core.errors import NotFound, Refused, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.core.commands import Answer
    from holdfast.engine.engine import Engine
    from holdfast.journal.bulk_log import Bulk
    from holdfast.journal.store import Head, Query, Store
    from holdfast.settings import Settings

PAGE = 1000  # executions looked at in one go
EXECUTIONS_MAX = 100_000  # of one bulk: more at once is a slip of the pen, and `--until` divides it
REASONS_SHOWN = 10
IDS_SHOWN = 5
OUTCOMES = ("applied", "unchanged", "queued", "refused")


@dataclass(frozen=True, kw_only=True)
class Selection(Filters):
    """Many executions, and how to deal with them."""

    everything: Annotated[bool, typer.Option("--all", help="Yes, all of them, if the filters leave none out.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be touched.")] = False
    bulk_id: Annotated[
        str,
        typer.Option(
            "--id", metavar="BULK", callback=not_empty,
            help="Go on with a bulk that was cut off; nothing is done twice.",
        ),
    ] = ""  # fmt: skip

    def is_meant(self, execution: str) -> bool:
        """Whether many are meant, and not one execution by its id."""
        if execution and self.are_given:
            raise UsageError("give the ID of one execution, or filters for many, not both")
        if execution and self.bulk_id:
            raise UsageError("--id goes on with a bulk, which knows whom it means; leave the ID of the execution out")
        if not (execution or self.are_given or self.everything or self.bulk_id):
            raise UsageError("say which: the ID of an execution, filters such as --status waiting, or --all")
        return not execution or self.dry_run or bool(self.bulk_id)


ONE = Selection()
Told = AsyncIterator[tuple[str, "Answer"]]
Work = Callable[["Engine", list[str], str], Told]


async def _anyone(_store: Store, _head: Head) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class BulkOperation:
    """One verb for many: whom it means unless a status is asked for, and how it is done.

    `work` does nothing twice for the same bulk id: who was done and not noted is only told again. `first` is done even
    if nothing fits. `refusals` foresees who would be refused, and why. `done_before` names those of them, and why, that
    a new bulk leaves out because they were done by an earlier one.
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


@dataclass(frozen=True, kw_only=True)
class Many:
    """A verb as it was typed, with all that was said besides whom it means: what a bulk keeps, and can go on with."""

    verb: str
    make: Callable[..., BulkOperation]
    said: dict[str, Any]
    with_tools: bool = False  # whether what is said must fit the tools

    def doing(self, kept: Mapping[str, Any] | None = None) -> BulkOperation:
        return self.make(**(self.said if kept is None else kept))


def do_many(settings: Settings, many: Many, selection: Selection, execution: str, *, as_json: bool) -> int:
    """Exit code 0 if nothing was refused, 1 if something was."""

    async def work() -> int:
        async with bare_engine(settings, with_tools=many.with_tools) as engine:
            if selection.bulk_id:
                return await _go_on(engine, settings.data_folder, many, selection, as_json)
            return await _begin(engine, settings.data_folder, many, selection, execution, as_json)

    return wait_for(work())


async def _begin(engine: Engine, folder: Path, many: Many, selection: Selection, execution: str, as_json: bool) -> int:
    from holdfast.journal.bulk_log import Meant, begin

    doing = many.doing()
    if doing.first and not selection.dry_run:
        await doing.first(engine)
    heads = await _selected(engine, doing, selection, execution)
    if doing.done_before:
        left_out, why = await doing.done_before(engine, heads)
        heads = [head for head in heads if head.id not in left_out]
        if left_out:
            aside(why, as_json)
    if not heads:
        aside(f"nothing is left to be {doing.word}; nothing was changed", as_json)
        return 0
    if selection.dry_run:
        return await _tell_dry(engine, doing, heads, as_json)
    # Parents first: what is passed down to a child must not come after what the child is told itself.
    ids = tuple(sorted(head.id for head in heads))
    meant = Meant(verb=many.verb, said=many.said, filters=selection.as_typed(), executions=ids)
    with closing(begin(folder, engine.services.new_id(), meant)) as bulk:
        return await _work_off(engine, doing, bulk, list(ids), as_json)


async def _go_on(engine: Engine, folder: Path, many: Many, selection: Selection, as_json: bool) -> int:
    """Whom it means was settled when it began, and so was what it says to them."""
    from holdfast.journal.bulk_log import go_on

    with closing(go_on(folder, selection.bulk_id, many.verb)) as bulk:
        _check_same(bulk, many, selection)
        doing = many.doing(bulk.meant.said)
        ids = bulk.left()
        if not ids:
            aside(f"nothing is left to be {doing.word} by bulk {bulk.id}", as_json)
            return 0
        if selection.dry_run:
            return await _tell_dry(engine, doing, await heads_of(engine, ids), as_json)
        if doing.first:
            await doing.first(engine)
        return await _work_off(engine, doing, bulk, ids, as_json)


def _check_same(bulk: Bulk, many: Many, selection: Selection) -> None:
    """Whoever says less the second time, such as nothing but the id, means what was said the first time."""
    meant = bulk.meant
    typed = selection.as_typed()
    if typed and typed != meant.filters:
        begun = f"with {meant.filters}" if meant.filters else "without filters"
        raise Refused(f"bulk {bulk.id} was begun {begun}; nothing was changed; leave the filters out to go on with it")
    for name, value in many.said.items():
        if value not in (None, "", False) and value != meant.said.get(name):
            raise Refused(
                f"bulk {bulk.id} was begun with other values; nothing was changed; leave them out to go on with it, or "
                "leave --id out to begin a new one"
            )


async def _work_off(engine: Engine, doing: BulkOperation, bulk: Bulk, ids: list[str], as_json: bool) -> int:
    meant = f"{count(len(ids), 'execution')} to be {doing.word}"
    aside(f"{meant}; if this is cut off, add --id {bulk.id}", as_json)
    telling = _Telling(doing, as_json)
    async for execution_id, answer in doing.work(engine, ids, bulk.id):
        bulk.note(execution_id, answer.outcome)
        telling.hear(execution_id, answer)
    return telling.close()


# ---- which ---------------------------------------------------------------------------------------------------------


async def _selected(engine: Engine, doing: BulkOperation, selection: Selection, execution: str) -> list[Head]:
    store = engine.services.store
    if execution:
        return [await (await engine.find(execution)).head()]
    query = await selection.query(store, now_us(), limit=PAGE, status=doing.status)
    query.parent_id = None if doing.with_children else ""
    found = await _all(store, query)
    heads = {head.id: head for head in found if selection.status or await doing.fits(store, head)}
    if not heads:
        typed = selection.as_typed() or "--all"
        raise NotFound(f"nothing that could be {doing.word} matches {typed}; nothing was changed")
    if not (selection.everything or selection.dry_run):
        await _check_not_everything(store, () if selection.status else doing.status, heads)
    return list(heads.values())


async def heads_of(engine: Engine, ids: list[str]) -> list[Head]:
    """Those of them that are still there."""
    from holdfast.journal.store import Query

    found: list[Head] = []
    for at in range(0, len(ids), PAGE):
        found += await engine.list(Query(ids=tuple(ids[at : at + PAGE]), limit=PAGE))
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


# ---- what became of them -------------------------------------------------------------------------------------------


def dry_line(head: Head, as_json: bool = False) -> str:
    """One execution that would be touched."""
    from holdfast.engine.json_view import iso, why_held

    held = why_held(head)
    if as_json:
        said = {"id": head.id, "status": head.status, "held": held or None, "name": head.name, "title": head.title}
        return json_line(said)
    status = "held" if held else head.status
    title = one_line(strip_control_chars(head.title or head.name))
    return f"{head.id}  {status:<11}  {local_time(iso(head.created_at))}  {title}"


async def _tell_dry(engine: Engine, doing: BulkOperation, heads: list[Head], as_json: bool) -> int:
    refused = await doing.refusals(engine, [head.id for head in heads]) if doing.refusals else {}
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

    def __init__(self, doing: BulkOperation, as_json: bool) -> None:
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
                print(pastable(line))
        if self._doing.after and self._outcomes["applied"]:
            aside(self._doing.after, self._as_json)
        return 1 if self._outcomes["refused"] else 0
