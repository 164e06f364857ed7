"""`holdfast demo` keeps its promise: killed half-way, resumed, nothing repeated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.workshop import Workshop
from holdfast.cli.commands.demo import KilledState, _repeated  # pyright: ignore[reportPrivateUsage]


def test_the_demo_kills_resumes_and_repeats_nothing(shop: Workshop) -> None:
    result = shop.run("demo")
    assert "resumed: 5 steps from history, 0 repeated" in result.out
    assert "(when it was killed: 5 completed, 1 failed and lived with, 1 was cut off)" in result.out
    assert 'Killed with SIGKILL in the middle of step "chart"' in result.out
    assert "almanac: attempt 2 failed" in result.out
    assert "picture: failed (not critical, going on)" in result.out
    command = re.search(r"holdfast (-C \S+/holdfast-demo show \S+)", result.out)
    assert command is not None
    page = shop.run(*command[1].split()).out
    assert "completed" in page
    assert (shop.folder / "holdfast-demo" / "report.txt").read_text().startswith("Harbour: ")


def test_the_demo_answers_in_json_with_nothing_beside_it(shop: Workshop) -> None:
    told = shop.run("demo", "--json").json
    assert (len(told["from_history"]), told["repeated"], told["exit_code"]) == (5, [], 0)
    assert shop.run("-C", "holdfast-demo", "show", told["id"], "--json").json["status"] == "completed"


def test_the_demo_moves_to_a_temporary_folder_when_it_must(
    shop: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shop.write("holdfast-demo", "in the way")
    temporary = tmp_path_factory.mktemp("temporary")
    result = shop.run("demo", TMPDIR=str(temporary))
    assert "0 repeated" in result.out
    assert f"holdfast -C {temporary}/holdfast-demo-" in result.out


@pytest.mark.parametrize(("pid", "repeated"), [(2, {"a"}), (1, set[str]())])
def test_a_repeated_step_would_be_noticed(tmp_path: Path, pid: int, repeated: set[str]) -> None:
    (tmp_path / "what-ran.txt").write_text(f"a 1 1\nb 1 1\na 2 {pid}\nb 2 2\n")
    assert _repeated(tmp_path, KilledState("id", frozenset({"a"}), 9), 2) == repeated
