"""A part of the crash sweep, small enough for every day; `python proof/crash_sweep/sweep.py` is the whole of it.

One program is killed at every point, the others and PostgreSQL at some; `make prove` kills all of them at every point.
The last tests break the engine on purpose: a sweep that cannot fail would prove nothing.
"""

from __future__ import annotations

import pytest
from proof.crash_sweep.programs import PROGRAMS
from proof.crash_sweep.sweep import Result, main, sweep

WHOLE, OFTEN = "function", ["stopped", "saving"]
SOME = [name for name in PROGRAMS if name not in (WHOLE, *OFTEN)]


def assert_unharmed(result: Result, at_least: int) -> None:
    assert not result.violations, "\n".join(result.violations)
    assert result.points >= at_least, f"only {result.points} points were tried"


def test_killed_at_every_point_a_program_ends_as_if_nothing_had_happened() -> None:
    assert_unharmed(sweep([WHOLE]), at_least=40)


@pytest.mark.parametrize(
    ("program", "every", "at_least"), [*((name, 3, 6) for name in OFTEN), *((name, 12, 1) for name in SOME)]
)
def test_killed_at_some_points_a_program_ends_as_if_nothing_had_happened(
    program: str, every: int, at_least: int
) -> None:
    assert_unharmed(sweep([program], every=every), at_least)


def test_whoever_recovers_may_die_as_well() -> None:
    twice = sweep(["function"], moments=["after-commit"], every=8, double=8)
    assert_unharmed(twice, at_least=4)
    assert twice.deaths > twice.points, "nobody died who was recovering"


def test_whoever_speaks_from_elsewhere_may_die_as_well() -> None:
    assert_unharmed(sweep(["commanded-elsewhere"], moments=["before-said", "after-said"], every=8), at_least=4)


def test_killed_on_postgres_a_program_ends_as_if_nothing_had_happened() -> None:
    assert_unharmed(sweep(["function"], "postgres", every=10), at_least=2)


@pytest.mark.parametrize(
    ("sabotage", "program", "moment", "finding"),
    [
        ("unsynced", "function", "before-commit", "had its effect before the journal knew that it began"),
        ("early", "function", "before-commit", "had its effect before the journal knew that it began"),
        ("again", "function", "after-effect", "is `once` and happened 2 times, not 1"),
        ("orphaned", "family", "after-effect", "stuck: {'good': 'waiting', '': 'waiting'}"),
        ("forgotten", "function", "after-effect", "stuck: "),
    ],
)
def test_sweep_finds_what_was_broken_on_purpose(sabotage: str, program: str, moment: str, finding: str) -> None:
    result = sweep([program], moments=[moment], every=3, sabotage=sabotage)
    found = "\n".join(result.violations)
    assert finding in found
    assert f"python proof/crash_sweep/sweep.py --store sqlite --program {program} --point {moment}:3" in found


def test_point_beyond_the_end_of_a_program_kills_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--program", "stopped", "--point", "after-effect:99"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "points tried: 0, violations: 0"
