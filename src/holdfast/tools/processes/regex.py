"""Regular expressions that a stranger wrote, matched in a child (regex_child.py) that is killed when its time is up."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.resources import Resources
from holdfast.tools.processes import regex_child
from holdfast.tools.processes.spawn import OF_THE_CALL, spawn

ANSWER_BYTES_MAX = 32 * 1024 * 1024  # the longest message with every character masked has a tenth of that


class Request(msgspec.Struct, frozen=True):
    pattern: str
    ignore_case: bool = False
    by_line: bool = False
    found_max: int = 1  # places
    instead: str | None = None  # replaces what fits, in all texts; None: only look


class Outcome(msgspec.Struct, frozen=True):
    request: int = 0  # the number of the last request that was looked at
    found: list[tuple[int, int]] = []  # text and line, see the child
    texts: list[str] = []  # if a request replaces something, and none found anything
    error: str = ""  # what is wrong with the pattern


class TooSlow(Exception):
    def __init__(self, request: int | None) -> None:
        self.request = request  # None: the child did not begin


class NoAnswer(Exception):
    """The child ended without one: it was killed, or used more memory than it may."""


def match(
    texts: Sequence[str],
    requests: Sequence[Request],
    *,
    patience_s: float,
    start_s: float | None = None,
    resources: Resources | None = OF_THE_CALL,
) -> Outcome:
    """Blocks; for `def` tools. The child has `start_s` to begin, or else that is a part of its `patience_s`.

    Raises `TooSlow` or `NoAnswer`.
    """
    job = {"texts": texts, "requests": [msgspec.to_builtins(request) for request in requests]}
    # The keeper answers on any event loop; the thread of a `def` tool has none, so it gets one.
    answer = asyncio.run(_ask(json.dumps(job).encode(), patience_s, start_s, resources))
    said: list[dict[str, Any]] = [json.loads(line) for line in answer.split(b"\n")[:-1]]
    if not said or "request" in said[-1]:
        raise NoAnswer
    return msgspec.convert({**said[-2], **said[-1]} if len(said) > 1 else said[-1], Outcome)


async def _ask(job: bytes, patience_s: float, start_s: float | None, resources: Resources | None) -> bytes:
    argv = [sys.executable, "-I", "-S", "-X", "utf8", regex_child.__file__]
    process = await spawn(argv, cwd="/", env={}, stdin=job, resources=resources)
    answer = b""
    try:
        async with asyncio.timeout(max(0.0, patience_s if start_s is None else start_s)) as limit:
            while (piece := await process.stdout.read(65536)) and len(answer) < ANSWER_BYTES_MAX:
                if not answer and start_s is not None:
                    limit.reschedule(asyncio.get_running_loop().time() + patience_s)
                answer += piece
    except TimeoutError:
        begun: list[Any] = [json.loads(line) for line in answer.split(b"\n")[:-1]]
        raise TooSlow(begun[-1]["request"] if begun else None) from None
    finally:
        process.close()
    return answer
