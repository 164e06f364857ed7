"""Many http steps at once under a rate limit for their host: how fast they really go, as a share of the limit."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from common import print_result

import holdfast

RATE_PER_S = 50


@holdfast.function
async def fetch_many(ctx: holdfast.Context, url: str, steps: int) -> int:
    answers = await ctx.gather(*(ctx.call("http.get", url, name=f"get{number}") for number in range(steps)))
    return len(answers)


async def serve(arrived: list[float]) -> asyncio.Server:
    """A web server that does nothing but note when somebody came."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            arrived.append(time.perf_counter())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    return await asyncio.start_server(guarded, "127.0.0.1", 0)


def settle(folder: Path) -> None:
    limits = f'rate_per_host = "{RATE_PER_S}/s"\nconnections_per_host = 200\n'
    (folder / "holdfast.toml").write_text(f'[tools.http]\nallow = ["127.0.0.1"]\n{limits}')


async def measure(steps: int) -> float:
    """Requests a second, from the first to the last."""
    arrived: list[float] = []
    server = await serve(arrived)
    port = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        settle(Path(folder))
        async with holdfast.Engine(folder=folder, functions=[fetch_many]) as engine:
            run = await engine.start(fetch_many, inputs={"url": f"http://127.0.0.1:{port}/", "steps": steps})
            if await run.result() != steps:
                raise SystemExit("some requests were lost: the rate would mean nothing")
    server.close()
    return (len(arrived) - 1) / (arrived[-1] - arrived[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=200, help="steps at once")
    arguments = parser.parse_args()
    per_s = asyncio.run(measure(arguments.executions))
    print_result(requests_per_s=round(per_s, 1), limit_per_s=RATE_PER_S, share=round(per_s / RATE_PER_S, 3))


if __name__ == "__main__":
    main()
