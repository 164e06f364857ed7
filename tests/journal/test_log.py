"""One open journal: appending, becoming durable, and losing it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.histories import BROKEN, TO_STATUS, fold
from holdfast.core import events as ev
from holdfast.core.commands import Answer, Command
from holdfast.core.errors import Fenced, HoldfastError, StoreCorrupted, StoreUnavailable
from holdfast.core.execution import Execution
from holdfast.core.policy import INLINE_BYTES_MAX
from holdfast.journal.blobs import references
from holdfast.journal.log import head_change, new_execution, read_state
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import CacheItem, Claim, Entry
from holdfast.journal.writer import Writer
from holdfast.testing.store_contract.samples import sample_answer
from journal.support import GatedStore, created, new_log, received, turns


async def reopened(store: Any) -> Execution:
    _, state, _ = await read_state(store, "e1")
    return state


# ---- appending ---------------------------------------------------------------------------------


async def test_events_are_folded_at_once_and_durable_after_the_commit() -> None:
    store = GatedStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    store.gate.clear()
    log.append(ev.TaskStarted(at=2, because="created"), received())
    assert (log.state.status, log.state.seq, log.durable_seq) == ("running", 3, 1)
    waiting = asyncio.create_task(log.durable())
    await turns()
    assert not waiting.done()
    assert not log.is_durable()
    assert (await store.head("e1")).seq == 1
    store.gate.set()
    await waiting
    assert (log.durable_seq, log.is_durable()) == (3, True)
    assert await reopened(store) == log.state
    await writer.close()


async def test_appends_before_a_commit_share_one_entry() -> None:
    store = GatedStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    for number in range(50):
        log.append(received(number))
    await log.durable()
    assert [len(batch) for batch in store.batches] == [1, 1]
    assert await reopened(store) == log.state
    await writer.close()


async def test_appends_during_a_commit_go_into_the_next_entry() -> None:
    store = GatedStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    store.gate.clear()
    log.append(received(1))
    await turns()
    log.append(received(2))
    store.gate.set()
    await log.durable()
    assert (log.durable_seq, len(store.batches)) == (3, 3)
    assert await reopened(store) == log.state
    await writer.close()


async def test_what_goes_with_the_events_is_written_with_them() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    command = Command(id="c1", execution_id="e1", verb="pause", at=1)
    await writer.write(command)
    child, _ = new_execution("e2", [created()])
    value = log.blobs.keep(b'"' + b"x" * INLINE_BYTES_MAX + b'"')
    log.append(
        ev.TaskStarted(at=2, because="created"),
        ev.StepStarted(at=3, path="a", tool="t"),
        ev.StepCompleted(at=4, path="a", output=value),
        answers=[sample_answer(command)],
        posts=[Command(id="c2", execution_id="e2", verb="stop", at=1)],
        creates=[child],
        cached=[CacheItem("k", b"v", 99)],
    )
    await log.durable()
    assert await store.answer("c1") == sample_answer(command)
    assert [pending.id for pending in await store.pending()] == ["c2"]
    assert (await store.head("e2")).seq == 1
    assert await store.cached("k", 1) == b"v"
    assert len(await log.blobs.fetch(value)) == INLINE_BYTES_MAX + 2
    assert (await reopened(store)).steps["a"].output == value
    await writer.close()


async def test_what_went_with_each_of_several_appends_is_written_with_their_one_entry() -> None:
    store = GatedStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    commands = [Command(id=f"c{number}", execution_id="e1", verb="pause", at=1) for number in (1, 2)]
    for command in commands:
        await writer.write(command)
    children = [new_execution(name, [created()])[0] for name in ("e2", "e3")]
    values = [log.blobs.keep(b'"' + letter * INLINE_BYTES_MAX + b'"') for letter in (b"x", b"y")]
    log.append(ev.TaskStarted(at=2, because="created"))
    await log.durable()
    batches = len(store.batches)
    for number, (command, child, value) in enumerate(zip(commands, children, values, strict=True)):
        log.append(
            ev.StepStarted(at=3, path=f"s{number}", tool="t"),
            ev.StepCompleted(at=4, path=f"s{number}", output=value),
            answers=[sample_answer(command)],
            posts=[Command(id=f"p{number}", execution_id=child.head.id, verb="stop", at=1)],
            creates=[child],
            cached=[CacheItem(f"k{number}", b"v", 99)],
        )
    await log.durable()
    assert len(store.batches) == batches + 1
    [entry] = store.batches[-1]
    assert isinstance(entry, Entry)
    assert [await store.answer(command.id) for command in commands] == [sample_answer(one) for one in commands]
    assert [command.id for command in await store.pending()] == ["p0", "p1"]
    assert [(await store.head(child.head.id)).seq for child in children] == [1, 1]
    assert [await store.cached(key, 1) for key in ("k0", "k1")] == [b"v", b"v"]
    assert [len(await log.blobs.fetch(value)) for value in values] == [INLINE_BYTES_MAX + 2] * 2
    assert sorted(entry.uses) == sorted(name for value in values for name in references(bytes(value)))
    await writer.close()


async def test_an_answer_without_events_is_durable_when_durable_returns() -> None:
    store = GatedStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    command = Command(id="c1", execution_id="e1", verb="resume", at=1)
    await writer.write(command)
    store.gate.clear()
    log.append(answers=[sample_answer(command)])
    waiting = asyncio.create_task(log.durable())
    await turns()
    assert not waiting.done()
    store.gate.set()
    await waiting
    assert await store.answer("c1") is not None
    await writer.close()


async def test_durable_waits_for_the_last_of_several_entries() -> None:
    store = GatedStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    command = Command(id="c1", execution_id="e1", verb="resume", at=1)
    await writer.write(command)
    store.gate.clear()
    log.append(received())
    await turns()
    log.append(answers=[sample_answer(command)])  # no event, and already the next batch
    store.gate.set()
    store.gate.clear()  # lets exactly the commit go that waits
    await turns(20)
    assert log.durable_seq == 2
    waiting = asyncio.create_task(log.durable())
    await turns()
    assert not waiting.done()
    store.gate.set()
    await waiting
    assert await store.answer("c1") is not None
    await writer.close()


async def test_the_head_follows_the_status_and_is_released() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    changed: list[bool] = []
    log.on_durable = changed.append
    log.append(ev.TaskStarted(at=2, because="created"))
    await log.durable()
    assert ((await store.head("e1")).status, (await store.head("e1")).driver) == ("running", "d1")
    log.append(received())
    await log.durable()
    log.append(ev.TaskError(at=30, failure=BROKEN, path="a"), release=True)
    await log.durable()
    head = await store.head("e1")
    assert (head.status, head.driver, head.error, head.failed_path) == ("failed", "", "no answer", "a")
    assert (head.ended_at, head.wake_at, head.updated_at) == (30, None, 30)
    assert changed == [True, False, True]
    await writer.close()


async def test_wake_asks_for_a_driver_whatever_the_execution_waits_for() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    log.append(ev.TaskStarted(at=2, because="created"), ev.TaskWaiting(at=3, reasons=()))
    await log.durable()
    assert (await store.head("e1")).wake_at is None
    log.append(wake=True, release=True)
    await log.durable()
    assert (await store.head("e1")).wake_at == 0
    assert head_change(fold(TO_STATUS["completed"]), wake=True).wake_at is None
    await writer.close()


# ---- losing it ---------------------------------------------------------------------------------


async def test_a_wish_to_be_woken_outlives_what_is_written_after_it_until_it_is_woken() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    log.append(ev.TaskStarted(at=2, because="created"))
    log.append(ev.TaskWaiting(at=3, reasons=()))
    log.append(wake=True)
    log.append(answers=[Answer(command_id="c1", outcome="refused", text="no")])
    await log.durable()
    assert (await store.head("e1")).wake_at == 0
    log.append(ev.TaskStarted(at=4, because="woken"))
    log.append(ev.TaskWaiting(at=5, reasons=()))
    await log.durable()
    assert (await store.head("e1")).wake_at is None
    await writer.close()


async def test_whoever_was_replaced_learns_it_from_the_next_append() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    lost: list[HoldfastError] = []
    log.on_lost = lost.append
    await writer.write(Claim(execution_id="e1", driver="d2", replacing="d1"))
    log.append(received())
    with pytest.raises(Fenced, match="Another driver has taken this execution over"):
        await log.durable()
    with pytest.raises(Fenced):
        log.append(received())
    with pytest.raises(Fenced):
        await log.durable()
    assert [type(error) for error in lost] == [Fenced]
    assert (await store.head("e1")).seq == 1
    await writer.close()


async def test_after_a_failed_commit_the_log_is_dead_and_says_why_it_failed_first() -> None:
    store = GatedStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    lost: list[HoldfastError] = []
    log.on_lost = lost.append
    store.failure = StoreUnavailable("the disk is full")
    store.gate.clear()
    log.append(received(1))
    await turns()
    log.append(received(2))  # already in the next batch when the first one fails
    store.gate.set()
    await turns(1)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await log.durable()
    store.failure = None
    await writer.flush()
    assert [str(error) for error in lost] == ["the disk is full"]
    assert (await store.head("e1")).seq == 1
    await writer.close()


async def test_an_event_that_cannot_follow_is_refused_and_the_log_lives_on() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    with pytest.raises(StoreCorrupted, match="task:completed cannot follow status queued"):
        log.append(ev.TaskCompleted(at=2))
    log.append(ev.TaskStarted(at=2, because="created"))
    await log.durable()
    assert await reopened(store) == log.state
    await writer.close()


async def test_if_one_of_several_events_is_refused_none_is_written_and_the_log_is_dead() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    lost: list[HoldfastError] = []
    log.on_lost = lost.append
    log.append(received())
    with pytest.raises(StoreCorrupted, match="task:completed cannot follow status waiting"):
        log.append(ev.TaskStarted(at=2, because="created"), ev.TaskWaiting(at=3, reasons=()), ev.TaskCompleted(at=4))
    with pytest.raises(StoreCorrupted, match="cannot follow"):
        log.append(received())
    await writer.flush()
    state = await reopened(store)
    assert (state.seq, state.status) == (2, "queued")
    assert len(lost) == 1
    await writer.close()


async def test_an_event_that_cannot_be_encoded_after_one_that_could_kills_the_log_in_words() -> None:
    store = MemoryStore()
    writer = Writer(store)
    log = await new_log(store, writer)
    with pytest.raises(UnicodeEncodeError):
        log.append(received(), ev.TaskPaused(at=3, why="\ud800"))
    with pytest.raises(StoreCorrupted, match=r"cannot append: .*surrogates not allowed"):
        await log.durable()
    await writer.close()
