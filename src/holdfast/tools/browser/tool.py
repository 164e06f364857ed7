"""`browser.*`: pages in a real browser. Open, click, type, wait, read out, take a picture.

Each execution has a context of its own (cookies, storage, pages) in one browser that all executions share. What only
looks is `read`; a click and what is typed are `once`, and are checked as far as possible before they are made, so that
most of their failures are known to be without effect. Every tool may be given a `url` to begin with.
"""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import AsyncGenerator, Awaitable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from holdfast.core.errors import InputInvalid, InvalidCall, Misconfigured, SettingsInvalid, Transient, Trouble
from holdfast.core.resources import DEFAULTS, Resources
from holdfast.tools.browser.chromium import Chromium, Memory, check_playwright, find_chromium
from holdfast.tools.browser.errors import TimedOut
from holdfast.tools.browser.pages import (
    ITEMS_MAX,
    Duration,
    Loaded,
    Seen,
    bounded,
    check_size,
    go,
    more_than_nothing,
    seen,
    too_large,
    within,
)
from holdfast.tools.browser.sessions import Bounds, Visit, Visits
from holdfast.tools.call import Call
from holdfast.tools.halved import halved
from holdfast.tools.net.address_policy import Reach, check_url
from holdfast.tools.tool import Tool, tool
from holdfast.tools.toolset import Adapter, ToolsetFolders

if TYPE_CHECKING:
    from playwright.async_api import Page

T = TypeVar("T")
TEXT_CHARS_MAX = 200_000  # what one extract brings, unless it says otherwise
PICTURE_BYTES_MAX = 10 * 1024 * 1024
MEMORY_MB_MIN = 512  # no browser lives with less
State = Literal["attached", "visible", "hidden"]
_READ_OUT = """(elements, [attribute, items, chars]) => elements.slice(0, items).map(element => {
  const linked = attribute === "href" || attribute === "src"
  const value = !attribute ? (element.innerText ?? element.textContent)
    : linked && typeof element[attribute] === "string" ? element[attribute] : element.getAttribute(attribute)
  return value === null || value === undefined ? null : String(value).slice(0, chars)
})"""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    executable: str = ""  # a name on PATH or a path; Chromium or Chrome, wherever it is found, if empty
    allow: tuple[str, ...] = ()  # what may be reached although it is not a public address
    timeout: str = "30s"  # for a page to load and for an element to appear, unless a call says otherwise
    contexts: int = 8  # executions that have pages open at the same time; the others wait their turn
    idle: str = "5m"  # after which a context that nobody uses is closed, and at last the browser
    heap_mb: int = 512  # for the scripts of one page
    memory_mb: int | None = None  # for the browser with all its pages; beyond that, the page with the most is ended
    width: int = 1280
    height: int = 800


class Opened(Seen):
    status: int | None


class Extracted(Seen):
    """`text` is what was found, one element after the other; `items` holds each by itself."""

    text: str
    items: list[str | None]
    truncated: bool


class Picture(Seen):
    width: int
    height: int
    bytes: int
    base64: str


class _At(NamedTuple):
    visit: Visit
    page: Page
    timeout_s: float

    @property
    def timeout_ms(self) -> float:
        return self.timeout_s * 1000


class Browser(Adapter):
    """Pages in a real browser."""

    Config = Config

    def __init__(self, config: Config, place: ToolsetFolders) -> None:
        super().__init__(config, place)
        try:
            self._timeout_s = more_than_nothing(config.timeout, "timeout")
            bounds = Bounds(config.contexts, more_than_nothing(config.idle, "idle"), config.width, config.height)
            reach = Reach(config.allow, "tools.browser.allow")
        except (InputInvalid, SettingsInvalid) as error:
            raise SettingsInvalid(f"tools.browser.{error}") from None
        for name, least in (
            ("contexts", 1),
            ("heap_mb", 16),
            ("memory_mb", MEMORY_MB_MIN),
            ("width", 1),
            ("height", 1),
        ):
            given = getattr(config, name)
            if given is not None and given < least:
                raise SettingsInvalid(f"tools.browser.{name}: expected at least {least}, got {given}")
        memory = Memory(config.heap_mb, config.memory_mb or _memory_mb(place.resources))
        self.visits = Visits(lambda: Chromium(config.executable, memory, reach), bounds)

    def tools(self) -> Sequence[Tool[..., Any]]:
        def read(name: str, method: Any, judge: Any = self._judge, **said: Any) -> Tool[..., Any]:
            return tool(name=f"browser.{name}", effect="read", judge=judge, **said)(method)

        return (
            read("open", self.open_page),
            tool(name="browser.click", effect="once", judge=self._judge)(self.click),
            tool(name="browser.type", effect="once", judge=self._judge)(self.type_text),
            read("wait", self.wait, self._judge_wait),
            read("extract", self.extract, reduce=halved("max_chars", TEXT_CHARS_MAX)),
            read("screenshot", self.screenshot, self._judge_picture),
            read("close", self.close_page),
        )

    async def health(self) -> None:
        check_playwright()
        find_chromium(self.config.executable)

    def missing(self, tool: str) -> Sequence[Trouble]:
        found: list[Trouble] = []
        for check in (check_playwright, lambda: find_chromium(self.config.executable)):
            try:
                check()
            except Misconfigured as error:
                found.append(Trouble.of(error))
        return found

    def troubles(self) -> Sequence[Trouble]:
        """Without settings nobody has asked for a browser."""
        return self.missing("") if self.config != Config() else ()

    def forget(self, execution_id: str) -> None:
        self.visits.forget(execution_id)

    async def close(self) -> None:
        await self.visits.close()

    # ---- what can be judged before a step runs ------------------------------------------------------------------

    def _judge(self, known: Mapping[str, Any], later: Collection[str]) -> None:
        if known.get("url") is not None:
            check_url(known["url"])
        self._limit(known.get("timeout"))

    def _judge_wait(self, known: Mapping[str, Any], later: Collection[str]) -> None:
        self._judge(known, later)
        _check_wanted(known, later)

    def _judge_picture(self, known: Mapping[str, Any], later: Collection[str]) -> None:
        self._judge(known, later)
        _check_picture(known.get("whole", False), known.get("selector"))

    # ---- the tools ----------------------------------------------------------------------------------------------

    async def open_page(
        self, url: str, call: Call, until: Loaded = "load", timeout: Duration | None = None  # noqa: ASYNC109
    ) -> Opened:  # fmt: skip
        """Open a page and wait until it is loaded. It stays open for the later steps of the execution."""
        timeout_s = self._limit(timeout)
        check_url(url)
        async with self.visits.of(call.execution_id, begin=True) as visit:
            status = await go(visit, url, until, timeout_s)
            return {**await seen(await visit.ready_page()), "status": status}

    async def click(
        self,
        selector: str,
        call: Call,
        url: str | None = None,
        clicks: Annotated[int, Meta(ge=1, le=3)] = 1,
        timeout: Duration | None = None,  # noqa: ASYNC109
    ) -> Seen:
        """Click on the one element that fits, once it can be clicked on."""
        async with self._at(call, url, timeout) as at:
            element = at.page.locator(selector)
            with at.visit.explaining(f'click "{selector}"', at.timeout_s):
                await within(at.timeout_s, element.click(trial=True, timeout=at.timeout_ms))
            with at.visit.explaining(f'click "{selector}"', at.timeout_s, without_effect=False, late=TimedOut):
                await self._once(call, element.click(click_count=clicks, timeout=at.timeout_ms))
            return await seen(at.page)

    async def type_text(  # noqa: PLR0917 -- one parameter per thing typing may have
        self,
        selector: str,
        text: str,
        call: Call,
        url: str | None = None,
        keys: bool = False,
        submit: bool = False,
        timeout: Duration | None = None,  # noqa: ASYNC109
    ) -> Seen:
        """Put a text into the one field that fits, in place of what it holds. `submit` presses Enter afterwards.

        `keys` types key by key, for pages that listen to each.
        """
        async with self._at(call, url, timeout) as at:
            field = at.page.locator(selector)
            with at.visit.explaining(f'type into "{selector}"', at.timeout_s):
                await within(at.timeout_s, field.wait_for(state="visible", timeout=at.timeout_ms))
                if not await within(at.timeout_s, field.is_editable(timeout=at.timeout_ms)):
                    raise InvalidCall(f'type into "{selector}": the field is disabled or only to be read')

            async def act() -> None:
                await field.fill("" if keys else text, timeout=at.timeout_ms)
                if keys:
                    await field.press_sequentially(text, timeout=at.timeout_ms)
                if submit:
                    await field.press("Enter", timeout=at.timeout_ms)

            with at.visit.explaining(f'type into "{selector}"', at.timeout_s, without_effect=False, late=TimedOut):
                await self._once(call, act())
            return await seen(at.page)

    async def wait(  # noqa: PLR0913, PLR0917 -- one parameter per thing to wait for
        self,
        call: Call,
        selector: str | None = None,
        state: State = "visible",
        text: str | None = None,
        address: str | None = None,
        quiet: bool = False,
        url: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109
    ) -> Seen:
        """Wait for an element to be attached, visible or hidden, for a text, for the page's address, or for quiet.

        `address` is a pattern such as `**/done`. The network is quiet when nothing was asked of it for half a second.
        """
        _check_wanted({"selector": selector, "text": text, "address": address, "quiet": quiet})
        async with self._at(call, url, timeout) as at:
            ms = at.timeout_ms

            def waiting(page: Page) -> Coroutine[Any, Any, Any]:
                if selector is not None:
                    return page.locator(selector).first.wait_for(state=state, timeout=ms)
                if text is not None:
                    return page.get_by_text(text).first.wait_for(timeout=ms)
                if address is not None:
                    return page.wait_for_url(address, timeout=ms, wait_until="commit")
                return page.wait_for_load_state("networkidle", timeout=ms)

            if selector is not None:
                doing = f'wait until "{selector}" is {state}'
            else:
                doing = f'wait for the text "{text}"' if text is not None else f"wait for the address {address}"
            with at.visit.explaining("wait for a quiet network" if quiet else doing, at.timeout_s):
                await within(at.timeout_s, at.visit.follow(waiting))
            return await seen(at.visit.page())

    async def extract(
        self,
        call: Call,
        selector: str = "body",
        attribute: str = "",
        url: str | None = None,
        max_chars: Annotated[int, Meta(ge=1)] = TEXT_CHARS_MAX,
        timeout: Duration | None = None,  # noqa: ASYNC109
    ) -> Extracted:
        """The text of every element that fits, or one of their attributes, such as `href`."""
        async with self._at(call, url, timeout) as at:
            found = at.page.locator(selector)
            with at.visit.explaining(f'extract "{selector}"', at.timeout_s):
                await within(at.timeout_s, found.first.wait_for(state="attached", timeout=at.timeout_ms))
                asked = [attribute, ITEMS_MAX + 1, max_chars + 1]
                items: list[str | None] = await within(at.timeout_s, found.evaluate_all(_READ_OUT, asked))
            kept, truncated = bounded(items, max_chars)
            text = "\n".join(item for item in kept if item is not None)
            return {**await seen(at.page), "text": text, "items": kept, "truncated": truncated}

    async def screenshot(
        self,
        call: Call,
        selector: str | None = None,
        whole: bool = False,
        url: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109
    ) -> Picture:
        """A picture (PNG) of what can be seen, of one element, or of the `whole` page."""
        _check_picture(whole, selector)
        async with self._at(call, url, timeout) as at:
            page = at.page
            with at.visit.explaining("screenshot", at.timeout_s):
                if selector is not None:
                    taken = page.locator(selector).screenshot(animations="disabled", timeout=at.timeout_ms)
                else:
                    await check_size(page, at.timeout_s, whole)
                    taken = page.screenshot(full_page=whole, animations="disabled", timeout=at.timeout_ms)
                picture = await within(at.timeout_s, taken)
            if len(picture) > PICTURE_BYTES_MAX:
                raise too_large(f"it has {len(picture):,} bytes, {PICTURE_BYTES_MAX:,} are kept")
            width, height = struct.unpack(">II", picture[16:24])  # where every PNG says so
            encoded = base64.b64encode(picture).decode()
            shown = await seen(page)
        return {**shown, "width": width, "height": height, "bytes": len(picture), "base64": encoded}

    async def close_page(self, call: Call) -> None:
        """Close what the execution has open, its cookies included. What is left open is closed with the execution."""
        await self.visits.cut(call.execution_id)

    # ---- around them --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _at(self, call: Call, url: str | None, timeout: Duration | None) -> AsyncGenerator[_At]:  # noqa: ASYNC109
        """The page to work on: a new one if there is a `url`, or else the one that is open."""
        timeout_s = self._limit(timeout)
        if url is not None:
            check_url(url)
        async with self.visits.of(call.execution_id, begin=url is not None) as visit:
            if url is not None:
                await go(visit, url, "load", timeout_s)
            page = visit.page()
            if page.url.startswith("chrome-error:"):
                raise Transient(f"there is no page to work on: {visit.trouble()}", without_effect=True)
            yield _At(visit, page, timeout_s)

    async def _once(self, call: Call, act: Awaitable[T]) -> T:
        """What is cut off in the middle must not go on behind our back: the page is closed."""
        try:
            return await act
        except asyncio.CancelledError:
            await self.visits.cut(call.execution_id)
            raise

    def _limit(self, given: Duration | None) -> float:
        if given is None:
            return self._timeout_s
        try:
            return more_than_nothing(given, "timeout")
        except InputInvalid as error:
            raise InvalidCall(str(error)) from None


def _check_wanted(known: Mapping[str, Any], later: Collection[str] = ()) -> None:
    """One thing to wait for; one whose value comes later may be it."""
    names = ("selector", "text", "address", "quiet")
    given = [name for name in names if known.get(name) is not None and known[name] is not False]
    if len(given) > 1 or not (given or set(names) & set(later)):
        raise InvalidCall(f"expected one of selector, text, address and quiet, got {' and '.join(given) or 'none'}")


def _check_picture(whole: bool, selector: str | None) -> None:
    if whole and selector is not None:
        raise InvalidCall("a picture is of the whole page or of one element: give only one of whole and selector")


def _memory_mb(resources: Resources) -> int:
    """Where its own settings say nothing: what anything may use here. That may be meant for something smaller."""
    return max((resources.over(DEFAULTS).memory_bytes or 0) >> 20, MEMORY_MB_MIN)
