"""An interrupted step has `limits.interrupt_grace_s` to tidy up, also in a process of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cli.workshop import Workshop, wait_until

# Each takes 1.5 s to tidy up: longer than nothing, and far shorter than the 10 s it has.
TOOLS = """
import asyncio

import holdfast


@holdfast.tool(name="work.isolated", effect="idempotent", isolated=True)
async def isolated(call: holdfast.Call) -> None:
    (call.folder / "begun").touch()
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(1.5)
        (call.folder / "tidied").touch()
"""
COMMAND = "trap 'sleep 1.5; touch tidied; exit 0' TERM; touch begun; while :; do sleep 0.1; done"
STEPS = {
    "command": f'- {{id: slow, tool: shell.run, with: {{command: "{COMMAND}"}}}}',
    "command with a time limit": f'- {{id: slow, tool: shell.run, timeout: 1h, with: {{command: "{COMMAND}"}}}}',
    "command of an item": f'- {{id: slow, for_each: [1], tool: shell.run, with: {{command: "{COMMAND}"}}}}',
    "isolated tool": "- {id: slow, tool: work.isolated}",
}


@pytest.mark.parametrize("kind", list(STEPS))
@pytest.mark.parametrize("how", ["Ctrl-C", "interrupt", "SIGTERM"])
def test_interrupted_process_may_tidy_up(tmp_path: Path, kind: str, how: str) -> None:
    shop = Workshop(tmp_path)
    shop.write("tools.py", TOOLS)
    shop.write("plan.yaml", f"name: slow\nsteps:\n  {STEPS[kind]}\n")
    process = shop.start("run", "plan.yaml", HOLDFAST_LIMITS_DRAIN_S="0")
    try:
        wait_until((tmp_path / "begun").exists, "the step")
        if how == "interrupt":
            shop.run("interrupt", "@last")
        else:
            process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
        shop.finish(process, None)
    finally:
        shop.kill_all()
    assert (tmp_path / "tidied").exists()


def test_process_that_takes_too_long_to_tidy_up_is_killed(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    command = "trap '' TERM; touch begun; while :; do sleep 0.1; done"
    shop.write("plan.yaml", f'name: slow\nsteps:\n  - {{id: slow, tool: shell.run, with: {{command: "{command}"}}}}\n')
    process = shop.start("run", "plan.yaml", HOLDFAST_LIMITS_INTERRUPT_GRACE_S="0.2")
    wait_until((tmp_path / "begun").exists, "the step")
    process.send_signal(signal.SIGINT)
    shop.finish(process, 130)
    assert shop.newest()["status"] == "interrupted"
