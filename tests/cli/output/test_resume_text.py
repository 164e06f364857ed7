"""What `holdfast resume` says first: how much is in the journal already."""

from __future__ import annotations

import pytest

from holdfast.cli.commands.run import _recorded
from holdfast.journal.store import Head


@pytest.mark.parametrize(
    ("ended", "total", "words"),
    [
        (1, 3, "1 of 3 steps are"),
        (0, 0, "0 steps are"),
        (1, 0, "1 step is"),
        (2, 0, "2 steps are"),
        (1, 1, "1 step is"),
    ],
)
def test_one_step_is_and_two_steps_are(ended: int, total: int, words: str) -> None:
    assert _recorded(Head(id="x", name="x", kind="plan", created_at=0, ended=ended, total=total), ended) == words
