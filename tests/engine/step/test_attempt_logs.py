"""What tools say, print and log is kept with the attempt's outcome; what says nothing costs nothing."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import FAST, Gate, engine_at, events, names, plan, result, seen, settled, step
from holdfast.core import events as ev
from holdfast.journal.blobs import fetch_blob
from holdfast.tools.runtime.attempt_log import KEEP_FIRST_US, decode_lines
from holdfast.tools.runtime.output_capture import CapturingStream

logger = logging.getLogger("talker")


async def said(run: holdfast.Run) -> list[tuple[str, int, str, str]]:
    """Every stored line: path, attempt, stream, text."""
    store = run._engine.services.store
    return [
        (event.path, event.attempt, line.stream, line.text)
        for event in await events(run)
        if isinstance(event, ev.StepLogged)
        for line in decode_lines(await fetch_blob(store, event.log))
    ]


def talk(call: holdfast.Call) -> str:
    call.say("I say")
    print("I", "print")
    print("I complain", file=sys.stderr)
    logger.warning("I %s", "warn")
    return "done"


@holdfast.tool(name="talk.async", effect="read")
async def talk_async(call: holdfast.Call) -> str:
    return talk(call)


@holdfast.tool(name="talk.thread", effect="read")
def talk_thread(call: holdfast.Call) -> str:
    return talk(call)


EXPECTED = {("stdout", "I print"), ("stderr", "I complain"), ("warning", "talker: I warn"), ("say", "I say")}


@pytest.mark.parametrize("name", ["talk.async", "talk.thread"])
async def test_what_a_tool_says_prints_and_logs_is_kept_and_still_printed(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine_at("memory:", talk_async, talk_thread) as engine:
        run = await engine.start(plan(step("one", name)))
        await result(run)
        assert {(stream, text) for _, _, stream, text in await said(run)} == EXPECTED
        assert {(path, attempt) for path, attempt, _, _ in await said(run)} == {("one", 1)}
    out, err = capsys.readouterr()
    assert out == "I print\n"
    assert "I complain\n" in err


async def test_a_log_is_written_together_with_its_outcome(tmp_path: Path) -> None:
    async with engine_at(tmp_path, talk_async) as engine:
        run = await engine.start(plan(step("one", "talk.async")))
        await result(run)
        found = await names(run, "step:")
        assert found == ["step:started", "step:logged", "step:completed"]


async def test_every_attempt_has_its_own_log() -> None:
    tries: list[int] = []

    @holdfast.tool(name="flaky", effect="read")
    async def flaky(call: holdfast.Call) -> None:
        tries.append(call.attempt)
        print(f"try {call.attempt}")
        if call.attempt < 3:
            raise holdfast.Transient("not yet")

    async with engine_at("memory:", flaky) as engine:
        run = await engine.start(plan(step("one", "flaky", retry=FAST)))
        await result(run)
        assert await said(run) == [("one", n, "stdout", f"try {n}") for n in (1, 2, 3)]


async def test_failed_doubted_interrupted_and_corrected_attempts_keep_their_logs() -> None:
    @holdfast.tool(name="fails", effect="read")
    async def fails() -> None:
        print("before the end")
        raise holdfast.ToolError("no")

    @holdfast.tool(name="wrong", effect="read")
    async def wrong() -> None:
        print("before the question")
        raise holdfast.InvalidCall("no")

    @holdfast.tool(name="slow", effect="once")
    async def slow(call: holdfast.Call) -> None:
        print("before the cut")
        entered.set()
        await asyncio.Event().wait()

    entered = asyncio.Event()
    async with engine_at("memory:", fails, wrong, slow) as engine:
        failed = await engine.start(plan(step("one", "fails")))
        assert await settled(failed) == "failed"
        assert [line[3] for line in await said(failed)] == ["before the end"]
        corrected = await engine.start(plan(step("one", "wrong")))
        assert await settled(corrected) == "waiting"
        assert [line[3] for line in await said(corrected)] == ["before the question"]
        cut = await engine.start(plan(step("one", "slow")))
        await asyncio.wait_for(entered.wait(), 60)
        await cut.interrupt()
        assert [line[3] for line in await said(cut)] == ["before the cut"]
        assert (await cut.state()).steps["one"].status == "in_doubt"


async def test_a_code_step_of_a_function_is_heard() -> None:
    @holdfast.function
    async def program(ctx: Any) -> int:
        print("the program itself is not a step")
        return await ctx.run("count", lambda: print("counting") or 3)

    async with engine_at("memory:", functions=[program]) as engine:
        run = await engine.start(program)
        assert await result(run) == 3
        assert await said(run) == [("count", 1, "stdout", "counting")]


async def test_a_command_that_prints_is_heard(tmp_path: Path) -> None:
    async with engine_at(tmp_path) as engine:
        run = await engine.start(plan(step("one", "shell.run", **{"with": {"command": "echo a; printf b"}})))
        await result(run)
        assert await said(run) == [("one", 1, "stdout", "a"), ("one", 1, "stdout", "b")]


async def test_side_by_side_steps_are_told_apart() -> None:
    @holdfast.tool(name="name", effect="read")
    async def say_name(call: holdfast.Call, name: str) -> None:
        for _ in range(5):
            print(name)
            await asyncio.sleep(0)

    async with engine_at("memory:", say_name) as engine:
        steps = [step(name, "name", needs=[], **{"with": {"name": name}}) for name in ("a", "b", "c")]
        run = await engine.start(plan(*steps))
        await result(run)
        lines = await said(run)
        assert len(lines) == 15
        assert all(path == text for path, _, _, text in lines)


async def test_one_who_says_nothing_writes_nothing() -> None:
    gate = Gate()
    gate.open.set()
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("one", "gate")))
        await result(run)
        assert await names(run, "step:logged") == []


async def test_streams_and_logging_are_as_before_when_nothing_is_driven() -> None:
    before = (sys.stdout, sys.stderr, logging.getLogRecordFactory())
    gate = Gate()
    async with engine_at("memory:", gate.tool) as engine:
        run = await engine.start(plan(step("one", "gate")))
        await gate.wait_entered()
        assert isinstance(sys.stdout, CapturingStream)
        gate.open.set()
        await result(run)
    assert (sys.stdout, sys.stderr, logging.getLogRecordFactory()) == before


async def test_a_redirection_that_came_later_hides_nothing() -> None:
    """As a live display does, which covers stdout while the execution is already being driven."""
    gate = Gate()
    covered: list[Any] = []

    class Display:
        def __init__(self, below: Any) -> None:
            self.below = below

        def write(self, text: str) -> int:
            covered.append(text)
            return self.below.write(f"[drawn] {text}")

        def flush(self) -> None: ...

    async with engine_at("memory:", gate.tool, talk_async) as engine:
        run = await engine.start(plan(step("one", "gate"), step("two", "talk.async")))
        await gate.wait_entered()
        before = sys.stdout
        sys.stdout = Display(before)  # type: ignore[assignment]
        try:
            gate.open.set()
            await result(run)
        finally:
            sys.stdout = before
        assert "I" in covered
        assert ("two", 1, "stdout", "I print") in await said(run)
        assert not any("[drawn]" in text for _, _, _, text in await said(run))


async def test_watchers_see_lines_as_they_come() -> None:
    gate = Gate()

    @holdfast.tool(name="chat", effect="read")
    def chat() -> None:
        print("half a line, ", end="")
        print("and the rest")

    async with engine_at("memory:", gate.tool, chat) as engine:
        run = await engine.start(plan(step("one", "gate"), step("two", "chat")))
        await gate.wait_entered()
        watching = asyncio.create_task(seen(run, "task:message"))
        await asyncio.sleep(0)
        gate.open.set()
        frame: Any = (await watching).event
        assert (frame.role, frame.content, frame.path) == ("stdout", "half a line, and the rest\n", "two")


async def test_a_long_attempt_keeps_its_first_words_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.tools.runtime.attempt_log.KEEP_FIRST_US", -1)
    assert KEEP_FIRST_US > 0
    going = asyncio.Event()

    @holdfast.tool(name="long", effect="read")
    async def long() -> None:
        print("begun")
        await going.wait()

    async with engine_at("memory:", long) as engine:
        run = await engine.start(plan(step("one", "long")))
        await seen(run, "step:logged")
        assert [line[3] for line in await said(run)] == ["begun"]
        assert (await run.state()).steps["one"].status == "running"
        going.set()
        await result(run)
        assert await names(run, "step:") == ["step:started", "step:logged", "step:completed"]


async def test_odd_words_break_nothing() -> None:
    @holdfast.tool(name="odd", effect="read")
    async def odd(call: holdfast.Call) -> None:
        call.say("half a surrogate: \ud800")
        call.say("")
        logger.debug("not wanted")
        sys.stdout.writelines(["two ", "parts\n"])
        print("no end", end="")

    async with engine_at("memory:", odd) as engine:
        run = await engine.start(plan(step("one", "odd")))
        await result(run)
        assert [line[2:] for line in await said(run)] == [
            ("say", "half a surrogate: ?"),
            ("stdout", "two parts"),
            ("stdout", "no end"),
        ]


async def test_a_record_whose_arguments_do_not_fit_is_left_to_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)

    @holdfast.tool(name="odd", effect="read")
    async def odd() -> str:
        logger.warning("%d", "no number")
        return "done"

    async with engine_at("memory:", odd) as engine:
        run = await engine.start(plan(step("one", "odd")))
        await result(run)
        assert await said(run) == []
