"""Many seeds at once: each gets its verdict, also one that never ends and one that takes its process with it."""

from __future__ import annotations

import pytest
from proof.sabotage.engine import SABOTEURS
from proof.simulator.__main__ import main
from proof.simulator.hard_seeds import DEADLY, STUCK, WRONG, some_are_hard
from proof.simulator.many import Judged, Progress, judge_seed, judged
from proof.simulator.play import TURNS_MAX


def test_a_seed_that_hangs_or_kills_its_process_is_a_violation_and_the_others_are_played() -> None:
    found = {verdict.seed: verdict.violations for verdict in judged(range(12), 2, limit_s=5, judge=some_are_hard)}
    assert sorted(found) == list(range(12))
    assert {seed: texts for seed, texts in found.items() if texts} == {
        STUCK: ["every_history_comes_to_an_end: seed 3 did not end within 5 s"],
        DEADLY: ["every_history_comes_to_an_end: seed 5 ended the process that played it"],
        WRONG: ["a_check: it is wrong"],
    }


def test_seeds_in_processes_of_their_own_get_the_verdict_that_they_get_here() -> None:
    assert sorted(judged(range(3), 2)) == [judge_seed(seed) for seed in range(3)]


@pytest.mark.no_cover  # three times 300,000 turns
def test_a_history_that_turns_in_circles_is_cut_short_at_the_same_place_every_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    saboteur = next(saboteur for saboteur in SABOTEURS if saboteur.what == "never stop asking")
    with saboteur.breaks():
        verdicts = [judge_seed(0), judge_seed(0)]
        assert main(["--seeds", "0:1"]) == 1
    assert verdicts[0] == verdicts[1]
    [text] = verdicts[0].violations
    assert text.startswith("every_history_comes_to_an_end: it was cut short after 300,000 turns, ")
    assert "replay: python -m proof.simulator --seed 0" in capsys.readouterr().out


def test_a_history_has_turns_enough() -> None:
    assert TURNS_MAX > 20 * 12_000, "the longest of the first 300 take less than 12,000"


def test_a_long_run_says_now_and_then_how_far_it_has_come() -> None:
    said: list[str] = []
    times = iter([0.0, 4.0, 10.0, 15.0, 25.0])
    progress = Progress(4, said.append, lambda: next(times))
    for seed in range(4):
        progress.saw(Judged(seed, ["wrong"] if seed == 1 else [], 0.0))
    assert said == [
        "2 of 4 histories, 0.2/s, 1 with violations",
        "4 of 4 histories, 0.2/s, 1 with violations",
    ]
