"""Resuming and retrying many: they are let go on or handed in again, and left to the engines that run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.common.bulk import IDS_SHOWN, PAGE, BulkOperation, Told, heads_of
from holdfast.cli.common.invocation import holdfast
from holdfast.core.errors import UsageError

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.journal.store import Head, Store

_LEFT_TO_ENGINES = "they are driven by the engines that run; one without an engine: holdfast resume ID"


def resuming(why: str) -> BulkOperation:
    async def work(engine: Engine, ids: list[str], bulk_id: str) -> Told:
        import msgspec

        from holdfast.core.commands import Answer

        held = await _held(engine, ids)
        foreign = await _foreign(engine, held)
        for execution_id, text in foreign.items():
            yield execution_id, Answer(command_id=f"{bulk_id}:{execution_id}", outcome="refused", text=text)
        ours = [one for one in ids if one not in foreign]
        async for execution_id, answer in engine.command_many(ours, "resume", bulk_id=bulk_id, why=why):
            if execution_id not in held or answer.outcome == "refused":
                yield execution_id, answer
                continue
            text = answer.text if answer.outcome == "applied" else "held no longer"
            yield execution_id, msgspec.structs.replace(answer, outcome="applied", text=text)

    statuses = ("queued", "running", "waiting", "paused", "interrupted")
    return BulkOperation(word="resumed", status=statuses, work=work, fits=_is_held, after=_LEFT_TO_ENGINES)


async def _is_held(_store: Store, head: Head) -> bool:
    """By a person, by a restored backup, or because it was handed in so."""
    from holdfast.engine.at_rest import is_held

    return head.status in ("paused", "interrupted") or is_held(head)


async def _held(engine: Engine, ids: list[str]) -> dict[str, str]:
    """Who is held, and why."""
    from holdfast.journal.store import Query

    held: dict[str, str] = {}
    for at in range(0, len(ids), PAGE):
        page = tuple(ids[at : at + PAGE])
        held |= {head.id: head.held for head in await engine.list(Query(ids=page, limit=PAGE)) if head.held}
    return held


async def _foreign(engine: Engine, held: dict[str, str]) -> dict[str, str]:
    """What was imported from elsewhere: no engine here would drive it before a person accepts the differences."""
    from holdfast.core.held import is_imported
    from holdfast.engine.transfer.compatibility import differences_of_place, only_of_folder

    found: dict[str, str] = {}
    for execution_id, why in held.items():
        if is_imported(why) and (
            others := differences_of_place(await engine.get(execution_id).state(), engine.services)
        ):
            option = "--other-folder" if only_of_folder(others) else "--force"
            accept = f"accept that for each: {holdfast()} resume {execution_id} {option}"
            found[execution_id] = f"it was imported, and {' and '.join(map(str, others))}; {accept}"
    return found


async def _retried_before(engine: Engine, heads: list[Head]) -> tuple[set[str], str]:
    """What was retried has had its turn: it is the retry that is retried, should it fail."""
    from holdfast.engine.transfer.forks import newest_fork

    made: dict[str, str] = {}
    for head in heads:
        if fork := await newest_fork(engine.services.store, head.id):
            made[head.id] = fork.id
    some = ", ".join(f"{origin} as {fork}" for origin, fork in list(made.items())[:IDS_SHOWN])
    more = f" and {len(made) - IDS_SHOWN} more" if len(made) > IDS_SHOWN else ""
    were = "was" if len(made) == 1 else "were"
    return set(
        made
    ), f"{len(made)} {were} retried or forked before ({some}{more}) and left out; --again takes them, too"


async def _retry_all(engine: Engine, ids: list[str], bulk_id: str) -> Told:
    """Each under a key made from the bulk's id, so that a second time finds what the first has made."""
    from holdfast.core.commands import Answer
    from holdfast.engine.transfer.forks import check_retry

    for execution_id in ids:
        key = f"{bulk_id}:{execution_id}"
        try:
            await check_retry(engine.services.store, execution_id, again=True)  # who was retried before is left out
            made = await engine.fork(execution_id, key=key, drive=False)
        except UsageError as error:
            yield execution_id, Answer(command_id=key, outcome="refused", text=str(error))
        else:
            yield execution_id, Answer(command_id=key, outcome="applied", text=f"retried as {made.id}")


async def _unended(engine: Engine, ids: list[str]) -> dict[str, str]:
    """Who moves yet, or may: whoever asks for such a status is told, and not given a second one beside it."""
    from holdfast.engine.transfer.forks import not_ended

    return {head.id: text for head in await heads_of(engine, ids) if (text := not_ended(head))}


def retrying(again: bool) -> BulkOperation:
    return BulkOperation(
        word="retried", status=("failed", "stopped"), work=_retry_all, after=_LEFT_TO_ENGINES,
        done_before=None if again else _retried_before, refusals=_unended,
    )  # fmt: skip
