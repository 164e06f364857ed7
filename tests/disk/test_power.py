"""Power cuts at every moment of a recorded workload; and stores that sync less are caught."""

from __future__ import annotations

import random

import pytest

from disk.house import in_memory
from disk.power import record, sweep
from disk.recorder import Tape


async def test_a_power_cut_loses_nothing_that_was_acknowledged_and_leaves_nothing_by_halves() -> None:
    result = await sweep([1], commits=14, every=3)
    assert result.violations == []
    assert result.moments > 100


@pytest.mark.parametrize("sync", ["NORMAL", "OFF"])
async def test_a_store_that_syncs_less_is_caught(sync: str) -> None:
    result = await sweep([1], commits=14, sync=sync, every=10)
    assert any("was acknowledged up to" in violation for violation in result.violations)


async def test_the_recorded_workload_checkpoints_and_reopens() -> None:
    with in_memory() as folder:
        tape, _ = await record(folder, 1)
    files = {(act.kind, act.file) for act in tape.acts}
    assert {("write", "j.db"), ("write", "j.db-wal"), ("sync", "j.db"), ("delete", "j.db-wal")} <= files


def test_what_was_synced_is_in_every_image_and_what_was_not_is_in_some() -> None:
    tape = Tape()
    tape.note("write", "a", 0, b"x" * 600)
    tape.note("sync", "a")
    tape.note("write", "a", 0, b"y" * 600)
    images = [tape.image(3, random.Random(seed))["a"] for seed in range(60)]
    assert {image for image in images if set(image) == {ord("x")}} == {b"x" * 600}
    assert b"y" * 600 in images
    assert b"y" * 512 + b"x" * 88 in images  # torn where a sector ends
    assert all(len(image) == 600 for image in images)
