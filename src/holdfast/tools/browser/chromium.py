"""One running Chromium: found by name, started quietly with a profile of its own, and gone with the engine.

Owns the browser's process, its profile folder, its proxy and the connection to it. Chromium is started by the keeper of
subprocesses (processes.py), so that it dies with this process even by SIGKILL; Playwright only talks to it. Refuses to
know anything about pages.

Playwright is imported when the first page is opened: nobody who opens none pays for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.errors import Misconfigured, ToolError, Transient
from holdfast.core.resources import Resources
from holdfast.tools.browser.pipes import Handover
from holdfast.tools.browser.proxy import BrowserProxy
from holdfast.tools.net.address_policy import Reach
from holdfast.tools.processes.spawn import Exit, Lasting, Process, spawn

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
START_S_MAX = 30.0
STOP_S_MAX = 5.0
STDERR_LINES_KEPT = 20
LINE_BYTES_MAX = 64 * 1024
PAGE = "--type=renderer"  # in the command line of the processes that pages live in
PROFILE = "holdfast-browser-"
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "FONTCONFIG_FILE", "FONTCONFIG_PATH", "LD_LIBRARY_PATH")
_FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",  # it would go around the proxy
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # and so would this
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # names are looked up by the proxy alone
    "--proxy-bypass-list=<-loopback>",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-domain-reliability",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--disable-dev-shm-usage",  # small in containers, and a page that fills it would crash
    "--disable-popup-blocking",  # what opens is counted, and closed when it is too much
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
    "--remote-debugging-pipe",  # and no port, which every program of the machine could find
    "--no-startup-window",
)


def find_chromium(executable: str) -> str:
    """The path of the browser; `Misconfigured` says what to install."""
    if executable:
        found = shutil.which(executable)
        if found is None:
            raise Misconfigured(
                f'no browser called "{executable}" can be run',
                todo="correct executable in [tools.browser], or install it",
            )
        return found
    for name in NAMES:
        if found := shutil.which(name):
            return found
    raise Misconfigured(
        f"no browser is on PATH (looked for {', '.join(NAMES)})",
        todo="install Chromium, such as with `apt install chromium`, or name one as executable in [tools.browser]",
    )


def check_playwright() -> None:
    if importlib.util.find_spec("playwright") is None:
        raise Misconfigured(
            "the browser tools need the Python package playwright", todo="install it: pip install playwright"
        )


class Memory(NamedTuple):
    """What a browser may take, in MiB."""

    heap_mb: int  # for the scripts of one page
    all_mb: int  # for everything


class Chromium:
    """`browser` is Playwright's handle of it."""

    def __init__(self, executable: str, memory: Memory, reach: Reach) -> None:
        self._executable = executable
        self._memory = memory
        self.proxy = BrowserProxy(reach)
        self.browser: Browser
        self._playwright: Playwright | None = None
        self._process: Process | None = None
        self._handover: Handover | None = None
        self._profile = ""
        self._said: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
        self._listening: asyncio.Task[None] | None = None
        self.has_crashed = False

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Everything or nothing: what was begun is let go of again if the rest fails."""
        check_playwright()
        program = find_chromium(self._executable)
        try:
            async with asyncio.timeout(START_S_MAX):
                await self._start(program)
        except TimeoutError:
            await self.close()
            raise Transient(f"{program} was not ready within {START_S_MAX:g} s", without_effect=True) from None
        except BaseException:
            await self.close()
            raise

    async def _start(self, program: str) -> None:
        self._profile = await asyncio.to_thread(_new_profile)
        proxy_port = await self.proxy.start()
        sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()  # root cannot have one
        own = (
            f"--user-data-dir={self._profile}",
            f"--proxy-server=http://127.0.0.1:{proxy_port}",
            f"--js-flags=--max-old-space-size={self._memory.heap_mb}",
        )
        argv = [program, *_FLAGS, *own, *sandbox]
        handover = self._handover = Handover(self._profile)
        await asyncio.to_thread(handover.prepare)
        from playwright.async_api import async_playwright

        self._playwright = await async_playwright().start()
        connecting = asyncio.create_task(self._connect(self._playwright, handover))
        receiving = asyncio.create_task(handover.descriptors())
        try:
            await asyncio.wait((connecting, receiving), return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():  # before it had anybody to connect to: it failed
                await connecting
            await self._spawn(argv, await receiving)
            await self._connected(program, connecting)
        finally:
            for task in (connecting, receiving):
                task.cancel()
            await asyncio.gather(connecting, receiving, return_exceptions=True)
        self.browser.on("disconnected", self._disconnected)

    async def _connect(self, playwright: Playwright, handover: Handover) -> None:
        self.browser = await playwright.chromium.launch(
            executable_path=handover.program,
            env=dict(_environment(self._profile)),
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )

    async def _spawn(self, argv: list[str], pipes: list[int]) -> None:
        limits = Lasting(Resources(memory_bytes=self._memory.all_mb << 20), victims=PAGE)
        try:
            self._process = await spawn(
                argv, cwd=self._profile, env=_environment(self._profile), more=pipes, resources=limits
            )
        finally:
            for descriptor in pipes:
                os.close(descriptor)
        self._listening = asyncio.create_task(self._listen(self._process))

    async def _connected(self, program: str, connecting: asyncio.Task[None]) -> None:
        assert self._process is not None
        ended = asyncio.create_task(self._process.wait())
        await asyncio.wait((connecting, ended), return_when=asyncio.FIRST_COMPLETED)
        if ended.done() and self._listening is not None:
            await self._listening
            said = "".join(list(self._said)[-5:])
            raise Misconfigured(f"{program} ended with code {ended.result().code} instead of starting:\n{said}")
        ended.add_done_callback(self._ended)
        await connecting

    def _ended(self, ended: asyncio.Task[Exit]) -> None:
        """Or Playwright would wait for the end of whom it has started."""
        if not ended.cancelled():
            ended.exception()  # nobody else asks
        if self._handover is not None:
            self._handover.close()

    async def _listen(self, process: Process) -> None:
        """It writes warnings as long as it lives, and must not stop because nobody reads them."""
        while line := await _line(process.stderr):
            self._said.append(line)

    def _disconnected(self, _: object = None) -> None:
        self.has_crashed = True

    async def close(self) -> None:
        """Let go of all of it; nothing here may fail, since it is also the way out of failures."""
        playwright, self._playwright = self._playwright, None
        if playwright is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(STOP_S_MAX):
                    await playwright.stop()
        if self._process is not None:
            self._process.close()
            with contextlib.suppress(ToolError):
                await self._process.wait()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._handover is not None:
            self._handover.close()
        await self.proxy.close()
        if self._profile:
            await asyncio.to_thread(shutil.rmtree, self._profile, ignore_errors=True)


async def _line(stream: asyncio.StreamReader) -> str:
    """A line with its end, cut where it is far too long; "" at the end."""
    try:
        piece = await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as rest:
        piece = rest.partial
    except asyncio.LimitOverrunError:
        piece = await stream.read(LINE_BYTES_MAX)
    return piece.decode(errors="replace")


def _environment(profile: str) -> dict[str, str]:
    """Nothing of this process's secrets, and no home but its own."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "HOME": profile, "DBUS_SESSION_BUS_ADDRESS": "disabled:"}


def _new_profile() -> str:
    """A fresh folder, named after this process; those of processes that were killed are cleared away."""
    folder = Path(tempfile.gettempdir())
    for old in folder.glob(f"{PROFILE}*"):
        owner = old.name.removeprefix(PROFILE).partition("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)) and old.is_dir() and not old.is_symlink():
            with contextlib.suppress(OSError):
                if old.stat().st_uid == os.geteuid():
                    shutil.rmtree(old, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{PROFILE}{os.getpid()}-")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
