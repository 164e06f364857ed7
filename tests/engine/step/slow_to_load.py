"""Tools whose module, in a process of its own, does not finish loading before a test lets it.

Each process says that it loads with a file that is named after it, and waits for another one.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import holdfast

FOLDER = "LOADING_FOLDER"  # in the environment; not yet there when the engine's own process loads this


def _load() -> None:
    here, pid = Path(os.environ[FOLDER]), os.getpid()
    (here / f"loading-{pid}").touch()
    word = here / f"go-{pid}"
    while not word.exists():
        time.sleep(0.002)
    match word.read_text():
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(pid, signal.SIGKILL)
        case _:
            pass


def _reached(what: str) -> None:
    with Path(os.environ[FOLDER], "reached").open("a") as reached:
        reached.write(f"{what} {time.monotonic()}\n")


if FOLDER in os.environ:
    _load()


@holdfast.tool(effect="read", isolated=True, retry=0, breaker=holdfast.Breaker(failures=1, rest_s=3600))
def down(name: str) -> None:
    _reached(name)
    raise holdfast.Transient("nobody answers")


@holdfast.tool(effect="once", isolated=True, timeout="2s", idle_timeout="2s", retry=0)
def pay(name: str = "pay") -> str:
    _reached(name)
    return "paid"


@holdfast.tool(effect="once", isolated=True, timeout="2s")
def pay_and_stay(declines: bool = False) -> str:
    """The answer is there, and the process is not over: it waits for this thread."""
    threading.Thread(target=_stay).start()
    if declines:
        raise holdfast.ToolError("declined")
    return "paid"


def _stay() -> None:
    threading.main_thread().join()
    _reached("answered")
    time.sleep(60)


@holdfast.tool(effect="read", rate="1/s", retry=0)
def paced(name: str) -> None:
    _reached(name)
