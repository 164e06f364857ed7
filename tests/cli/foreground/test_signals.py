"""Ctrl-C, SIGTERM and SIGKILL: what each of them leaves behind, and that nothing finished runs again."""

from __future__ import annotations

import signal

import pytest

from cli.workshop import Workshop


def test_ctrl_c_interrupts_and_says_how_to_resume(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    process.send_signal(signal.SIGINT)
    result = shop.finish(process, 130)
    head = shop.newest()
    assert head["status"] == "interrupted"
    assert "interrupting; Ctrl-C again leaves at once and loses nothing" in result.out
    assert f"go on with: holdfast resume {head['id']}" in result.out
    assert "Ctrl-C" in shop.run("show", "@last").out
    shop.open_gate()
    resumed = shop.run("resume", "@last")
    assert f"going on with gate ({head['id']}), 1 of 3 steps are in the journal" in resumed.out
    assert shop.log() == ["before ran", "gate begun", "gate begun", "gate ended", "after ran"]


def test_a_second_ctrl_c_leaves_at_once_and_loses_nothing(shop: Workshop) -> None:
    process = shop.start("run", "stubborn.yaml")
    shop.wait_for_log("slow begun")
    process.send_signal(signal.SIGINT)
    shop.wait_for_words(process, "interrupting")
    process.send_signal(signal.SIGINT)
    shop.finish(process, 130)
    head = shop.newest()
    assert head["status"] in ("running", "interrupted")
    shop.run("stop", head["id"])
    assert shop.newest()["status"] == "stopped"


def test_sigterm_lets_go_and_leaves_the_execution_to_be_recovered(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml", HOLDFAST_LIMITS_DRAIN_S="0")
    shop.wait_for_log("gate begun")
    process.send_signal(signal.SIGTERM)
    result = shop.finish(process, 143)
    head = shop.newest()
    assert (head["status"], head["driven"]) == ("running", False)
    assert f"letting go; it goes on with: holdfast resume {head['id']}" in result.out
    shop.open_gate()
    *_, last = shop.run("resume", head["id"], "--json").lines
    assert last["status"] == "completed"
    assert shop.log().count("before ran") == 1


def test_the_last_word_after_sigterm_counts_what_still_finished(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    process.send_signal(signal.SIGTERM)
    shop.wait_for_words(process, "letting go")
    shop.open_gate()
    rest = shop.finish(process, 143).out
    assert "gate: completed" in rest
    assert "running, 2 of 3 steps: gate" in rest
    assert rest.index("gate: completed") < rest.index("running, 2 of 3 steps: gate")
    assert shop.run("resume", "@last").out.splitlines()[-3].startswith("completed")


def test_a_killed_process_leaves_an_orphan_that_resume_takes_up(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    shop.kill(process)
    assert shop.newest()["status"] == "running"
    shop.open_gate()
    *_, last = shop.run("resume", "@last", "--json").lines
    assert last["status"] == "completed"
    assert shop.log() == ["before ran", "gate begun", "gate begun", "gate ended", "after ran"]
    assert "taken over   once, after its process died" in shop.run("show", "@last").out


def test_a_once_step_cut_off_is_in_doubt_until_a_person_resolves_it(shop: Workshop) -> None:
    process = shop.start("run", "once.yaml")
    shop.wait_for_log("pay begun")
    shop.kill(process)
    doubtful = shop.run("resume", "@last", code=3)
    identity = shop.newest()["id"]
    assert f"holdfast resolve {identity} pay --done" in doubtful.out
    assert f"holdfast resolve {identity} pay --again" in doubtful.out
    page = shop.run("show", "@last").out
    assert "? pay  in_doubt" in page
    assert "asked of you" in page
    settled = shop.run("resolve", "@last", "pay", "--done", "--output", '"paid"')
    assert "resolved pay: done" in settled.out
    assert f"nobody is driving it now; go on with: holdfast resume {identity}" in settled.out
    *_, last = shop.run("resume", "@last", "--json").lines
    assert (last["status"], last["output"]) == ("completed", "paid")
    assert shop.log() == ["pay begun"]


@pytest.mark.parametrize(("waits", "told"), [("1h", 1), ("20ms", 0)])
def test_who_stays_for_long_is_told_once_how_to_leave(shop: Workshop, waits: str, told: int) -> None:
    shop.write("later.yaml", f"name: later\nsteps: [{{id: a, wait: {waits}}}, {{id: b, wait: 20ms}}]\n")
    process = shop.start("run", "later.yaml")
    if told:
        shop.wait_for_status("waiting")
        process.send_signal(signal.SIGINT)
    out = shop.finish(process, 130 if told else 0).out
    identity = shop.newest()["id"]
    hint = (
        "this command stays until then; Ctrl-C loses nothing, and it goes on in the background with: "
        f"holdfast resume {identity} --detach\n"
    )
    assert out.count(hint) == told
