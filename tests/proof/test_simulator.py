"""Simulated histories: a hundred without a violation, each the same to the byte when it is played again."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest
from proof.sabotage.commands import slow_to_rest
from proof.sabotage.engine import SABOTEURS
from proof.sabotage.saboteur import RECORDED_WITHIN, Saboteur, caught_again, recorded_seeds
from proof.simulator import draw, judge, play, shrink, witness
from proof.simulator.__main__ import main
from proof.simulator.census import census
from proof.simulator.scenario import Breakage, Order, Scenario, Task, draw_plain
from proof.simulator.verdict import CHECKS

SEEDS, SEEDS_AT_ONCE = 100, 10  # the whole proof plays 3,000
# Four times as fast, and a few histories already go wherever the others go.
UNMEASURED = pytest.mark.no_cover


@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS // 2, SEEDS_AT_ONCE),
        *(pytest.param(first, marks=UNMEASURED) for first in range(SEEDS // 2, SEEDS, SEEDS_AT_ONCE)),
    ],
)
def test_no_history_violates_a_rule(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        violations = judge(play(draw(seed)))
        assert violations == [], f"replay: python -m proof.simulator --seed {seed}"


def test_same_seed_gives_the_same_history_to_the_byte() -> None:
    seeds = [3, 17, 41]
    here = [play(draw(seed)).history.digest() for seed in seeds]
    program = f"from proof.simulator import draw, play\nfor seed in {seeds}: print(play(draw(seed)).history.digest())"
    for hash_seed in ("1", "2"):  # sets of texts are walked in another order: nothing may depend on it
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.split() == here


def test_different_seeds_give_different_histories() -> None:
    assert play(draw(3)).history.text() != play(draw(4)).history.text()


@UNMEASURED
def test_histories_reach_all_that_can_happen_to_them() -> None:
    """What never happens in a history proves nothing about it."""
    found = census()
    assert not found.missing, f"not reached in {found.histories} histories: {sorted(found.missing)}"


@pytest.mark.parametrize("seed", [371, 2382])
def test_who_waits_for_money_and_for_a_place_does_not_ask_for_ever(seed: int) -> None:
    """In these histories one once asked for a place, was asked to look again for having asked, and never stopped."""
    assert judge(play(draw_plain(seed))) == []


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (1401, "somebody slept, and what it drove was ended by another and deleted before it woke up"),
        (600064, "an execution was deleted while commands to it were on their way"),
        (700104, "a copy was made from a file, and its origin went on meanwhile"),
        (700365, "a copy came to a child that its living origin had started after the file was made"),
    ],
)
def test_what_is_deleted_or_copied_meanwhile_harms_nobody(seed: int, what: str) -> None:
    assert judge(play(draw_plain(seed))) == [], what


def test_what_a_person_agreed_to_is_not_made_smaller_behind_their_back() -> None:
    """Its tool ran short of something and knows how to do with less; but the yes was to another input."""
    assert judge(play(draw_plain(400858))) == []


def test_a_child_may_be_given_more_under_a_parent_that_is_over_its_limit() -> None:
    """Its first child had spent more before there was a limit; here a second one asks for money."""
    assert judge(play(draw_plain(500426))) == []


def test_what_a_fork_copied_from_a_machine_whose_clock_was_ahead_is_not_early() -> None:
    """The timer rang in time by the clock of the machine that it rang on; the fork was made on another."""
    scenario = Scenario(
        seed=0,
        hosts=2,
        trouble=0.0,
        passivate_s=30.0,
        executions=2,
        death_noticed_s=2.0,
        snapshot_events_min=1000,
        tasks=(Task(number=0, at_s=1.0, script=[["sleep", 1]]),),
        orders=(Order(number=1, at_s=3.0, verb="retry", whom=0),),
        breakages=(Breakage(at_s=0.5, kind="clock", host=0, amount=1.0),),
    )
    played = play(scenario)
    stories = witness.testify(played.history).stories.values()
    assert [story.created.forked_from is not None for story in stories] == [False, True]
    assert judge(played) == []


def test_what_is_added_when_the_last_step_has_ended_is_taken_by_whoever_still_drives() -> None:
    """At the seeds that are recorded as noticing one that forgets it."""
    forgetful = sabotage("forget what is added last")
    with slow_to_rest():
        for seed in recorded_seeds()[forgetful.what].values():
            lost = [violation for violation in judge(play(draw(seed))) if violation.check in forgetful.noticed_by]
            assert lost == [], f"seed {seed}"


# ---- checks that can fail --------------------------------------------------------------------------------------


@UNMEASURED
@pytest.mark.parametrize("saboteur", SABOTEURS, ids=lambda saboteur: saboteur.what)
def test_an_engine_broken_on_purpose_is_caught(saboteur: Saboteur) -> None:
    """Where it was caught before. `make prove` searches from the first seed on."""
    record = f'python proof/sabotage/record_seeds.py "{saboteur.what}"'
    recorded = recorded_seeds().get(saboteur.what, {})
    assert recorded.keys() == saboteur.noticed_by, f"no seeds are recorded for it; to search for them: {record}"
    missed_by = caught_again(saboteur, recorded).missed_by
    assert not missed_by, f"not noticed within {RECORDED_WITHIN} seeds of {recorded}; to search for others: {record}"


def test_no_seeds_are_recorded_for_what_is_not_broken() -> None:
    assert recorded_seeds().keys() <= {saboteur.what for saboteur in SABOTEURS}


def test_every_check_can_fail() -> None:
    """Each is named by a saboteur, and that one is not caught before every check that it names has noticed it."""
    assert set(CHECKS) == {name for saboteur in SABOTEURS for name in saboteur.noticed_by}


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
    assert "replay: python -m proof.simulator --seed 0" in printed
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
