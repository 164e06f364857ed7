"""What the browser tools do to a page: going there in time, saying where it is, keeping what it says in bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

from holdfast.core.durations import parse_duration
from holdfast.core.errors import InputInvalid, InvalidCall, ToolError
from holdfast.tools.browser.errors import TimedOut, refused_status
from holdfast.tools.browser.sessions import Visit

if TYPE_CHECKING:
    from playwright.async_api import Page

T = TypeVar("T")
ITEMS_MAX = 1000  # elements one extract looks at
PICTURE_PIXELS_MAX = 50_000_000  # of a whole page: the browser holds four bytes for each
TITLE_S_MAX = 2.0  # for a page that is busy with itself
Duration = float | str
Loaded = Literal["commit", "domcontentloaded", "load", "networkidle"]
_SIZE = "() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"


class Seen(TypedDict):
    url: str
    title: str


async def go(visit: Visit, url: str, until: Loaded, timeout_s: float) -> int | None:
    with visit.explaining(f"open {url}", timeout_s, late=TimedOut):
        page = await visit.ready_page()
        response = await within(timeout_s, page.goto(url, wait_until=until, timeout=timeout_s * 1000))
    if response is None:
        return None
    refused = refused_status(url, response.status, response.headers.get("retry-after", ""))
    if refused is not None:
        raise refused
    return response.status


async def within(timeout_s: float, work: Awaitable[T]) -> T:
    """Playwright keeps its own time, and says more about what it waited for; this is for pages that never answer."""
    async with asyncio.timeout(timeout_s + 1):
        return await work


async def seen(page: Page) -> Seen:
    """Where the page is now. One that is on its way elsewhere has no title yet."""
    title = ""
    try:
        async with asyncio.timeout(TITLE_S_MAX):
            title = await page.title()
    except Exception:  # what was asked for is done by now, and must not fail for its title
        pass
    return {"url": page.url, "title": title}


async def check_size(page: Page, timeout_s: float, whole: bool) -> None:
    if whole:
        width, height = await within(timeout_s, page.evaluate(_SIZE))
        if width * height > PICTURE_PIXELS_MAX:
            raise too_large(f"it is {width} × {height} pixels")


def too_large(why: str) -> ToolError:
    return InvalidCall(f"the picture would be too large: {why}; take one element, or what can be seen")


def bounded(items: list[str | None], max_chars: int) -> tuple[list[str | None], bool]:
    kept: list[str | None] = []
    left = max_chars
    for item in items[:ITEMS_MAX]:
        size = len(item or "")
        if size > left:
            return [*kept, (item or "")[:left]], True
        kept.append(item)
        left -= size
    return kept, len(items) > ITEMS_MAX


def more_than_nothing(given: Duration, name: str) -> float:
    try:
        seconds = parse_duration(given)
    except InputInvalid as error:
        raise InputInvalid(f"{name}: {error}") from None
    if seconds == 0:
        raise InputInvalid(f"{name}: expected more than 0 seconds")
    return seconds
