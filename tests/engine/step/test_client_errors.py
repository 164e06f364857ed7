"""A tool of one's own that asks a real server with a real client, and lets its errors out."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from typing import Any

import httpx
import pytest
import requests

import holdfast
from engine.kit import FAST, engine_at, plan, result, settled, step, step_of
from holdfast.core import events as ev
from servers.statuses import answering


def asking(url: str, effect: Any, client: str = "httpx", **options: Any) -> holdfast.Tool[..., Any]:
    @holdfast.tool(name="ask", effect=effect, **options)
    def ask() -> str:
        match client:
            case "httpx":
                with httpx.Client(trust_env=False) as session:
                    return session.post(url).raise_for_status().text
            case "requests":
                answer = requests.post(url, timeout=30)
                answer.raise_for_status()
                return answer.text
            case _:
                try:
                    with urllib.request.urlopen(urllib.request.Request(url, b""), timeout=30) as answer:
                        return answer.read().decode()  # type: ignore[no-any-return]
                except urllib.error.HTTPError as error:
                    error.close()
                    raise

    return ask


@pytest.mark.parametrize("client", ["httpx", "requests", "urllib"])
async def test_reading_tool_whose_server_is_busy_is_tried_again(client: str) -> None:
    with answering(503, 429, 500, Retry_After="0") as server:
        async with engine_at("memory:", asking(server.url, "read", client)) as engine:
            run = await engine.start(plan(step("ask", "ask", retry=FAST)))
            assert await result(run) == "ok"
            history = (await step_of(run, "ask")).attempts
        assert [attempt.category for attempt in history] == ["transient", "rate_limit", "transient", None]
    assert len(server.asked) == 4


async def test_rate_limit_waits_as_long_as_the_server_says() -> None:
    with answering(429, Retry_After="3600") as server:
        async with engine_at("memory:", asking(server.url, "read")) as engine:
            run = await engine.start(plan(step("ask", "ask")))
            async for seen in run.watch():
                if isinstance(retrying := seen.event, ev.StepRetrying):
                    assert round((retrying.due_at - retrying.at) / 1e6) == 3600
                    assert retrying.failure.category == "rate_limit"
                    break
            await run.stop()


@pytest.mark.parametrize(("status", "category"), [(404, "configuration"), (422, "configuration")])
async def test_refusal_that_a_person_must_correct_waits_for_that(status: int, category: str) -> None:
    with answering(status) as server:
        async with engine_at("memory:", asking(server.url, "once")) as engine:
            run = await engine.start(plan(step("ask", "ask")))
            assert await settled(run) == "waiting"
            request = next((await run.state()).open_requests()).request
            assert request.kind == "correction"
            assert request.failure is not None
            assert (request.failure.category, request.failure.happened) == (category, "known")
            assert request.failure.place.startswith(__file__)
            await run.resolve("ask", "again")
            assert await result(run) == "ok"
    assert len(server.asked) == 2


@pytest.mark.parametrize(("status", "category"), [(401, "permission"), (429, "rate_limit")])
async def test_refused_once_step_fails_and_is_not_repeated(status: int, category: str) -> None:
    with answering(status, Retry_After="0") as server:
        async with engine_at("memory:", asking(server.url, "once", refresh=lambda call, arguments: None)) as engine:
            run = await engine.start(plan(step("ask", "ask")))
            assert await settled(run) == "failed"
            failure = (await step_of(run, "ask")).failure
            assert failure is not None
            assert (failure.category, failure.happened) == (category, "known")
    assert len(server.asked) == 1


@pytest.mark.parametrize("client", ["httpx", "requests", "urllib"])
@pytest.mark.parametrize("status", [408, 500, 503])
async def test_once_step_whose_server_failed_is_in_doubt(status: int, client: str) -> None:
    with answering(status, Retry_After="0") as server:
        async with engine_at("memory:", asking(server.url, "once", client)) as engine:
            run = await engine.start(plan(step("ask", "ask", retry=FAST)))
            assert await settled(run) == "waiting"
            assert (await step_of(run, "ask")).status == "in_doubt"
            await run.stop()
    assert len(server.asked) == 1


@pytest.mark.parametrize("client", ["httpx", "requests", "urllib"])
async def test_once_step_that_could_not_connect_is_not_repeated(client: str) -> None:
    with socket.socket() as bound:  # and nobody listens
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/"
        async with engine_at("memory:", asking(url, "once", client)) as engine:
            run = await engine.start(plan(step("ask", "ask")))
            assert await settled(run) == "waiting"
            kept = await step_of(run, "ask")
            assert (kept.status, kept.attempt) == ("in_doubt", 1)
            await run.stop()


async def test_once_step_is_repeated_when_its_tool_says_that_nothing_happened() -> None:
    with answering(429) as server:

        @holdfast.tool(name="ask", effect="once")
        async def ask() -> str:
            async with httpx.AsyncClient(trust_env=False) as client:
                answer = await client.post(server.url)
                if answer.status_code == 429:
                    raise holdfast.RateLimited("busy", retry_after_s=0)
                return answer.text

        async with engine_at("memory:", ask) as engine:
            assert await result(await engine.start(plan(step("ask", "ask")))) == "ok"
    assert len(server.asked) == 2


async def test_permission_of_a_reading_tool_is_asked_for_again_after_its_refresh_hook() -> None:
    refreshed: list[str] = []
    with answering(401) as server:
        ask = asking(server.url, "read", refresh=lambda call, arguments: refreshed.append(call.key))
        async with engine_at("memory:", ask) as engine:
            assert await result(await engine.start(plan(step("ask", "ask")))) == "ok"
    assert (len(server.asked), len(refreshed)) == (2, 1)
