"""Why an execution is held is stored as a code; a person's words stay words, and old texts are understood."""

from __future__ import annotations

import pytest

from holdfast.core import held
from holdfast.core.held import EXPORTED, IMPORTED, PERSON, by_person, is_imported, restored, why_held


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("", ""),
        (IMPORTED, "it was imported, and the original may still run elsewhere"),
        (EXPORTED, "it was exported, and goes on elsewhere"),
        (restored("2026-01-01T00:00:00Z"), "restored from a backup made 2026-01-01T00:00:00Z"),
        (by_person(""), "held by a person"),
        (by_person("until Monday: ask Ann"), "until Monday: ask Ann"),
        (by_person("holdfast:imported"), "holdfast:imported"),
        ("holdfast:from_the_future", "holdfast:from_the_future"),
        ("restored from a backup made 2025-12-31T00:00:00Z", "restored from a backup made 2025-12-31T00:00:00Z"),
    ],
)
def test_stored_reason_is_told_as_a_sentence(stored: str, told: str) -> None:
    assert why_held(stored) == told


def test_words_of_a_person_are_never_taken_for_a_code() -> None:
    assert is_imported(IMPORTED)
    assert not is_imported(by_person("holdfast:imported"))
    assert by_person("imported") == "imported"


def test_text_stored_by_older_versions_still_means_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    old = "it was imported, and the original may still run elsewhere"
    monkeypatch.setitem(held._SENTENCES, IMPORTED, "reworded")  # pyright: ignore[reportPrivateUsage]
    assert is_imported(old)
    assert why_held(old) == old
    assert why_held(IMPORTED) == "reworded"
    assert not is_imported(PERSON)
