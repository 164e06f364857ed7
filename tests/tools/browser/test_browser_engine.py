"""The browser tools under an engine: pages across steps, doubts, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.tools.browser import chromium as browser_chromium
from servers.pages import Site, needs_browser, served

pytestmark = needs_browser


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served() as site:
        yield site


def project(folder: Path, site: Site) -> Path:
    (folder / "holdfast.toml").write_text(f'[tools.browser]\nallow = ["127.0.0.1:{site.server_port}"]\nwidth = 2500\n')
    return folder


def steps(*listed: dict[str, Any]) -> dict[str, Any]:
    return {"name": "look", "steps": [{"id": f"s{number}", **step} for number, step in enumerate(listed)]}


async def wait_until(what: Any) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def visits(engine: holdfast.Engine) -> Any:
    (tool,) = [engine.services.registry.get("browser.open")]
    return tool.function.__self__.visits  # type: ignore[attr-defined]


async def test_a_plan_walks_through_pages_and_its_end_closes_them(tmp_path: Path, site: Site) -> None:
    plan = steps(
        {"tool": "browser.open", "with": {"url": f"{site.url}/form"}},
        {"tool": "browser.type", "with": {"selector": "#name", "text": "Ada", "submit": True}},
        {"tool": "browser.wait", "with": {"selector": "#what"}},
        {"tool": "browser.screenshot"},
        {"tool": "browser.extract", "with": {"selector": "#what"}},
    )
    async with holdfast.Engine(folder=project(tmp_path, site)) as engine:
        run = await engine.start(plan)
        assert (await run.result())["text"] == "name=Ada"
        await wait_until(lambda: visits(engine).count == 0)
        picture = (await run.state()).steps["s3"].output
        assert len(picture) < 1000  # it is in a blob, and the event refers to it


async def test_an_interrupt_in_the_middle_of_a_click_is_a_doubt_and_frees_the_page(tmp_path: Path, site: Site) -> None:
    site.seen.clear()
    plan = steps({"tool": "browser.click", "with": {"url": f"{site.url}/stuck", "selector": "#go"}})
    async with holdfast.Engine(folder=project(tmp_path, site)) as engine:
        run = await engine.start(plan)
        await wait_until(lambda: "/never" in site.seen)
        await run.interrupt()
        await wait_until(lambda: visits(engine).count == 0)
        state = await run.state()
        assert (state.status, state.steps["s0"].status) == ("interrupted", "in_doubt")


async def test_a_step_whose_page_is_gone_waits_until_somebody_says_where_to_begin(tmp_path: Path, site: Site) -> None:
    plan = steps({"tool": "browser.click", "with": {"selector": "text=to the form"}})
    async with holdfast.Engine(folder=project(tmp_path, site)) as engine:
        run = await engine.start(plan)
        await wait_until_waiting(run)
        request = next((await run.state()).open_requests()).request
        assert (request.kind, "there is no page open" in request.message) == ("correction", True)
        await run.resolve("s0", "again", arguments={"url": f"{site.url}/hello"})
        assert (await run.result())["url"] == f"{site.url}/form"


async def wait_until_waiting(run: holdfast.Run) -> None:
    async for event in run.watch():
        if event.type == "task:waiting":
            return


ENGINE = """
import asyncio, sys, holdfast
async def main():
    engine = holdfast.Engine(folder=sys.argv[1])
    async with engine:
        run = await engine.start({"name": "look", "steps": [
            {"id": "open", "tool": "browser.open", "with": {"url": sys.argv[2]}},
            {"id": "wait", "tool": "browser.wait", "with": {"text": "never comes", "timeout": 600}}]})
        async for event in run.watch():
            if event.type == "step:completed":
                print(engine.services.registry.get("browser.open").function.__self__.visits.chromium.pid, flush=True)
asyncio.run(main())
"""


def test_neither_the_browser_nor_its_helpers_outlive_a_killed_engine(tmp_path: Path, site: Site) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(project(tmp_path, site)), f"{site.url}/hello"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert engine.stdout is not None
    with engine.stdout:
        chromium = int(engine.stdout.readline())
    family = below(engine.pid)
    assert chromium in family
    assert any("node" in name for name in map(name_of, family))
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait()
    deadline = time.monotonic() + 60
    while any(map(is_there, family)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_profiles_of_killed_processes_are_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    kept = tmp_path / f"holdfast-browser-{os.getpid()}-mine"
    for folder in (tmp_path / f"holdfast-browser-{dead.pid}-old", kept, tmp_path / "holdfast-browser-x"):
        folder.mkdir()
    made = Path(browser_chromium._new_profile())  # pyright: ignore[reportPrivateUsage]
    assert sorted(tmp_path.iterdir()) == sorted([made, kept, tmp_path / "holdfast-browser-x"])


def below(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    children = [int(child) for child in text.split()]
    for task in os.listdir(f"/proc/{pid}/task"):
        children += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return [found for child in dict.fromkeys(children) for found in (child, *below(child))]


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
