"""What the command line shows of a failure: where it is, what a tool returned, why a check failed."""

from __future__ import annotations

import pytest

from cli.workshop import Workshop

BROKEN = """
import holdfast


@holdfast.tool(name="acts", effect="once")
def acts() -> str:
    return 17


@holdfast.function
async def split(ctx, among: int = 0) -> float:
    await ctx.call(acts)
    return 7 / among
"""


@pytest.fixture
def broken(shop: Workshop) -> Workshop:
    shop.write("broken.py", BROKEN)
    shop.write("holdfast.toml", 'modules = ["broken.py"]\n')
    return shop


def test_failure_of_a_function_names_its_line_and_logs_show_its_trace(broken: Workshop) -> None:
    done = broken.run("run", "split", code=1)
    where = f"where: {broken.folder / 'broken.py'}:13; the whole trace: holdfast logs "
    assert where in done.out + done.err
    assert where in broken.run("show", "@last").out
    for follow in ([], ["--follow"]):
        logs = broken.run("logs", "@last", *follow).out
        assert "  error    Traceback (most recent call last):" in logs
        assert "    return 7 / among" in logs
        assert "ZeroDivisionError: division by zero" in logs
        assert "holdfast/engine" not in logs


def test_value_that_misfits_is_shown_with_a_warning(broken: Workshop) -> None:
    done = broken.run("run", "split", "-i", "among=2")
    warning = "warning: acts returned something else than it declares: Expected `str`, got `int`"
    assert warning in done.out + done.err
    assert warning in broken.run("show", "@last").out
    assert warning in broken.run("events", "@last").out


DOUBTFUL = """
from pathlib import Path

import holdfast


@holdfast.tool(name="pay", effect="once", in_doubt="verify")
def pay() -> str:
    raise TimeoutError("no answer")


@pay.verify
def paid(call, arguments):
    return holdfast.Happened(Path("receipt").read_text())
"""


def test_check_that_failed_is_told_and_asked_again_by_hand(shop: Workshop) -> None:
    shop.write("pay.py", DOUBTFUL)
    shop.write("holdfast.toml", 'modules = ["pay.py"]\n')
    shop.write("buy.yaml", "name: buy\nsteps:\n  - {id: pay, tool: pay}\noutput: ${{ steps.pay.output }}\n")
    shop.run("run", "buy.yaml", code=3)
    shown = shop.run("show", "@last").out
    assert "its check failed: FileNotFoundError: [Errno 2] No such file or directory: 'receipt' (at " in shown
    assert "pay.py:14)" in shown
    assert "pay --verify" in shown
    assert 'Path("receipt").read_text()' in shop.run("logs", "@last", "pay").out
    shop.write("receipt", "number 17")
    shop.run("resolve", "@last", "pay", "--verify")
    assert "number 17" in shop.run("resume", "@last", code=None).out + shop.run("show", "@last").out
