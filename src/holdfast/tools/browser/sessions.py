"""Who has what open: one browser for all executions, one context of its own for each.

Owns how many contexts there are, when one is let go of (its execution ended, it was cut off in the middle of something,
nobody used it for long) and when the browser itself is. A browser that crashed is replaced by the next call that needs
one. Refuses to keep anything over a restart: a page lives as long as its process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.errors import RateLimited, ToolError
from holdfast.tools.browser.chromium import Chromium
from holdfast.tools.browser.errors import Crashed, NoPage, NotThere, TimedOut, explained

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Request

PAGES_MAX = 5  # of one execution; a page that opens more has them closed at once
FULL_RETRY_S = 5.0  # when every context is taken
CLOSE_S_MAX = 5.0
TIDY_S_MAX = 10.0  # how often it is looked for what nobody uses


class Bounds(NamedTuple):
    contexts: int
    idle_s: float
    width: int
    height: int


class Visit:
    """What one execution has open. Its lock is held by whoever uses it: steps side by side share one page."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.used_at = asyncio.get_running_loop().time()
        self.chromium: Chromium | None = None
        self._context: BrowserContext | None = None
        self._pages: list[Page] = []
        self._in_use: Page | None = None
        self._grew = asyncio.Event()
        self._failed_url = ""  # where the main frame last wanted to go and did not arrive

    @property
    def is_open(self) -> bool:
        return self._context is not None and self.chromium is not None and not self.chromium.has_crashed

    async def open(self, chromium: Chromium, bounds: Bounds) -> None:
        self.chromium = chromium
        self._pages, self._in_use = [], None
        with self.explaining("open a page", CLOSE_S_MAX, late=TimedOut):
            await self._open(chromium, bounds)

    async def _open(self, chromium: Chromium, bounds: Bounds) -> None:
        self._context = await chromium.browser.new_context(
            viewport={"width": bounds.width, "height": bounds.height}, accept_downloads=False
        )
        self._context.on("page", self._opened)
        await self._context.new_page()

    def page(self) -> Page:
        """The one that opened last and is still there."""
        if not self._pages or not self.is_open:
            raise NoPage(
                "there is no page open: nothing was opened in this execution since its process started, or it was "
                "closed; give this step the `url` to begin with, or run browser.open before it"
            )
        self._in_use = self._pages[-1]
        return self._in_use

    async def ready_page(self) -> Page:
        """For somebody who goes elsewhere anyway: whatever page there is, or a new one."""
        if not self._pages and self._context is not None:
            await self._context.new_page()
        return self.page()

    async def follow(self, work: Callable[[Page], Coroutine[Any, Any, object]]) -> None:
        """Until it is done on the page that opened last, also if that one opens in the meantime."""
        while True:
            self._grew.clear()
            done, grew = asyncio.ensure_future(work(self.page())), asyncio.ensure_future(self._grew.wait())
            try:
                await asyncio.wait({done, grew}, return_when=asyncio.FIRST_COMPLETED)
                if done.done():
                    await done
                    return
            finally:
                for task in (done, grew):
                    task.cancel()
                await asyncio.gather(done, grew, return_exceptions=True)

    @contextmanager
    def explaining(
        self, doing: str, timeout_s: float, *, without_effect: bool = True, late: type[ToolError] = NotThere
    ) -> Generator[None]:
        try:
            yield
        except Exception as error:
            failed = self._failed_url
            trouble = self.chromium.proxy.trouble_with(failed) if failed and self.chromium is not None else None
            said = explained(
                error, doing, timeout_s=timeout_s, without_effect=without_effect, late=late, trouble=trouble
            )
            if isinstance(said, Crashed):
                self._on_exit()
            raise said from error

    def trouble(self) -> str:
        """Why the page that is shown is not the one that was wanted, as when a click led to where nobody may go."""
        trouble = self.chromium.proxy.trouble_with(self._failed_url) if self.chromium is not None else None
        return str(trouble or f"{self._failed_url or 'the page'} could not be loaded")

    def _on_exit(self) -> None:
        """If neither the page nor its context was closed, it is the browser that is gone, or Playwright's process."""
        was_closed = self._context is None or (self._in_use is not None and self._in_use not in self._pages)
        if self.chromium is not None and not was_closed:
            self.chromium.has_crashed = True

    def _opened(self, page: Page) -> None:
        if len(self._pages) >= PAGES_MAX:
            _spawn(page.close())
            return
        self._pages.append(page)
        self._grew.set()
        page.on("close", self._closed)
        page.on("crash", self._crashed)
        page.on("requestfailed", self._request_failed)

    def _closed(self, page: Page) -> None:
        if page in self._pages:
            self._pages.remove(page)

    def _crashed(self, page: Page) -> None:
        self._closed(page)
        _spawn(page.close())

    def _request_failed(self, request: Request) -> None:
        if request.is_navigation_request() and request.frame.parent_frame is None:
            self._failed_url = request.url

    async def close(self) -> None:
        context, self._context = self._context, None
        self._pages = []
        if context is not None and self.chromium is not None and not self.chromium.has_crashed:
            with contextlib.suppress(Exception):  # it may be gone already
                async with asyncio.timeout(CLOSE_S_MAX):
                    await context.close()


class Visits:
    def __init__(self, make: Callable[[], Chromium], bounds: Bounds) -> None:
        self._make = make
        self._bounds = bounds
        self._visits: dict[str, Visit] = {}
        self._chromium: Chromium | None = None
        self._starting: asyncio.Task[Chromium] | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def chromium(self) -> Chromium | None:
        return self._chromium

    @property
    def count(self) -> int:
        return len(self._visits)

    @asynccontextmanager
    async def of(self, who: str, *, begin: bool) -> AsyncGenerator[Visit]:
        """What an execution has open, for one caller at a time. `begin`: something is opened if nothing is."""
        while True:
            visit = self._visits.get(who) or self._admit(who)
            visit.users += 1
            try:
                async with visit.lock:
                    if self._visits.get(who) is not visit:
                        continue  # it was cut while its lock was waited for: what is opened in it, nobody would count
                    if begin and not visit.is_open:
                        await visit.open(await self._running(), self._bounds)
                    yield visit
                    return
            finally:
                visit.users -= 1
                visit.used_at = asyncio.get_running_loop().time()
                self._tidy_up(who, visit)

    def _tidy_up(self, who: str, visit: Visit) -> None:
        is_counted = self._visits.get(who) is visit
        if is_counted and not visit.is_open and not visit.users:
            del self._visits[who]
        elif not is_counted and visit.is_open:  # it was cut while it was being opened
            self._close_soon(visit)

    def _admit(self, who: str) -> Visit:
        if len(self._visits) >= self._bounds.contexts:
            raise RateLimited(
                f"all {self._bounds.contexts} browser contexts are in use by other executions",
                retry_after_s=FULL_RETRY_S,
            )
        visit = self._visits[who] = Visit()
        return visit

    async def cut(self, who: str) -> None:
        """Close what an execution has open, whatever it is in the middle of."""
        visit = self._visits.pop(who, None)
        if visit is not None:
            await self._close_soon(visit)

    def forget(self, who: str) -> None:
        visit = self._visits.pop(who, None)
        if visit is not None:
            self._close_soon(visit)

    def _close_soon(self, visit: Visit) -> asyncio.Future[None]:
        task = asyncio.get_running_loop().create_task(visit.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return asyncio.shield(task)

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)
        self._visits.clear()
        if self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)
        chromium, self._chromium = self._chromium, None
        if chromium is not None:
            await chromium.close()

    # ---- the browser --------------------------------------------------------------------------------------------

    async def _running(self) -> Chromium:
        """The browser, started by whoever comes first; others wait for the same start."""
        if self._chromium is not None and not self._chromium.has_crashed:
            return self._chromium
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    async def _start(self) -> Chromium:
        crashed, self._chromium = self._chromium, None
        if crashed is not None:
            await crashed.close()
        chromium = self._make()
        await chromium.start()
        self._chromium = chromium
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.get_running_loop().create_task(self._tidy())
        return chromium

    def _started(self, task: asyncio.Task[Chromium]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have

    async def _tidy(self) -> None:
        """Close what nobody used for long, and at last the browser."""
        loop = asyncio.get_running_loop()
        used_at = loop.time()
        while True:
            await asyncio.sleep(min(self._bounds.idle_s / 2, TIDY_S_MAX))
            now = loop.time()
            for who, visit in list(self._visits.items()):
                if not visit.users and now - visit.used_at >= self._bounds.idle_s:
                    await self.cut(who)
            used_at = now if self._visits or self._starting is not None else used_at
            if now - used_at >= self._bounds.idle_s:
                chromium, self._chromium = self._chromium, None
                if chromium is not None:
                    await chromium.close()
                return


_errands: set[asyncio.Task[Any]] = set()


def _spawn(work: Any) -> None:
    """Something that nobody waits for, and whose failure means that it was done already."""

    async def do() -> None:
        with contextlib.suppress(Exception):
            await work

    task = asyncio.get_running_loop().create_task(do())
    _errands.add(task)
    task.add_done_callback(_errands.discard)
