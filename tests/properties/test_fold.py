"""A history folds to the same state however it is cut: in one go, in two, or from a snapshot taken on the way."""

from __future__ import annotations

import copy

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from core.histories import EVENT_TYPES, fold
from holdfast.core import events as ev
from holdfast.core.errors import StoreCorrupted
from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.journal.codec import CHAIN_START, make_snapshot, open_snapshot
from properties.journals import events_of, histories
from properties.strategies import examples


@examples(40)
@given(histories, st.floats(0, 1))
def test_a_prefix_and_the_rest_are_the_whole(history: list[ev.Event], where: float) -> None:
    cut = round(where * len(history))
    whole = fold(history)
    assert fold(history[cut:], fold(history[:cut])) == whole
    prefix = fold(history[:cut])
    prefix.snapshot_seq = prefix.seq
    opened = open_snapshot(make_snapshot(prefix, CHAIN_START))
    assert opened is not None
    rest = fold(history[cut:], opened)
    rest.snapshot_seq = 0  # the only thing that no event says
    assert rest == whole
    assert _written(rest) == _written(whole)  # sets have no order of their own


@examples(40)
@given(histories, st.floats(0, 1), st.floats(0, 1), st.none() | st.sampled_from(EVENT_TYPES).flatmap(events_of))
def test_an_event_out_of_place_is_refused_or_folds_and_never_stumbles(
    history: list[ev.Event], where: float, which: float, other: ev.Event | None
) -> None:
    state = fold(history[: round(where * len(history))])
    stray = other or history[round(which * (len(history) - 1))]
    before: Execution = copy.deepcopy(state)
    try:
        apply(state, stray, state.seq + 1)
    except StoreCorrupted:
        assert state.seq == before.seq
        assert state.status == before.status


def test_the_histories_are_worth_folding() -> None:
    """Histories without retries, waits and commands would prove little."""
    seen: set[type[ev.Event]] = set()

    @examples(40)
    @given(histories)
    def look(history: list[ev.Event]) -> None:
        seen.update(map(type, history))

    look()
    assert len(seen) >= 12, sorted(kind.__name__ for kind in seen)


def _written(state: Execution) -> bytes:
    return msgspec.json.encode(state, order="deterministic")
