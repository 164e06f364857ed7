"""Simulated histories: hundreds without a violation, each the same to the byte when it is played again."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from holdfast.testing.simulator import draw, judge, play, shrink
from holdfast.testing.simulator.__main__ import main
from holdfast.testing.simulator.history import (
    Called,
    ClockSet,
    Committed,
    Fault,
    HandedIn,
    LeftAlone,
    Ordered,
    Returned,
    Saw,
    Watched,
)
from holdfast.testing.simulator.scenario import FAULTS, VERBS, Scenario
from holdfast.testing.simulator.verdict import CHECKS
from simulator.sabotage import SABOTEURS
from simulator.saboteur import Saboteur, caught

SEEDS_AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, 300, SEEDS_AT_ONCE))
def test_no_history_violates_a_rule(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        violations = judge(play(draw(seed)))
        assert violations == [], f"replay: python -m holdfast.testing.simulator --seed {seed}"


def test_same_seed_gives_the_same_history_to_the_byte() -> None:
    seeds = [3, 17, 41]
    here = [play(draw(seed)).history.digest() for seed in seeds]
    program = (
        "from holdfast.testing.simulator import draw, play\n"
        f"for seed in {seeds}: print(play(draw(seed)).history.digest())"
    )
    for hash_seed in ("1", "2"):  # sets of texts are walked in another order: nothing may depend on it
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.split() == here


def test_different_seeds_give_different_histories() -> None:
    assert play(draw(3)).history.text() != play(draw(4)).history.text()


def test_scenarios_reach_everything_there_is_to_break_and_to_command() -> None:
    """What never happens in a history proves nothing about it."""
    scenarios = [draw(seed) for seed in range(300)]
    assert {breakage.kind for scenario in scenarios for breakage in scenario.breakages} == set(FAULTS)
    assert {order.verb for scenario in scenarios for order in scenario.orders} == set(VERBS)
    assert {scenario.hosts for scenario in scenarios} == {1, 2, 3}
    lines = [line for seed in range(12) for line in play(draw(seed)).history.lines]
    seen = {type(line) for line in lines}
    assert seen >= {Called, ClockSet, Committed, Fault, HandedIn, LeftAlone, Ordered, Returned, Saw, Watched}
    assert {line.phase for line in lines if isinstance(line, Called)} == {
        "called", "happened", "answered", "raised", "cut", "verified"
    }  # fmt: skip


# ---- checks that can fail --------------------------------------------------------------------------------------


@pytest.mark.parametrize("saboteur", SABOTEURS, ids=lambda saboteur: saboteur.what)
def test_an_engine_broken_on_purpose_is_caught(saboteur: Saboteur) -> None:
    found = caught(saboteur)
    assert found is not None, f"nobody noticed within {saboteur.within} seeds: {saboteur.what}"


def test_every_check_can_fail() -> None:
    unbroken = {"nothing_begins_after_the_end"}  # a closed journal refuses the start that would have to come first
    assert set(CHECKS) - unbroken == {name for saboteur in SABOTEURS for name in saboteur.noticed_by}


def sabotage(what: str) -> Saboteur:
    return next(saboteur for saboteur in SABOTEURS if saboteur.what == what)


def test_a_failing_scenario_is_cut_down_to_what_it_takes() -> None:
    saboteur = sabotage("skip the sync before a once call")

    def fails(scenario: Scenario) -> bool:
        with saboteur.breaks():
            return any(violation.check in saboteur.noticed_by for violation in judge(play(scenario)))

    scenario = draw(0)
    smallest = shrink(scenario, fails)
    assert fails(smallest)
    assert smallest.size() < scenario.size() / 2
    assert len(smallest.tasks) == 1
    assert (smallest.orders, smallest.breakages) == ((), ())
    assert msgspec.json.decode(msgspec.json.encode(smallest), type=Scenario) == smallest


def test_a_failing_seed_prints_the_one_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    with sabotage("skip the sync before a once call").breaks():
        assert main(["--seeds", "0:2"]) == 1
    printed = capsys.readouterr().out
    assert "seed 0 violates intents_are_durable_before_effects" in printed
    assert "replay: python -m holdfast.testing.simulator --seed 0" in printed
    assert printed.splitlines()[-1].startswith("2 histories, ")


def test_one_seed_is_told_and_when_it_fails_shrunk(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2"]) == 0
    told = capsys.readouterr().out
    assert "1 task:created" in told
    assert told.splitlines()[-1].startswith("seed 2: ")
    with sabotage("skip the sync before a once call").breaks():
        assert main(["--seed", "0", "--quiet"]) == 1
    failed = capsys.readouterr().out
    assert "  intents_are_durable_before_effects: " in failed
    assert "the smallest scenario that still fails:" in failed


def test_seeds_that_are_no_span_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", "many"])
    assert 'expected two numbers such as 0:1000, got "many"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--seeds", "5:5"], "5:5 holds no seed"),
        (["--seeds", "9:2"], "the second number must be larger than the first"),
        (["--seeds", "0:2", "--jobs", "0"], 'expected a number of processes from 1 on, got "0"'),
    ],
)
def test_a_run_that_would_play_nothing_is_refused(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert text in capsys.readouterr().err
