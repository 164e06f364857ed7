"""The runner of the proof: it publishes a table only if everything was tried and nothing was wrong."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from proof.crash_sweep import sweep
from proof.parts import Row, Size
from proof.simulator import many

from disk import power
from load import completion, crowd, soak
from proof import parts, run

GOOD_CROWD = crowd.Report(count=10, executions=10, held=5, parked=8, ended={"completed": 10})
VITALS = soak.Vitals(20, 4, 50, 50_000_000)
GOOD_SOAK = soak.Report(
    seconds=1, kills=5, executions=10, watched=3, ended={"completed": 10}, first=VITALS, last=VITALS, doctor=0
)  # fmt: skip


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return Path(shutil.copy(run.PAGE, tmp_path / "reliability.md"))


def found(*violations: str) -> Any:
    def part(size: Size) -> Iterator[Row]:
        yield Row(f"tried {size.seeds}", "much", list(violations))

    return part


def test_a_table_has_a_row_for_everything_that_was_tried() -> None:
    assert run.table([Row("flips", "9 places", []), Row("kills", "7 points", ["a", "b"])]) == (
        "| what was tried | how much | violations |\n|---|---|---|\n| flips | 9 places | 0 |\n| kills | 7 points | 2 |"
    )


def test_a_whole_run_without_violations_writes_the_table_into_the_page(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PARTS", {"one": found(), "two": found()})
    before = page.read_text()
    assert run.main([], page) == 0
    after = page.read_text()
    assert after.count("| tried 3000 | much | 0 |") == 2
    assert run.MARK.sub("", before) == run.MARK.sub("", after), "the rest of the page is left as it is"
    assert run.main([], page) == 0
    assert page.read_text() == after


@pytest.mark.parametrize("arguments", [["--quick"], ["--only", "one"]])
def test_a_part_of_the_proof_writes_nothing(page: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.setattr(run, "PARTS", {"one": found()})
    before = page.read_text()
    assert run.main(arguments, page) == 0
    assert page.read_text() == before


def test_a_violation_is_shown_fails_the_run_and_nothing_is_written(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "PARTS", {"one": found(), "two": found("event 7 is missing")})
    before = page.read_text()
    assert run.main([], page) == 1
    assert page.read_text() == before
    assert "event 7 is missing" in capsys.readouterr().out


def test_a_part_that_breaks_off_fails_the_run_and_nothing_is_written(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(size: Size) -> Iterator[Row]:
        yield Row("begun", "a little", [])
        raise RuntimeError("no server")

    monkeypatch.setattr(run, "PARTS", {"one": broken, "two": found()})
    before = page.read_text()
    assert run.main([], page) == 1
    assert page.read_text() == before


# ---- parts say what they found ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("many", "rate", "soaked", "wrong"),
    [
        ({}, 1.0, {}, [0, 0, 0]),
        ({"parked_bytes": 10**9}, 1.0, {}, [1, 0, 0]),
        ({"ended": {"completed": 9, "failed": 1}}, 1.0, {}, [1, 0, 0]),
        ({}, 0.98, {}, [0, 1, 0]),
        ({}, 1.0, {"doctor": 1}, [0, 0, 1]),
        ({}, 1.0, {"ended": {"completed": 9}}, [0, 0, 1]),
        ({}, 1.0, {"last": VITALS._replace(files=999)}, [0, 0, 1]),
    ],
)
def test_load_is_held_to_its_bounds_at_the_size_of_the_proof(
    monkeypatch: pytest.MonkeyPatch, many: dict[str, Any], rate: float, soaked: dict[str, Any], wrong: list[int]
) -> None:
    async def completed(folder: Path, plans: int) -> Any:
        return SimpleNamespace(rate=rate, completed=int(plans * rate), plans=plans, paid_twice=0)

    async def soaking(folder: Path, seconds: float) -> soak.Report:
        return msgspec.structs.replace(GOOD_SOAK, **soaked)

    monkeypatch.setattr(crowd, "in_own_process", lambda count, seed: msgspec.structs.replace(GOOD_CROWD, **many))
    monkeypatch.setattr(completion, "completion", completed)
    monkeypatch.setattr(soak, "soak", soaking)
    assert [len(row.violations) for row in parts.load(Size(crowd=10))] == wrong


# ---- a part that tried nothing ---------------------------------------------------------------------------------


def test_a_sweep_of_no_points_is_not_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "sweep", lambda **_: sweep.Result())
    assert [len(row.violations) for row in parts.sweep(Size())] == [1, 1, 1, 1]
    monkeypatch.setattr(sweep, "sweep", lambda **_: sweep.Result(points=5000))
    assert [len(row.violations) for row in parts.sweep(Size())] == [0, 0, 0, 0]


def test_a_disk_on_which_nothing_was_broken_is_not_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool:
        def __enter__(self) -> Any:
            return SimpleNamespace(map=lambda *_: [SimpleNamespace(outcomes=Counter(), violations=[])])

        def __exit__(self, *_: object) -> None: ...

    async def cuts(workloads: range, *, every: int) -> Any:
        return SimpleNamespace(moments=0, violations=[])

    monkeypatch.setattr(parts, "_processes", Pool)
    monkeypatch.setattr(power, "sweep", cuts)
    monkeypatch.setattr(parts, "_tests", lambda what, *_: Row(what, "12 tests", []))
    assert [len(row.violations) for row in parts.disk(Size())] == [1, 1, 0]


def test_histories_in_which_no_time_passed_and_loads_of_nobody_are_not_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    async def completed(folder: Path, plans: int) -> Any:
        return SimpleNamespace(rate=1.0, completed=0, plans=0, paid_twice=0)

    async def soaking(folder: Path, seconds: float) -> soak.Report:
        return msgspec.structs.replace(GOOD_SOAK, kills=0)

    monkeypatch.setattr(many, "judged", lambda seeds, jobs: iter(()))
    assert len(next(parts.simulator(Size(seeds=10))).violations) == 1
    monkeypatch.setattr(crowd, "in_own_process", lambda count, seed: GOOD_CROWD)
    monkeypatch.setattr(completion, "completion", completed)
    monkeypatch.setattr(soak, "soak", soaking)
    assert all(row.violations for row in parts.load(Size()))


@pytest.mark.parametrize(
    ("said", "code", "tried", "wrong"),
    [
        ("12 passed in 3 s", 0, "12 tests", 0),
        ("12 passed, 2 skipped in 3 s", 0, "12 tests, and 2 skipped on this machine", 1),
        ("1 failed, 11 passed in 3 s", 1, "11 tests", 1),
        ("2 skipped in 3 s", 0, "0 tests, and 2 skipped on this machine", 2),
        ("", 4, "0 tests", 1),
    ],
)
def test_runs_of_pytest_are_counted_and_what_was_skipped_or_is_not_there_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, said: str, code: int, tried: str, wrong: int
) -> None:
    done = SimpleNamespace(stdout=said, stderr="", returncode=code)
    monkeypatch.setattr(parts.subprocess, "run", lambda *_, **__: done)
    [row] = parts.properties(Size())
    assert (row.tried, len(row.violations)) == (tried, wrong)


@pytest.mark.parametrize(
    ("said", "code", "tried", "wrong"),
    [
        ("TOTAL  37217  744  10348  315  97.1%\n5600 passed in 3 s", 0, "97.1%, by 5,600 tests", 0),
        ("TOTAL  37217  744  10348  315  94.9%\n5600 passed in 3 s", 1, "94.9%, by 5,600 tests", 1),
        ("TOTAL  37217  744  10348  315  97.1%\n12 passed in 3 s", 0, "97.1%, by 12 tests", 1),
        ("5600 passed in 3 s", 0, "unknown, by 5,600 tests", 1),
    ],
)
def test_coverage_below_its_bound_or_by_few_tests_fails_its_row(
    monkeypatch: pytest.MonkeyPatch, said: str, code: int, tried: str, wrong: int
) -> None:
    done = SimpleNamespace(stdout=said, stderr="", returncode=code)
    monkeypatch.setattr(parts.subprocess, "run", lambda *_, **__: done)
    [row] = parts.coverage(Size())
    assert (row.tried, len(row.violations)) == (tried, wrong)


def test_an_engine_that_repeats_a_once_step_fails_its_part_of_the_proof(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From end to end: an engine that is broken on purpose, and real processes that are killed."""
    kill = sweep.sweep
    broken = {"moments": ["after-effect"], "every": 3, "sabotage": "again"}
    monkeypatch.setattr(sweep, "sweep", lambda **_: kill(["function"], **broken))
    before = page.read_text()
    assert run.main(["--quick", "--only", "sweep"], page) == 1
    assert page.read_text() == before
    assert "is `once` and happened 2 times, not 1" in capsys.readouterr().out


def test_a_seed_that_fails_is_told_at_once_and_the_row_has_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judged(seeds: range, jobs: int) -> Iterator[many.Judged]:
        yield many.Judged(8, ["a_check: late"], 3600.0)
        yield many.Judged(2, ["every_history_comes_to_an_end: seed 2 did not end within 120 s", "more"], 0.0)
        yield from (many.Judged(seed, [], 3600.0) for seed in seeds if seed not in (2, 8))

    monkeypatch.setattr(many, "judged", judged)
    simulated = next(parts.simulator(Size(seeds=10)))
    assert simulated.tried == "10 histories, 9 hours of virtual time"
    assert simulated.violations == [
        "every_history_comes_to_an_end: seed 2 did not end within 120 s\n"
        "    replay: python -m proof.simulator --seed 2",
        "a_check: late\n    replay: python -m proof.simulator --seed 8",
    ]
    assert capsys.readouterr().out.startswith("  … a_check: late\n    replay: ")


def test_the_sentence_says_how_many_were_left_out() -> None:
    assert [parts._each(number) for number in (1, 7)] == ["every", "every 7th"]
