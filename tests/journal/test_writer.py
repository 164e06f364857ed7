"""Group commit: many writes, few commits; nobody hears of a write before it is durable, everybody of a failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError, StoreCorrupted, StoreUnavailable
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import Written
from holdfast.journal.writer import RELEASED_AT_ONCE, Writer
from holdfast.testing.store_contract.samples import Sample
from journal.support import GatedStore, turns


async def test_what_is_submitted_during_a_commit_goes_into_the_next_one_together() -> None:
    store = GatedStore()
    store.gate.clear()
    writer = Writer(store)
    writes = [asyncio.create_task(writer.write(Sample(number).new)) for number in range(100)]
    await turns()
    late = [asyncio.create_task(writer.write(Sample(number).new)) for number in range(100, 200)]
    await turns()
    store.gate.set()
    results = await asyncio.gather(*writes, *late)
    assert all(result.ok for result in results)
    assert [len(batch) for batch in store.batches] == [100, 100]
    assert writer.commits == 2
    await writer.close()


async def test_nobody_is_told_before_the_commit_has_returned() -> None:
    store = GatedStore()
    store.gate.clear()
    writer = Writer(store)
    told: list[object] = []
    batch = writer.submit(Sample(1).new, told.append)
    waiting = asyncio.create_task(writer.write(Sample(2).new))
    flushing = asyncio.create_task(writer.flush())
    await turns()
    assert not batch.is_open
    assert (told, waiting.done(), flushing.done()) == ([], False, False)
    store.gate.set()
    await flushing
    assert (told, (await waiting).ok) == ([Written(ok=True)], True)
    await writer.close()


async def test_flush_waits_for_the_commit_that_is_under_way() -> None:
    store = GatedStore()
    store.gate.clear()
    writer = Writer(store)
    writer.submit(Sample(1).new)
    await turns()
    flushing = asyncio.create_task(writer.flush())
    await turns()
    assert not flushing.done()
    store.gate.set()
    await flushing
    assert writer.commits == 1
    await writer.flush()  # nothing to wait for
    await writer.close()


async def test_a_refused_write_is_told_to_its_writer_alone() -> None:
    writer = Writer(MemoryStore())
    first, clash = Sample(1, key="k"), Sample(2, key="k")
    results = await asyncio.gather(writer.write(first.new), writer.write(clash.new))
    assert results == [Written(ok=True), Written(ok=False, existing=first.id)]
    await writer.close()


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (StoreUnavailable("the disk is full"), StoreUnavailable, "^the disk is full$"),
        (StoreCorrupted("damaged"), StoreCorrupted, "^damaged$"),
        (RuntimeError("odd"), StoreUnavailable, r"^the journal could not be written: RuntimeError\('odd'\)$"),
    ],
)
async def test_a_failed_commit_is_told_to_everybody_in_it(
    failure: Exception, kind: type[HoldfastError], text: str
) -> None:
    store = GatedStore()
    store.failure = failure
    writer = Writer(store)
    told: list[Any] = []
    writer.submit(Sample(1).new, told.append)
    writer.submit(Sample(2).new)
    writes = [asyncio.create_task(writer.write(Sample(number).new)) for number in (3, 4)]
    await asyncio.sleep(0)
    with pytest.raises(kind, match=text):
        await writer.flush()
    for task in writes:
        with pytest.raises(kind, match=text):
            await task
    assert [type(error) for error in told] == [kind]
    assert writer.commits == 0
    await writer.close()


async def test_the_writer_goes_on_after_a_failed_commit() -> None:
    store = GatedStore()
    store.failure = StoreUnavailable("the disk is full")
    writer = Writer(store)
    with pytest.raises(StoreUnavailable):
        await writer.write(Sample(1).new)
    store.failure = None
    assert (await writer.write(Sample(1).new)).ok
    await writer.close()


async def test_closing_writes_what_is_left_and_takes_nothing_more() -> None:
    store = GatedStore()
    writer = Writer(store)
    writer.submit(Sample(1).new)
    await writer.close()
    assert (await store.head(Sample(1).id)).seq == 1
    with pytest.raises(StoreUnavailable, match=r"^the journal was closed$"):
        writer.submit(Sample(2).new)


@pytest.mark.parametrize("failure", [StoreUnavailable("full"), StoreCorrupted("damaged")])
async def test_closing_a_writer_whose_store_fails_still_closes_it(failure: Exception) -> None:
    store = GatedStore()
    store.failure = failure
    writer = Writer(store)
    writer.submit(Sample(1).new)
    await writer.close()
    with pytest.raises(StoreUnavailable):
        writer.submit(Sample(2).new)


async def test_closing_during_a_commit_waits_for_it() -> None:
    store = GatedStore()
    store.gate.clear()
    writer = Writer(store)
    writer.submit(Sample(1).new)
    await turns()
    closing = asyncio.create_task(writer.close())
    await turns()
    assert not closing.done()
    store.gate.set()
    await closing
    assert writer.commits == 1


async def test_a_writer_that_was_never_used_closes_at_once() -> None:
    await Writer(MemoryStore()).close()


async def test_a_listener_that_fails_keeps_the_news_from_nobody() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def fails(_: object) -> None:
        raise ValueError("clumsy")

    writer = Writer(MemoryStore())
    told: list[object] = []
    writer.submit(Sample(1).new, fails)
    writer.submit(Sample(2).new, told.append)
    await writer.flush()
    assert told == [Written(ok=True)]
    assert (await writer.write(Sample(3).new)).ok
    assert [str(complaint["exception"]) for complaint in complaints] == ["clumsy"]
    await writer.close()


async def test_whoever_gives_up_waiting_disturbs_nobody() -> None:
    store = GatedStore()
    store.gate.clear()
    writer = Writer(store)
    impatient = asyncio.create_task(writer.write(Sample(1).new))
    flushing = asyncio.create_task(writer.flush())
    patient = asyncio.create_task(writer.write(Sample(2).new))
    await turns()
    impatient.cancel()
    flushing.cancel()
    await turns()
    store.gate.set()
    assert (await patient).ok
    assert (await store.head(Sample(1).id)).seq == 1  # it was written all the same
    await writer.close()


async def test_a_great_many_waiters_are_all_let_go() -> None:
    store = GatedStore()
    store.gate.clear()
    writer = Writer(store)
    writer.submit(Sample(1).new)
    flushes = [asyncio.create_task(writer.flush()) for _ in range(3 * RELEASED_AT_ONCE + 1)]
    await turns()
    store.gate.set()
    await asyncio.gather(*flushes)
    await writer.close()
