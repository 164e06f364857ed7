"""`holdfast worker`: takes up what nobody drives, says so line by line, and drains when it is told to end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import holdfast
from cli.workshop import Workshop, wait_until
from holdfast.engine.at_rest import is_all_waiting, is_idle


def orphan(shop: Workshop, plan: str, until: str) -> str:
    """An execution whose process was killed when the log said `until`."""
    process = shop.start("run", plan)
    shop.wait_for_log(until)
    shop.kill(process)
    return shop.newest()["id"]


def test_an_orphan_is_taken_up_and_its_end_is_told(shop: Workshop) -> None:
    identity = orphan(shop, "gate.yaml", "gate begun")
    shop.open_gate()
    began, taken, let_go, ended = shop.run("worker", "--once", "--json").lines
    assert str(shop.store) in began["text"]
    assert (taken["event"], taken["id"], taken["status"]) == ("taken", identity, "running")
    assert (let_go["event"], let_go["id"], let_go["status"]) == ("let_go", identity, "completed")
    assert ended["event"] == "ended"
    assert shop.log().count("before ran") == 1


def test_the_same_in_words(shop: Workshop) -> None:
    identity = orphan(shop, "gate.yaml", "gate begun")
    shop.open_gate()
    began, taken, let_go, ended = shop.run("worker", "--until-idle").out.splitlines()
    assert f"drives what can be driven in {shop.store}" in began
    assert taken.endswith(f"took up gate ({identity})")
    assert let_go.endswith(f"completed: gate ({identity})")
    assert ended.endswith("everything is let go of")


async def test_a_worker_is_not_done_while_it_takes_something_up(tmp_path: Path) -> None:
    async with holdfast.Engine(tmp_path / "journal.db") as engine:
        assert await is_idle(engine)
        with engine.services.in_hand("taken"):
            assert not await is_idle(engine)
            assert not await is_all_waiting(engine)


def test_until_idle_leaves_nothing_behind(shop: Workshop) -> None:
    """Parents, children and timers that nobody drives, in one store."""
    shop.write("inner.yaml", "name: inner\nsteps:\n  - {id: nap, wait: 20ms}\n  - {id: do, tool: work.do}\n")
    steps = "".join(f"  - {{id: c{number}, start: inner.yaml, needs: []}}\n" for number in range(3))
    shop.write("outer.yaml", f"name: outer\nsteps:\n{steps}")
    for _ in range(3):
        shop.run("run", "outer.yaml", "--hold")
    shop.run("resume", "--status", "queued", "--all")
    shop.run("worker", "--until-idle")
    left = shop.run("list", "--json").json
    assert {(one["status"], one["driven"]) for one in left} == {("completed", False)}
    assert len(left) == 12


def nap(shop: Workshop, length: str) -> None:
    """An execution that waits for a timer, and whose process was killed."""
    shop.write("nap.yaml", f"name: nap\nsteps:\n  - {{id: nap, wait: {length}}}\n  - {{id: after, tool: work.do}}\n")
    process = shop.start("run", "nap.yaml", "--json")
    shop.wait_for_status("waiting")
    shop.kill(process)


def test_once_does_not_wait_for_a_timer(shop: Workshop) -> None:
    nap(shop, "1h")
    shop.run("worker", "--once")
    assert shop.newest()["status"] == "waiting"


def test_until_idle_waits_for_a_timer(shop: Workshop) -> None:
    nap(shop, "2s")
    shop.run("worker", "--until-idle")
    assert shop.newest()["status"] == "completed"


def test_an_answer_is_followed_by_a_running_worker(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    process = shop.start("worker", "--json")
    assert shop.told(process)["event"] == "began"
    identity = shop.newest()["id"]
    shop.run("approve", identity)
    assert (shop.told(process)["event"], shop.told(process)["status"]) == ("taken", "completed")
    process.send_signal(signal.SIGTERM)
    shop.finish(process, 0)


def test_sigterm_lets_running_steps_finish_and_leaves_the_rest(shop: Workshop) -> None:
    identity = orphan(shop, "gate.yaml", "gate begun")
    process = shop.start("worker", "--json")
    assert [shop.told(process)["event"] for _ in range(2)] == ["began", "taken"]
    wait_until(lambda: shop.log().count("gate begun") == 2, "the gate's second attempt")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "draining for up to 10 s" in json.loads(process.stderr.readline())["note"]
    shop.open_gate()
    rest = shop.finish(process, 0)
    let_go, ended = rest.lines
    assert (let_go["event"], let_go["id"], let_go["status"], ended["event"]) == ("let_go", identity, "running", "ended")
    assert shop.log()[-1] == "gate ended"
    shop.run("worker", "--until-idle")
    assert shop.newest()["status"] == "completed"
    assert shop.log()[-1] == "after ran"
    assert shop.log().count("gate begun") == 2


def test_ctrl_c_drains_and_interrupts_nothing(shop: Workshop) -> None:
    orphan(shop, "gate.yaml", "gate begun")
    process = shop.start("worker", "--json", HOLDFAST_LIMITS_DRAIN_S="0")
    assert [shop.told(process)["event"] for _ in range(2)] == ["began", "taken"]
    process.send_signal(signal.SIGINT)
    shop.finish(process, 130)
    assert (shop.newest()["status"], shop.newest()["driven"]) == ("running", False)


def test_a_second_signal_leaves_at_once(shop: Workshop) -> None:
    orphan(shop, "stubborn.yaml", "slow begun")
    process = shop.start("worker", "--json")
    assert [shop.told(process)["event"] for _ in range(2)] == ["began", "taken"]
    wait_until(lambda: shop.log().count("slow begun") == 2, "the second attempt")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "draining" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    shop.finish(process, 143)
    assert shop.newest()["driven"] is False


def test_what_cannot_be_driven_here_is_named_and_left(shop: Workshop) -> None:
    identity = orphan(shop, "gate.yaml", "gate begun")
    shop.write("holdfast.toml", "")
    _, left, _ = shop.run("worker", "--until-idle", "--json").lines
    assert (left["event"], left["id"], left["problem"][:4]) == ("left", identity, "this")
    assert "its tool work.gate is not here" in left["problem"]
    assert "is left as it is: " in shop.run("worker", "--once").out
    assert shop.newest()["status"] == "running"


def test_two_ways_to_end_are_one_too_many(shop: Workshop) -> None:
    refused = shop.run("worker", "--once", "--until-idle", code=2).err
    assert refused == "holdfast: --once and --until-idle are two ways to end; give one of them\n"


def test_a_closed_terminal_drains_the_worker(shop: Workshop) -> None:
    process = shop.start("worker", "--json")
    assert shop.told(process)["event"] == "began"
    process.send_signal(signal.SIGHUP)
    shop.finish(process, 0)


def test_a_worker_tells_what_retention_deletes(shop: Workshop) -> None:
    identity = shop.run("run", "two.yaml", "--json").lines[-1]["id"]
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n[retention]\nolder_than = "0s"\n')
    process = shop.start("worker", "--json")
    told = [shop.told(process), shop.told(process)]
    assert [one["event"] for one in told] == ["began", "deleted"]
    assert told[1]["ids"] == [identity]
    shop.kill(process)
    assert shop.run("list", "--json").json == []
