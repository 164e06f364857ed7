"""Power cuts on real SQLite, replayed: for every moment of a recorded workload, what could be left is opened again.

What was acknowledged must be there with an unbroken chain, nothing may be there by halves, and the store must take
writes. `sweep` counts the moments and what went wrong; a store that syncs less must be caught by it.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from disk.house import in_memory
from disk.recorder import Tape, recording, write_image
from holdfast.core.errors import HoldfastError
from holdfast.journal.codec import verify
from holdfast.journal.log import read_state
from holdfast.journal.sqlite import connection as sqlite_connection
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import Query, Write
from holdfast.testing.store_contract.samples import Sample, sample_answer, sample_id

STORE = "j.db"


class Promise(NamedTuple):
    """After act number `moment` these executions had been acknowledged up to these numbers."""

    moment: int
    seqs: dict[str, int]


class Result(NamedTuple):
    moments: int
    images: int
    violations: list[str]


async def record(folder: Path, seed: int, sync: str = "FULL", commits: int = 40) -> tuple[Tape, list[Promise]]:
    """A workload of many small transactions, with checkpoints in between, and what was promised when."""
    rng = random.Random(seed)
    samples: dict[str, Sample] = {}
    promises: list[Promise] = []
    with recording() as tape, pytest.MonkeyPatch.context() as patch:
        pragmas = tuple(p for p in sqlite_connection.PRAGMAS if not p.startswith(("synchronous", "wal_auto")))
        patch.setattr(sqlite_connection, "PRAGMAS", (*pragmas, f"synchronous={sync}", "wal_autocheckpoint=12"))
        store = SqliteStore(folder / STORE)
        promises.append(Promise(0, {}))  # a file that is only half made must not be in anybody's way
        for number in range(commits):
            writes = _writes(rng, samples, number)
            assert all(written.ok for written in await store.commit(writes))
            tape.note("commit", "")
            promises.append(Promise(len(tape.acts), {identity: sample.seq for identity, sample in samples.items()}))
            if rng.random() < 0.05:  # closed and opened again: the log is checkpointed and deleted
                await store.close()
                store = SqliteStore(folder / STORE)
        await store.close()
    return tape, promises


def _writes(rng: random.Random, samples: dict[str, Sample], number: int) -> list[Write]:
    writes: list[Write] = []
    if not samples or rng.random() < 0.3:
        sample = Sample(number)
        samples[sample.id] = sample
        writes.append(sample.new)
    for sample in rng.sample(list(samples.values()), rng.randint(1, len(samples))):
        command = sample.command(f"c{number}-{sample.id}")
        blob = (f"{number}-{sample.id}", bytes([number]) * rng.choice((10, 9000)))
        writes.append(command)
        writes.append(sample.entry(rng.randint(1, 3), blobs=(blob,), answers=(sample_answer(command),)))
    return writes


async def check(folder: Path, promise: Promise, later: Sequence[Promise]) -> list[str]:
    """What is wrong with what was left. `later` are the states that may be there instead, but none in between."""
    try:
        store = SqliteStore(folder / STORE)
    except HoldfastError as error:
        return [f"cannot be opened: {error}"]
    try:
        return [*await _contents(store, promise, later), *await _takes_writes(store)]
    except HoldfastError as error:
        return [f"{type(error).__name__}: {error}"]
    finally:
        await store.close()


async def _contents(store: SqliteStore, promise: Promise, later: Sequence[Promise]) -> list[str]:
    seen: dict[str, int] = {}
    for head in await store.heads(Query(limit=1000)):
        await read_state(store, head.id)
        chain, rows = await store.events(head.id, 0, -1)
        verify(rows, 0, chain)
        seen[head.id] = len(rows)
    lost = [
        f"{i} was acknowledged up to {seq}, now {seen.get(i, 0)}"
        for i, seq in promise.seqs.items()
        if seen.get(i, 0) < seq
    ]
    if lost:
        return lost
    if seen not in [promise.seqs, *(other.seqs for other in later)]:
        return [f"half a transaction: {seen}"]
    return [f"SQLite finds {finding}" for finding in await store.check()]


async def _takes_writes(store: SqliteStore) -> list[str]:
    sample = Sample(60_000)
    written = await store.commit([sample.new, sample.entry(3)])
    _, state, _ = await read_state(store, sample_id(60_000))
    return [] if [w.ok for w in written] == [True, True] and state.seq == 4 else ["it does not take writes"]


async def sweep(
    workloads: Sequence[int], *, commits: int = 40, images: int = 1, sync: str = "FULL", every: int = 1
) -> Result:
    """For each workload (a seed), every moment or every so many, and so many images of each."""
    moments, built = 0, 0
    violations: list[str] = []
    for seed in workloads:
        with in_memory() as folder:
            tape, promises = await record(folder, seed, sync, commits)
        for moment in range(0, len(tape.acts) + 1, every):
            moments += 1
            kept = [p for p in promises if p.moment <= moment]
            for number in range(images):
                built += 1
                with in_memory() as folder:
                    write_image(folder, tape.image(moment, random.Random(f"{seed}-{moment}-{number}")))
                    # One more may be there: the transaction under way, whose writes may have arrived in full.
                    wrong = await check(folder, kept[-1], promises[len(kept) : len(kept) + 1])
                violations += [f"workload {seed}, moment {moment}, image {number}: {what}" for what in wrong]
    return Result(moments, built, violations)


if __name__ == "__main__":
    result = asyncio.run(sweep(range(int(sys.argv[1])), every=int(sys.argv[2])))
    print(f"{result.moments} moments, {result.images} images, {len(result.violations)} violations")
    print(*result.violations[:10], sep="\n")
