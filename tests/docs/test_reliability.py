"""The page on reliability names tests and checks as evidence: they must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from proof.simulator.verdict import CHECKS

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"
NAMED = sorted(set(re.findall(r"`((?:\w+/)+(?:test_)?\w*\.?(?:py)?)`", PAGE.read_text())))


@pytest.mark.parametrize(
    "name", [name for name in NAMED if name.endswith(".py") and not name.startswith("core/failure")]
)
def test_every_test_that_the_page_names_is_there(name: str) -> None:
    assert (TESTS / name.removeprefix("tests/")).is_file()


def test_every_check_that_the_page_names_is_there() -> None:
    section = PAGE.read_text().partition("## The exact rules")[2].partition("\n## ")[0]
    named = {name for name in re.findall(r"`([a-z_]+)`", section) if name.count("_") > 1}
    assert named
    assert named <= set(CHECKS)


def test_the_table_of_the_proof_is_of_a_whole_run_without_violations() -> None:
    table = PAGE.read_text().partition("<!-- generated: proof -->")[2].partition("<!-- end: proof -->")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    assert {row[-1].strip(" |") for row in rows} == {"0"}
