"""Flipped bytes: every region of the file, and proof that the sweep would notice a check that is missing."""

from __future__ import annotations

import pytest

from disk import house
from disk.flip import sweep
from holdfast.journal import log as log_module
from holdfast.journal.sqlite import rows as sqlite_rows
from holdfast.journal.sqlite import store as sqlite_module

STEP = 613  # about 65 places, in every part of the file; the whole proof flips every 7th byte


async def test_a_flipped_byte_is_refused_set_aside_or_makes_no_difference() -> None:
    result = await sweep(STEP)
    assert result.violations == []
    assert result.points > 60
    assert set(result.outcomes) == {"refused", "set aside", "no difference"}


async def test_the_header_is_safe() -> None:
    result = await sweep(only=lambda _: range(17, 100, 3))
    assert result.violations == []


@pytest.mark.parametrize(
    ("check", "near"),
    [
        ((log_module, "check_head", lambda *_: None), b"High tide"),
        ((sqlite_module, "check_content", lambda *_: None), b"dead-driver"),
        ((sqlite_rows, "_seal", lambda *_: b"\x01" * 16), b'"tide":"high"'),
    ],
    ids=["heads against events", "tables against indexes", "seals of commands"],
)
async def test_a_missing_check_is_noticed(
    monkeypatch: pytest.MonkeyPatch, check: tuple[object, str, object], near: bytes
) -> None:
    def places(body: bytes) -> list[int]:
        return [place + len(near) // 2 for place in range(len(body)) if body.startswith(near, place)]

    whole = await sweep(only=places, bits=1)
    assert whole.violations == []
    monkeypatch.setattr(*check)
    monkeypatch.setattr(house, "PATIENCE_S", 2.0)  # some of what follows never moves
    assert (await sweep(only=places, bits=1)).violations
