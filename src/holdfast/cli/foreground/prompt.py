"""Asks the person at the terminal what a request asks: yes or no, an answer, or what to do about a doubt or a failure.

Reads the terminal through the event loop, so that the question goes away when somebody answers it elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from holdfast.cli.common.options import dollars
from holdfast.cli.foreground.answer_parsing import fields_of, prompt_of, read_field, read_value
from holdfast.cli.foreground.choices import Choice, choices_at_prompt, chosen, details_lines
from holdfast.cli.output.format import paint, parse_value, value
from holdfast.core.error_text import quoted
from holdfast.core.errors import InputInvalid, Refused
from holdfast.engine.run import Run

LOOK_S = 0.3  # how often to look whether somebody else has answered
LINE_BYTES_MAX = 65536


async def ask_person(run: Run, request: Mapping[str, Any], stop: asyncio.Event) -> bool:
    """True when the request is settled, by this person or elsewhere; False when it is left for later."""
    print(paint(f"\n{request['path']}: {request['message']}", "bold"))
    if request["tool"]:
        print(f"  {request['tool']} {value(request['arguments'])}")
    for line in request.get("failed") or ():
        print(paint(f"  before it: {value(line)}", "yellow"))
    fields = fields_of(request)
    while fields:
        done = await _fill_in(run, request, fields, stop)
        if done is not None:
            return done
    choices = choices_at_prompt(request)
    while True:
        line = await read_line(_prompt(request, choices), lambda: _is_open(run, request["id"]), stop)
        if line is None:
            return True
        is_question = request["kind"] == "question"
        word = chosen(choices, line.strip())
        if not line or (not word if is_question else word == "later"):
            return False
        if word == "details" and not is_question:
            print("\n".join(details_lines(request)))
            continue
        try:
            if await _settle(run, request, word):
                return True
        except (Refused, InputInvalid) as error:
            print(f"{error}")


async def _fill_in(
    run: Run, request: Mapping[str, Any], fields: Mapping[str, Any], stop: asyncio.Event
) -> bool | None:  # fmt: skip
    """A form, field by field; None when it has to be filled in again."""
    answers: dict[str, Any] = {}
    for name, field in fields.items():
        while name not in answers:
            line = await read_line(f"{prompt_of(name, field)}: ", lambda: _is_open(run, request["id"]), stop)
            if line is None:
                return True
            may_be_left_out = "default" in field or not field.get("required", True)
            if not line or (not line.strip() and not may_be_left_out):
                return False  # for later
            if not line.strip():
                break
            said, wrong = read_field(field, line)
            if wrong:
                print(wrong)
            else:
                answers[name] = said
    try:
        await run.answer(request["id"], answers)
    except Refused as error:
        print(f"{error}")
        return None
    return True


def _prompt(request: Mapping[str, Any], choices: Sequence[Choice]) -> str:
    listed = ", ".join(choice.shown for choice in choices)
    match request["kind"]:
        case "approval":
            return f"approve? {listed}: "
        case "question":
            return f"answer ({listed or 'text or JSON'}; empty line for later): "
        case "budget":
            return f"how many dollars more? or: {listed}: "
        case _:
            return f"what now? {listed}: "


async def _settle(run: Run, request: Mapping[str, Any], word: str) -> bool:
    step = request["id"]
    match request["kind"]:
        case "approval" if word == "yes":
            await run.approve(step)
        case "approval" if word == "no":
            await run.deny(step)
        case "approval":
            raise InputInvalid(f"expected yes or no, or their numbers, got {quoted(word)}")
        case "question":
            await run.answer(step, read_value(request["schema"], word))
        case _ if word.startswith("done ") and "done" in request["remedies"]:
            await run.resolve(step, "done", output=parse_value(word.removeprefix("done ").strip()))
        case _ if word in request["remedies"]:
            await run.resolve(step, word)
        case "budget":
            await run.budget(add=dollars(word, "the amount"))  # if that is not enough, it is asked again
        case _:
            raise InputInvalid(f"expected one of {', '.join(request['remedies'])}, or its number, got {quoted(word)}")
    return True


async def read_line(prompt: str, is_open: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> str | None:
    """A line with its end, "" at the end of input, None when the question has gone away."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(os.read(sys.stdin.fileno(), LINE_BYTES_MAX).decode(errors="replace"))

    print(prompt, end="", flush=True)
    loop.add_reader(sys.stdin.fileno(), read)
    try:
        while not stop.is_set():
            await asyncio.wait({typed}, timeout=LOOK_S)
            if typed.done():
                return typed.result()
            if not await is_open():
                print("\nanswered elsewhere")
                return None
        return None
    finally:
        loop.remove_reader(sys.stdin.fileno())


async def _is_open(run: Run, request_id: str) -> bool:
    return any(asked.request.id == request_id for asked in (await run.state()).open_requests())
