"""Handing a task in: found, read, checked whole, pinned; or refused with the reason, and nothing started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from engine.kit import Script, echo, engine_at, plan, result, settled, step
from holdfast.core.errors import PlanInvalid


async def test_plan_files_in_yaml_and_json_are_pinned_when_handed_in(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text("steps:\n  - {id: ok, approval: true}\n  - {id: a, tool: echo, with: {value: first}}\n")
    async with engine_at(tmp_path, echo) as engine:
        run = await engine.start(file.name)
        await settled(run)
        file.write_text("steps: [{id: a, tool: echo, with: {value: second}}]")
        await run.approve()
        assert await result(run) == "first"
        created = (await run.state()).facts()
        assert (created.program.name, created.program.file) == ("work", "work.yaml")


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("p.yaml", "steps: [", "is not YAML"),
        ("p.json", "{", "is not JSON"),
        ("p.yml", "", "expected a map with a name and steps"),
        ("q.yaml", None, "there is no plan file"),
        ("p.txt", "x", 'there is no program "p.txt": give a plan file (.yaml, .yml, .json) or the name of a function'),
    ],
)
async def test_file_that_is_no_plan_is_refused_with_its_fault(
    tmp_path: Path, name: str, body: str | None, text: str
) -> None:
    if body is not None:
        (tmp_path / name).write_text(body)
    async with engine_at(tmp_path, echo) as engine:
        with pytest.raises(holdfast.HoldfastError) as refused:
            await engine.start(name)
        assert text in str(refused.value)
        assert await engine.list() == []


async def test_unreadable_and_huge_plan_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "long.yaml").write_text("x" * 2000)
    monkeypatch.setattr("holdfast.programs.plan_files.PLAN_BYTES_MAX", 1024)
    async with engine_at(tmp_path) as engine:
        with pytest.raises(PlanInvalid, match="cannot be read"):
            await engine.start("binary.yaml")
        with pytest.raises(PlanInvalid, match="is larger than 0 MB"):
            await engine.start("long.yaml")


async def test_wrong_inputs_are_all_named_and_nothing_is_started() -> None:
    work = plan(step("a", "echo"), inputs={"n": "integer", "word": "string"})
    async with engine_at("memory:", echo) as engine:
        with pytest.raises(holdfast.HoldfastError) as refused:
            await engine.start(work, inputs={"n": "many"})
        assert str(refused.value).startswith("the inputs do not fit:\n")
        assert "n" in str(refused.value)
        assert "word" in str(refused.value)
        assert await engine.list() == []


async def test_prerequisites_of_all_steps_are_checked_before_the_first_starts() -> None:
    first = Script()

    @holdfast.tool(effect="read", requires=["a-program-nobody-has"])
    async def needy() -> None: ...

    work = plan(step("a", "script"), step("b", "needy"))
    async with engine_at("memory:", first.tool, needy) as engine:
        missing = 'needy needs the program "a-program-nobody-has", which is not on PATH; install it'
        assert await engine.check(work) == [missing]
        with pytest.raises(holdfast.Misconfigured) as refused:
            await engine.start(work)
        assert str(refused.value) == f"nothing was started, because something is missing:\n{missing}"
        assert await engine.check(plan(step("a", "script"), step("b", "needy", optional=True))) == []
    assert first.calls == []


class Opened:
    """Counts how often a file is opened, and changes it when it is opened a second time."""

    def __init__(self, file: Path, later: str) -> None:
        self.times = 0
        self._file, self._later = file, later
        sys.addaudithook(self._hear)  # it cannot be taken out again, so it must not fail and not cost anything

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and arguments[0] == str(self._file) and arguments[1] != "w":
            self.times += 1
            if self.times == 2:
                self._file.write_text(self._later)


@pytest.mark.parametrize("way", ["start", "check", "retry"])
async def test_plan_file_is_read_once_and_journaled_as_checked(tmp_path: Path, way: str) -> None:
    @holdfast.tool(effect="read", requires=["a-program-nobody-has"])
    async def needy() -> None: ...

    file = tmp_path / "work.yaml"
    file.write_text("name: test\nsteps: [{id: a, tool: echo, with: {value: first}}]")
    async with engine_at(tmp_path, echo, needy) as engine:
        before = await engine.start(plan(step("a", "echo", **{"with": {"value": "none"}})))
        await settled(before)
        opened = Opened(file, "name: test\nsteps: [{id: a, tool: needy}]")
        if way == "check":
            assert await engine.check("work.yaml") == []
        elif way == "start":
            assert await result(await engine.start("work.yaml")) == "first"
        else:
            assert await result(await engine.retry(before.id, from_step="a", program="work.yaml")) == "first"
    assert opened.times == 1


async def test_line_ends_of_any_system_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "work.yaml").write_bytes(
        b'steps:\r\n  - id: a\r\n    tool: echo\r\n    with: {value: "x\r\n\r\n      y"}\r\n'
    )
    async with engine_at(tmp_path, echo) as engine:
        assert await result(await engine.start("work.yaml")) == "x\ny"
