"""Differences are journaled and compared as data; texts of older journals still count."""

from __future__ import annotations

from typing import get_args

import pytest

from holdfast.core import differences
from holdfast.core.differences import Difference, DifferenceCode, not_accepted

# As older versions journaled them. They never change.
JOURNALED = {
    "it was started by Holdfast 0.1.0, this is Holdfast 0.2.0": Difference(
        code="engine_changed", was="0.1.0", now="0.2.0"
    ),
    "it was started in /a {b}, this is /c": Difference(code="folder_changed", was="/a {b}", now="/c"),
    "its tool fetch is not here": Difference(code="tool_missing", name="fetch"),
    "its tool fetch has other parameters or another version now": Difference(code="tool_changed", name="fetch"),
    "its tool fetch had the effect read and has once now": Difference(
        code="effect_changed", name="fetch", was="read", now="once"
    ),
}


@pytest.mark.parametrize("text", JOURNALED)
def test_text_of_an_old_journal_accepts_what_it_said_and_nothing_else(text: str) -> None:
    others = [one for said, one in JOURNALED.items() if said != text]
    assert not_accepted(JOURNALED.values(), (), (text,)) == others


def test_accepted_differences_are_compared_as_data_so_sentences_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    for code in get_args(DifferenceCode):
        monkeypatch.setitem(differences._SENTENCES, code, "reworded")  # pyright: ignore[reportPrivateUsage]
    one = Difference(code="tool_missing", name="fetch")
    assert str(one) == "reworded"
    assert not_accepted([one], (Difference(code="tool_missing", name="fetch"),), ()) == []
    assert not_accepted([one], (Difference(code="tool_missing", name="other"),), ()) == [one]
    assert not_accepted([one], (), ("its tool fetch is not here",)) == []


def test_every_code_has_its_sentence() -> None:
    assert set(differences._SENTENCES) == set(get_args(DifferenceCode))  # pyright: ignore[reportPrivateUsage]
