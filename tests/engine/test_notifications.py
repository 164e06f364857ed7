"""Who is told what, when, and how often: after the fact is on disk, at most once, and never in the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from engine.kit import HURRY, Gate, broken, echo, engine_at, plan, result, seen, settled, step, until
from holdfast.engine import notifications
from holdfast.tools.notify.tool import Notify
from servers.letters import Hook, receiving


@pytest.fixture
def hook() -> Iterator[Hook]:
    with receiving() as hook:
        yield hook


def at(folder: Path, hook: Hook, said: str = "") -> Path:
    told = f'[tools.notify.channels]\nchat = "{hook.address}"\n'
    (folder / "holdfast.toml").write_text(f'[notify]\nchannels = ["chat"]\n{said}\n{told}')
    return folder


async def test_only_the_occasions_that_are_asked_for_are_told(tmp_path: Path, hook: Hook) -> None:
    async with engine_at(at(tmp_path, hook, 'on = ["failed"]'), echo, broken) as engine:
        await result(await engine.start(plan(step("a", "echo"), title="good")))
        with pytest.raises(holdfast.ExecutionFailed):
            await result(await engine.start(plan(step("a", "broken"), title="bad")))
    assert hook.titles == ["bad failed"]


async def test_a_step_that_only_reads_has_done_nothing_when_it_fails(tmp_path: Path, hook: Hook) -> None:
    @holdfast.tool(effect="read", retry=0)
    async def look() -> None:
        raise TimeoutError("no answer")

    async with engine_at(at(tmp_path, hook, 'on = ["failed"]'), look) as engine:
        with pytest.raises(holdfast.ExecutionFailed) as failed:
            await result(await engine.start(plan(step("a", "look"))))
    assert failed.value.failure.happened == "nothing"
    assert "it took too long; nothing was done" in hook.got[0]["message"]


async def test_doubt_and_budget_and_question_are_told_by_their_names(tmp_path: Path, hook: Hook) -> None:
    @holdfast.tool(effect="once")
    async def pay() -> None:
        raise TimeoutError

    @holdfast.tool(effect="read", cost=1.0)
    async def dear() -> None: ...

    @holdfast.function
    async def asks(ctx: holdfast.Context) -> None:
        await ctx.ask("which colour?", name="colour")

    async with engine_at(at(tmp_path, hook), pay, dear, functions=[asks]) as engine:
        runs = [
            await engine.start(plan(step("pay", "pay"), step("then", "dear"), title="doubtful")),
            await engine.start(plan(step("dear", "dear"), title="poor"), budget=0.5),
            await engine.start(asks, title="curious"),
        ]
        for run in runs:
            assert await settled(run) == "waiting"
        await until(lambda: len(hook.got) == 3)
        told = {letter["title"]: letter["message"] for letter in hook.got}
        assert set(told) == {"doubtful is in doubt", "poor has run out of budget", "curious asks a question"}
        assert f" resolve {runs[0].id} pay --done" in told["doubtful is in doubt"]
        assert "it may or may not have happened" in told["doubtful is in doubt"]
        assert "what hangs on it: then" in told["doubtful is in doubt"]
        assert f" budget {runs[1].id} --add USD" in told["poor has run out of budget"]
        assert f" answer {runs[2].id} colour" in told["curious asks a question"]


async def test_request_beside_running_steps_is_told_at_once(tmp_path: Path, hook: Hook) -> None:
    gate = Gate()
    beside = plan(step("gate", "gate"), step("ask", "echo", approval="Sure?", needs=[]))
    async with engine_at(at(tmp_path, hook), gate.tool, echo) as engine:
        run = await engine.start(beside)
        await gate.wait_entered()
        await until(lambda: hook.titles == ["test asks for an approval"])
        gate.open.set()
        await run.approve("ask")
        await result(run)
    assert hook.titles == ["test asks for an approval", "test is done"]


async def test_of_a_family_the_child_tells_its_requests_and_the_parent_its_end(tmp_path: Path, hook: Hook) -> None:
    (tmp_path / "child.yaml").write_text("name: child\nsteps:\n  - {id: sure, approval: Sure?}\n")
    async with engine_at(at(tmp_path, hook)) as engine:
        run = await engine.start(plan({"id": "child", "start": "child.yaml"}, title="parent"))
        await seen(run, "child:started")
        await until(lambda: hook.titles == ["child asks for an approval"])
        [child] = (await run.state()).children.values()
        await engine.get(child.id).approve()
        await result(run)
    assert hook.titles == ["child asks for an approval", "parent is done"]


async def test_next_engines_do_not_tell_again_what_was_told(tmp_path: Path, hook: Hook) -> None:
    folder = at(tmp_path, hook)
    waiting = plan(step("ask", "echo", approval="Sure?"))
    async with engine_at(folder, echo, limits=HURRY) as engine:
        run = await engine.start(waiting)
        await until(lambda: len(hook.got) == 1)
    async with engine_at(folder, echo, limits=HURRY) as engine, engine_at(folder, echo, limits=HURRY):
        await engine.get(run.id).approve()
        await result(engine.get(run.id))
    async with engine_at(folder, echo):
        await asyncio.sleep(0)
    assert hook.titles == ["test asks for an approval", "test is done"]


async def test_what_an_import_brings_was_told_where_it_happened(tmp_path: Path, hook: Hook) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        at(folder, hook)
    program = plan(step("ask", "echo", approval="Sure?"), step("more", "echo", approval="More?"))
    async with engine_at(here, echo) as engine:
        run = await engine.start(program)
        await until(lambda: len(hook.got) == 1)
        await seen(run, "task:waiting")
        away = await engine.export(run.id)
    async with engine_at(there, echo) as engine:
        await engine.restore(away, other_folder=True)
        await engine.resume(run.id, other_folder=True)  # its first request was told here, its second is news
        await engine.get(run.id).approve("ask")
        await until(lambda: len(hook.got) == 2)
        await engine.get(run.id).approve("more")
        await result(engine.get(run.id))
        home = await engine.export(run.id)
    told = ["test asks for an approval", "test asks for an approval", "test is done"]
    assert hook.titles == told
    async with engine_at(here, echo) as engine:
        assert (await engine.restore(home)).outcome == "continued"
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    async with engine_at(fresh, echo) as engine:  # which has no channels yet
        assert (await engine.restore(home)).outcome == "imported"
    for folder in (here, at(fresh, hook)):
        async with engine_at(folder, echo):
            await asyncio.sleep(0)  # it looks back, and closing waits for what it would tell
    assert hook.titles == told


async def test_end_that_nobody_could_tell_is_told_by_the_next_engine_once(tmp_path: Path, hook: Hook) -> None:
    async with engine_at(tmp_path, echo) as engine:  # as if it had died right after the end
        await result(await engine.start(plan(step("a", "echo"))))
    for _ in range(2):
        async with engine_at(at(tmp_path, hook), echo):
            await until(lambda: len(hook.got) == 1)
    assert hook.titles == ["test is done"]


async def test_failure_that_nobody_could_tell_is_told_however_many_came_after_it(tmp_path: Path, hook: Hook) -> None:
    async with engine_at(tmp_path, echo, broken) as engine:
        with pytest.raises(holdfast.ExecutionFailed):
            await result(await engine.start(plan(step("a", "broken"), title="old")))
        await asyncio.gather(*[result(await engine.start(plan(step("a", "echo")))) for _ in range(120)])
    async with engine_at(at(tmp_path, hook, 'on = ["failed"]'), echo, broken):
        await until(lambda: len(hook.got) == 1)
    assert hook.titles == ["old failed"]


async def test_channel_that_cannot_be_reached_is_tried_again(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "WAITS_S", (0.01, 0.01))
    addresses = iter(["json://127.0.0.1:1/", "json://127.0.0.1:1/"])
    monkeypatch.setattr(Notify, "_address", lambda *_: next(addresses, hook.address))
    async with engine_at(at(tmp_path, hook, 'on = ["done"]'), echo) as engine:
        await result(await engine.start(plan(step("a", "echo"))))
        await until(lambda: hook.titles == ["test is done"])


async def test_channel_that_refuses_may_have_taken_it_and_the_execution_does_not_notice(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifications, "WAITS_S", (0.01,))
    hook.refuse = 100
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        async with engine_at(at(tmp_path, hook), echo) as engine:
            assert await result(await engine.start(plan(step("a", "echo", **{"with": {"value": 7}})))) == 7
            await until(lambda: "nobody was told through chat that test is done" in caplog.text)
    assert hook.refused == 1


async def test_message_that_may_have_arrived_is_not_sent_again(
    tmp_path: Path, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.patience.clear()
    told = f'[tools.notify]\ntimeout = "1s"\nchannels = {{chat = "{hook.address}"}}\n'
    (tmp_path / "holdfast.toml").write_text(f'[notify]\nchannels = ["chat"]\n{told}')
    async with engine_at(tmp_path, echo) as engine:
        await result(await engine.start(plan(step("a", "echo"))))
    assert len(hook.got) == 1
    assert "nobody was told" in caplog.text


async def test_what_comes_too_fast_is_told_later(tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "PENDING_MAX", 1)
    hook.patience.clear()
    async with engine_at(at(tmp_path, hook), echo) as engine:
        await result(await engine.start(plan(step("a", "echo"), title="one")))
        await until(lambda: len(hook.got) == 1)
        await result(await engine.start(plan(step("a", "echo"), title="two")))
        asked = await engine.start(plan(step("a", "echo", approval="Sure?"), title="three"))
        assert await settled(asked) == "waiting"
        await asked.approve("a")  # so that nobody need be asked any more
        await result(asked)
        hook.patience.set()
        await until(lambda: len(hook.got) == 3)
    assert hook.titles == ["one is done", "two is done", "three is done"]


async def test_what_is_too_much_to_be_remembered_is_told_as_a_number(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "PENDING_MAX", 1)
    monkeypatch.setattr(notifications, "PUT_OFF_MAX", 1)
    hook.patience.clear()
    async with engine_at(at(tmp_path, hook), echo) as engine:
        for name in ("one", "two", "three", "four"):
            await result(await engine.start(plan(step("a", "echo"), title=name)))
            await until(lambda: len(hook.got) == 1)
        hook.patience.set()
        await until(lambda: len(hook.got) == 3)
    assert hook.titles == ["one is done", "two is done", "2 more have something to tell"]
    assert " inbox\n" in hook.got[-1]["message"]


async def test_what_was_put_off_when_an_engine_closes_is_told_by_the_next(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifications, "PENDING_MAX", 1)
    monkeypatch.setattr(notifications, "CLOSING_RETRIES_S", 0.1)
    monkeypatch.setattr(notifications, "CLOSING_S", 0.2)
    hook.patience.clear()
    async with engine_at(at(tmp_path, hook, 'on = ["done"]'), echo) as engine:
        for name in ("one", "two"):
            await result(await engine.start(plan(step("a", "echo"), title=name)))
            await until(lambda: len(hook.got) == 1)
    assert "1 notice was not delivered when the engine was closed; nobody sends it again" in caplog.text
    assert "1 notice was not begun when the engine was closed; the next engine sends it if it opens soon" in caplog.text
    hook.patience.set()
    async with engine_at(at(tmp_path, hook, 'on = ["done"]'), echo):
        await until(lambda: len(hook.got) == 2)
    assert hook.titles == ["one is done", "two is done"]


@pytest.mark.parametrize("waits", [False, True], ids=["an end", "a request"])
async def test_what_a_dead_channel_has_not_taken_is_told_by_the_next_engine_once(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    monkeypatch.setattr(notifications, "CLOSING_RETRIES_S", 0.1)
    monkeypatch.setattr(notifications, "WAITS_S", (600.0,))  # whoever waited for that would never be done
    task = plan(step("a", "echo", **({"approval": "Sure?"} if waits else {})))
    alive, hook.address = hook.address, "json://127.0.0.1:1/"
    for number in range(2):
        caplog.clear()
        async with engine_at(at(tmp_path, hook), echo) as engine:
            if not number:
                run = await engine.start(task)
                assert await settled(run) == ("waiting" if waits else "completed")
            await until(lambda: "onnection" in caplog.text)  # as apprise tells of a failed attempt
        assert "1 notice was not delivered when the engine was closed; the next engine sends it" in caplog.text
    hook.address = alive
    for _ in range(2):
        async with engine_at(at(tmp_path, hook), echo):
            await until(lambda: len(hook.got) == 1)
    assert hook.titles == ["test asks for an approval" if waits else "test is done"]
