"""Tools that run in processes of their own; at the top of a module, where those find them."""

from __future__ import annotations

import atexit
import datetime
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import holdfast


class Answer(msgspec.Struct):
    day: datetime.date
    count: int


@holdfast.tool(effect="read", resources={"memory": "150MB"})
def hog() -> int:
    held = [b"%d" % number * 10**6 for number in range(800)]
    time.sleep(60)
    return len(held)


@holdfast.tool(effect="read")
def plain(what: str, folder: str) -> int:
    match what:
        case "memory":
            held = [b"%d" % number * 10**6 for number in range(800)]
            time.sleep(60)
            return len(held)
        case "memory_once":
            return len([b"%d" % number * 10**6 for number in range(200)])
        case "cpu":
            while time.process_time() < 60:
                pass
        case "processes":
            for _ in range(8):
                os.fork()
            time.sleep(60)
        case "open_files":
            files = [os.open(os.devnull, os.O_RDONLY) for _ in range(3000)]
            time.sleep(60)
            return len(files)
        case "disk":
            Path(folder, "big").write_bytes(b"x" * 10**8)
        case "many_files":  # each of them within the limit, and all of them written before anybody looks
            for number in range(20):
                Path(folder, f"{number}").write_bytes(b"x" * 1_900_000)
        case "output":
            atexit.register(print, "x" * 5000)  # when it has answered
        case _:
            pass
    return os.getpid()


@holdfast.tool(effect="read", isolated=True)
def typed(day: datetime.date, count: int = 1) -> Answer:
    return Answer(day + datetime.timedelta(days=1), count)


@holdfast.tool(effect="idempotent", isolated=True)
async def talking(token: str, call: holdfast.Call) -> list[Any]:
    await call.note({"seen": call.attempt})
    holdfast.current_call().say("said")
    call.progress(50, "half")
    call.spend(0.25)
    print(f"printed {token}")
    command = Path("/proc/self/cmdline").read_text()  # noqa: ASYNC240 -- there is nobody else here
    return [call.path, call.attempt, token in command]


@holdfast.tool(effect="read", isolated=True)
def failing(how: str) -> None:
    match how:
        case "busy":
            raise holdfast.RateLimited("come back later", retry_after_s=7)
        case "bug":
            raise ZeroDivisionError("nothing to divide by")
        case "deaf":
            os.closerange(0, 60)
        case "nameless":
            os.kill(os.getpid(), signal.SIGRTMIN + 6)
        case "long":
            print("x" * 900_000, file=sys.stderr, flush=True)
            os._exit(5)
        case "nonsense":
            os.write(3, b'{"do": "note"}\n')
            time.sleep(60)
        case _:
            os._exit(3)


@holdfast.tool(effect="once", isolated=True)
def dying() -> None:
    os._exit(3)


@holdfast.tool(effect="once", isolated=True)
async def sharing_work(numbers: list[int], call: holdfast.Call) -> int:
    call.progress(float("nan"))
    with multiprocessing.get_context("fork").Pool(2) as workers:
        return sum(workers.map(abs, numbers))  # at the end of the block they are ended with SIGTERM


@holdfast.tool(effect="read", isolated=True)
def waiting(folder: str) -> None:
    Path(folder, "pid").write_text(str(os.getpid()))
    time.sleep(60)


@holdfast.tool(effect="once", resources={"memory": "150MB"})
def paying_hog(folder: str) -> int:
    with Path(folder, "paid").open("a") as paid:
        paid.write("paid\n")
    return len([b"%d" % number * 10**6 for number in range(800)])


@holdfast.tool(effect="idempotent", isolated=True)
def noting(call: holdfast.Call) -> Any:
    if call.notes is None:
        call.note({"page": 3})
        call.progress(30, "three of ten")
        os._exit(4)
    return call.notes


@holdfast.tool(effect="read", resources={"output": "100KB"})
def loud() -> None:
    while True:
        print("x" * 1000)


@holdfast.tool(effect="read", isolated=True, timeout="1s")
def slow(folder: str) -> None:
    waiting.function(folder)


@holdfast.tool(effect="read", isolated=True)
class Counter:
    """Made anew in each process."""

    def execute(self, upto: int) -> list[int]:
        return [*range(upto), os.getpid()]


class Scaled:
    def __init__(self, factor: int) -> None:
        self._factor = factor

    def execute(self, value: int) -> int:
        return value * self._factor


@holdfast.tool(effect="once", isolated=True)
def returns_bytes() -> Any:
    return b"\x00receipt"
