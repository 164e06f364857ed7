"""Subprocesses for tools, from any event loop, none of which can outlive this process.

Owns the engine's end of the keeper (supervisor.py): starting it on first use and again if it died, talking to it, and
handing each answer to whoever waits for it. Refuses to read output for its callers: they bound what they read.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.errors import Misconfigured, NotPermitted, ResourceShort, ToolError
from holdfast.core.failure import Category
from holdfast.core.resources import DEFAULTS, Resources, Usage
from holdfast.tools.call import Call, running_call
from holdfast.tools.processes import supervisor
from holdfast.tools.processes.pipes import PipeEnds

KILL_GRACE_S = 1.0
OUTPUT_GRACE_S = 1.0  # after a command's end, for what is still in its pipes
NICE_AFTER_S = 10.0  # of CPU time; whoever computes for longer lets everybody else go first
NICE = 10
LASTING_EVERY_S = 0.1  # a browser has hundreds of threads, and all of them are looked at
OF_THE_CALL = Resources()  # stands for: those of the running call
FAREWELL_S = 5.0  # for the keeper to kill what is left when this process ends


class ProcessLost(ToolError):
    """The process that keeps all commands died, and the command with it; whether it had done its work is unknown."""

    category: Category = "transient"


class Lasting(NamedTuple):
    """Limits of what outlives a call, such as a server that many share: what it may have at one time.

    Of what is used up by and by there is no right amount for something that runs for weeks. With `victims`, the largest
    process below it that has this in its command line is ended for a limit, and everything only if there is none.
    """

    resources: Resources
    victims: str = ""

    def as_limits(self) -> dict[str, Any]:
        held = {name: getattr(self.resources, field) for name, field in _HELD.items()}
        said = {name: value for name, value in held.items() if value is not None}
        return {**said, "every_s": LASTING_EVERY_S, **({"victims": self.victims} if self.victims else {})}


_HELD = {"memory": "memory_bytes", "processes": "processes", "open_files": "open_files"}


class Exit(NamedTuple):
    """How a command ended; a negative code is the signal that ended it. `over` names the limit it was ended for."""

    code: int
    cpu_s: float
    rss_bytes: int  # of the whole tree, the most at any moment that was looked at; 0: it was over before
    processes: int | None = None
    disk_bytes: int | None = None
    over: str = ""
    together: float | None = None  # what all commands used of a limit that they share, if it was such a one

    def usage(self) -> Usage:
        return Usage(
            cpu_s=round(self.cpu_s, 3), memory_bytes=self.rss_bytes or None, processes=self.processes,
            disk_bytes=self.disk_bytes,
        )  # fmt: skip


class Process:
    """A running command. Read `stdout` and `stderr`, `wait()` for its end, and `close()` it whatever happens."""

    def __init__(
        self,
        mark: str,
        line: _SupervisorConnection,
        exited: asyncio.Future[Exit],
        ends: PipeEnds,
        call: Call | None = None,
    ) -> None:
        self.pid = 0
        self.stdout = ends.stdout
        self.stderr = ends.stderr
        self._mark = mark
        self._line = line
        self._exited = exited
        self._ends = ends
        self._cut: asyncio.TimerHandle | None = None
        self._call = call
        exited.add_done_callback(self._count)
        exited.add_done_callback(self._cut_output_soon)

    async def wait(self) -> Exit:
        """When this returns, whatever the command left running has been killed."""
        end = await asyncio.shield(self._exited)
        self._count(self._exited)  # an end that is known already is returned before anybody else is told of it
        return end

    def _count(self, exited: asyncio.Future[Exit]) -> None:
        """What it used is counted once for the call that it was started by."""
        call, self._call = self._call, None
        if call is not None and not exited.cancelled() and exited.exception() is None:
            call.use(exited.result().usage())

    async def kill(self, grace_s: float = KILL_GRACE_S) -> None:
        """End the command and all its descendants: SIGTERM, then SIGKILL after the grace."""
        self.send_signal(signal.SIGTERM)
        await asyncio.wait([self._exited], timeout=grace_s)
        self.send_signal(signal.SIGKILL)
        await asyncio.wait([self._exited])

    async def kill_for(self, call: Call, otherwise_s: float) -> None:
        """The same, after its call was cut, which then raises its own cancellation.

        With the grace that the engine gives the call. The engine often says so twice, and the second time must not take
        the grace away; it waits no longer than that itself. Without an engine, who cancels twice does not wait.
        """
        if call.kill_grace_s is None:
            await self.kill(otherwise_s)
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + call.kill_grace_s
        self.send_signal(signal.SIGTERM)
        while not self._exited.done() and (left_s := until - loop.time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._exited], timeout=left_s)
        self.send_signal(signal.SIGKILL)
        await asyncio.wait([self._exited])

    def send_signal(self, number: int) -> None:
        """To the whole tree; nothing happens if it has ended."""
        if not self._exited.done():
            with contextlib.suppress(ProcessLost):
                self._line.send({"do": "signal", "id": self._mark, "signal": number})

    async def write(self, data: bytes) -> None:
        """To the stdin of a command that was started with `talks`."""
        assert self._ends.inlet is not None
        await self._ends.inlet.write(data)

    def close_stdin(self) -> None:
        if self._ends.inlet is not None:
            self._ends.inlet.close()

    def close(self) -> None:
        """Let go of the pipes, and of the command itself if it still runs."""
        self.send_signal(signal.SIGKILL)
        self._ends.close()
        if self._cut is not None:
            self._cut.cancel()

    def _cut_output_soon(self, exited: asyncio.Future[Exit]) -> None:
        """Whoever escaped even the keeper's eye may hold the pipes open; readers must not wait for it."""
        self._cut = exited.get_loop().call_later(OUTPUT_GRACE_S, self._ends.close)


async def spawn(
    argv: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    stdin: bytes | None = None,
    talks: bool = False,
    more: Sequence[int] = (),
    resources: Resources | Lasting | None = OF_THE_CALL,
) -> Process:
    """Start a command. One that cannot be started is `Misconfigured`, and nothing has happened.

    `stdin` is all that it can read; with `talks` its stdin stays open, and `Process.write` writes to it.
    `more` are descriptors that it will have as 3 and so on; they stay open here.
    It is held to `resources`: by default to what the running call may use, and what it used is counted for that call.
    `Lasting` ones are for what outlives a call; None holds it to nothing.
    """
    if not argv or any("\0" in part for part in (*argv, str(cwd), *env.keys(), *env.values())):
        raise Misconfigured("a command needs a program, and no part of it may contain a NUL character")
    loop = asyncio.get_running_loop()
    started: asyncio.Future[int] = loop.create_future()
    exited: asyncio.Future[Exit] = loop.create_future()
    exited.add_done_callback(lambda future: future.cancelled() or future.exception())  # nobody need be waiting
    mark = uuid.uuid4().hex
    request: dict[str, Any] = {"do": "spawn", "id": mark, "argv": list(argv), "cwd": os.fspath(cwd), "env": dict(env)}
    call = running_call.get(None) if resources is OF_THE_CALL else None
    if resources is OF_THE_CALL:
        resources = call.resources if call is not None else None
    if resources is not None:
        request["limits"] = resources.as_limits() if isinstance(resources, Lasting) else _limits(resources)
        if call is not None and call.together is not None:
            call.together.check()
            request["together"] = call.together.as_order()
    ends, theirs = await PipeEnds.open(stdin, talks=talks)
    try:
        try:
            request["descriptors"] = len(theirs) + len(more)
            line = _send_spawn(request, [*theirs, *more], _Waiter(loop, started, exited))
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        process = Process(mark, line, exited, ends, call)
        try:
            process.pid = await started
        except asyncio.CancelledError:
            process.send_signal(signal.SIGKILL)  # orders are obeyed in turn: it has started by then, or never will
            raise
        except OSError as error:
            raise _cannot_start(argv[0], cwd, error) from None
    except BaseException:
        ends.close()
        raise
    return process


def _limits(resources: Resources) -> dict[str, float]:
    """As the keeper wants them; where nothing is said, what a command may use anywhere."""
    whole = resources.over(DEFAULTS)
    return {
        "memory": whole.memory_bytes or 0,
        "cpu": whole.cpu_s or 0,
        "processes": whole.processes or 0,
        "open_files": whole.open_files or 0,
        "disk": whole.disk_bytes or 0,
        "cores": whole.cores or 0,
        "nice": NICE,
        "nice_after_s": NICE_AFTER_S,
    }


def _cannot_start(program: str, cwd: str | Path, error: OSError) -> ToolError:
    if error.filename == "cwd":
        return Misconfigured(f"cannot run in the folder {cwd}: {error.strerror}; create it or correct cwd")
    match error.errno:
        case errno.ENOENT:
            return Misconfigured(f'no such program: "{program}"; install it or correct the command')
        case errno.EACCES | errno.EPERM:
            return NotPermitted(f'the program "{program}" may not be run: {error.strerror}; check its permissions')
        case errno.EAGAIN | errno.ENOMEM | errno.EMFILE | errno.ENFILE:
            return ResourceShort(f'"{program}" could not be started: {error.strerror}', without_effect=True)
        case _:
            return Misconfigured(f'"{program}" could not be started: {error.strerror}; correct the command')


class _Waiter(NamedTuple):
    """Who asked for a command, and on which loop the answers must arrive."""

    loop: asyncio.AbstractEventLoop
    started: asyncio.Future[int]
    exited: asyncio.Future[Exit]

    def settle(self, future: asyncio.Future[Any], result: Any = None, error: Exception | None = None) -> None:
        def on_loop() -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self.loop.call_soon_threadsafe(on_loop)


class _SupervisorConnection:
    """One keeper and the socket to it. A thread reads the answers, so that any number of loops can ask."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._lock = threading.Lock()
        self._waiters: dict[str, _Waiter] = {}
        self.lost = False
        with theirs:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", supervisor.__file__, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, name="holdfast-keeper", daemon=True).start()

    @property
    def keeper_pid(self) -> int:
        return self._keeper.pid

    def send(self, request: dict[str, Any], descriptors: Sequence[int] = (), waiter: _Waiter | None = None) -> None:
        body = json.dumps(request).encode()
        message = len(body).to_bytes(4, "big") + body
        with self._lock:
            if self.lost:
                raise ProcessLost
            if waiter is not None:
                self._waiters[request["id"]] = waiter
            try:
                # The descriptors travel with the first bytes; what did not fit follows.
                sent = socket.send_fds(self._socket, [message], descriptors)
                self._socket.sendall(message[sent:])
            except OSError:
                self._waiters.pop(request["id"], None) if waiter is not None else None
                raise ProcessLost from None

    def end(self) -> None:
        """Have everything killed, and wait until it is."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(FAREWELL_S)

    def let_go(self) -> None:
        """Close our copy of the socket without ending anything."""
        os.close(self._socket.detach())

    def _listen(self) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while data := self._socket.recv(65536):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
        self._on_exit()

    def _hear(self, message: dict[str, Any]) -> None:
        mark = message["id"]
        with self._lock:
            done = message["is"] != "started"
            waiter = self._waiters.pop(mark, None) if done else self._waiters.get(mark)
        if waiter is None:
            return
        match message["is"]:
            case "started":
                waiter.settle(waiter.started, message["pid"])
            case "refused":
                code = message["errno"]
                waiter.settle(waiter.started, error=OSError(code, os.strerror(code), message["stage"]))
            case _:
                figures = {name: value for name, value in message.items() if name not in ("is", "id")}
                waiter.settle(waiter.exited, Exit(**figures))

    def _on_exit(self) -> None:
        """The keeper is gone, and with it every warden, each of whom has ended its command first (reaper.py).

        They hold the other end of the socket, so its end is heard only when the last of them is gone.
        """
        with self._lock:
            self.lost = True
            waiters, self._waiters = self._waiters, {}
            self._socket.close()
        self._keeper.wait()
        for waiter in waiters.values():
            waiter.settle(waiter.started, error=ProcessLost())
            waiter.settle(waiter.exited, error=ProcessLost())


_lines: list[_SupervisorConnection] = []  # at most one; a list, so that a forked copy of this process can forget it
_lines_lock = threading.Lock()


def _send_spawn(request: dict[str, Any], descriptors: Sequence[int], waiter: _Waiter) -> _SupervisorConnection:
    """To the keeper, or to a new one if the old one is found dead before it could have heard anything."""
    for attempt in itertools.count():
        with _lines_lock:
            if not _lines or _lines[0].lost:
                _lines[:] = [_SupervisorConnection()]
            line = _lines[0]
        try:
            line.send(request, descriptors, waiter)
        except ProcessLost:
            if attempt:
                raise
            line.lost = True
        else:
            return line
    raise AssertionError


def keeper_pid() -> int | None:
    """The process that keeps this one's subprocesses, once there is one."""
    return _lines[0].keeper_pid if _lines else None


def _forget_keeper() -> None:
    """In a forked copy: the keeper belongs to the original, and a copy of its socket must not pass for the engine."""
    global _lines_lock  # noqa: PLW0603 — another thread may have held it at the moment of the fork
    _lines_lock = threading.Lock()
    for line in _lines:
        line.let_go()
    _lines.clear()


def _end_keeper() -> None:
    for line in _lines:
        line.end()


os.register_at_fork(after_in_child=_forget_keeper)
atexit.register(_end_keeper)
