"""The browser tools in a real Chromium, against pages on loopback: what they do, and what every failure is called."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import os
import signal
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.core.errors import (
    InvalidCall,
    Misconfigured,
    NotPermitted,
    RateLimited,
    SettingsInvalid,
    ToolError,
    Transient,
)
from holdfast.core.failure import describe
from holdfast.core.resources import Resources
from holdfast.tools.browser.errors import Crashed, NoPage, NotThere, TimedOut
from holdfast.tools.browser.tool import Browser, Config
from holdfast.tools.call import Call
from holdfast.tools.processes import proc_tree
from holdfast.tools.toolset import HERE, ToolsetFolders
from servers.pages import Site, needs_browser, served

pytestmark = [needs_browser, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served() as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(site: Site) -> AsyncIterator[Browser]:
    """Allowed to reach the site and nothing else of this machine."""
    made = Browser(Config(allow=(f"127.0.0.1:{site.server_port}",), timeout="10s"), HERE)
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wide() -> AsyncIterator[Browser]:
    """Allowed to reach all of this machine, for one execution at a time."""
    made = Browser(Config(allow=("127.0.0.0/8", "localhost"), contexts=1), HERE)
    yield made
    await made.close()


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nothing_left_open(browser: Browser, wide: Browser, site: Site) -> AsyncIterator[None]:
    yield
    site.begin.clear()
    for who in ("execution", "other"):
        await browser.visits.cut(who)
        await wide.visits.cut(who)


async def do(browser: Browser, name: str, who: str = "execution", **arguments: Any) -> Any:
    """As a step does it: validate, call, check the output."""
    (tool,) = [tool for tool in browser.tools() if tool.name == f"browser.{name}"]
    value = await tool.invoke(tool.validate(arguments), Call(who, "step", 1, "key", Path()))
    tool.output(value)
    return value


async def fails(browser: Browser, name: str, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await do(browser, name, **arguments)
    return caught.value


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")


async def wait_until(what: Any) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


# ---- what they do ----------------------------------------------------------------------------------------------------


async def test_a_page_stays_open_for_the_steps_after_it(browser: Browser, site: Site) -> None:
    opened = await do(browser, "open", url=f"{site.url}/moved")
    assert opened == {"url": f"{site.url}/hello", "title": "Hello", "status": 200}
    found = await do(browser, "extract", selector=".a")
    assert found["items"] == ["one", "two"]
    assert (found["text"], found["truncated"]) == ("one\ntwo", False)
    assert await do(browser, "click", selector="text=to the form") == {"url": f"{site.url}/form", "title": "Form"}
    typed = await do(browser, "type", selector="#name", text="Ada & Bo", submit=True)
    assert typed["url"].startswith(site.url)
    await do(browser, "wait", address="**/sent?*")
    assert (await do(browser, "extract", selector="#what"))["text"] == "name=Ada+%26+Bo"


async def test_every_tool_can_begin_with_an_address_of_its_own(browser: Browser, site: Site) -> None:
    links = await do(browser, "extract", url=f"{site.url}/hello", selector="a", attribute="href")
    assert links["items"] == [f"{site.url}/form", "http://10.255.255.1/"]
    assert (await do(browser, "extract", selector="p", attribute="id"))["items"] == [None, None]
    await do(browser, "type", url=f"{site.url}/form", selector="#name", text="er", keys=True)
    await do(browser, "click", selector="#go")
    assert (await do(browser, "wait", selector="#what"))["title"] == "Sent"
    assert (await do(browser, "extract"))["text"] == "name=er"


async def test_waiting_for_what_a_page_becomes(browser: Browser, site: Site) -> None:
    waits: list[dict[str, Any]] = [
        {"selector": "#late"},
        {"selector": "#late", "state": "attached"},
        {"selector": "#gone", "state": "hidden"},
        {"text": "late text"},
        {"address": "**/slow/done"},
        {"quiet": True},
    ]
    for wait in waits:
        assert (await do(browser, "wait", url=f"{site.url}/slow", **wait))["title"] == "Slow"


async def test_a_picture_is_of_what_can_be_seen_of_an_element_or_of_the_whole_page(
    browser: Browser, site: Site
) -> None:
    seen = await do(browser, "screenshot", url=f"{site.url}/hello")
    assert (seen["width"], seen["height"]) == (1280, 800)
    assert len(picture := base64.b64decode(seen["base64"])) == seen["bytes"]
    assert picture.startswith(b"\x89PNG")
    assert (await do(browser, "screenshot", selector="h1"))["height"] < 100
    assert (await do(browser, "screenshot", whole=True))["width"] == 1280
    error = await fails(browser, "screenshot", url=f"{site.url}/tall", whole=True)
    assert str(error) == (
        "the picture would be too large: it is 2008 × 100016 pixels; take one element, or what can be seen"
    )
    error = await fails(browser, "screenshot", whole=True, selector="h1")
    assert "give only one of whole and selector" in str(error)


async def test_what_is_extracted_is_bounded_and_says_so(browser: Browser, site: Site) -> None:
    cut = await do(browser, "extract", url=f"{site.url}/hello", selector=".a", max_chars=5)
    assert (cut["items"], cut["truncated"]) == (["one", "tw"], True)


async def test_executions_see_nothing_of_each_other(browser: Browser, site: Site) -> None:
    assert (await do(browser, "open", url=f"{site.url}/cookie"))["title"] == "none"
    assert (await do(browser, "open", url=f"{site.url}/cookie"))["title"] == "me=known"
    assert (await do(browser, "open", who="other", url=f"{site.url}/cookie"))["title"] == "none"


async def test_steps_side_by_side_share_one_page_and_take_turns(browser: Browser, site: Site) -> None:
    async def title(name: str) -> str:
        return (await do(browser, "extract", url=f"{site.url}/{name}", selector="body"))["title"]

    names = ["hello", "form", "tall", "hello", "form"]
    assert await asyncio.gather(*map(title, names)) == ["Hello", "Form", "Tall", "Hello", "Form"]


async def test_a_new_window_is_the_page_from_then_on_and_there_are_only_so_many(browser: Browser, site: Site) -> None:
    await do(browser, "click", url=f"{site.url}/blank", selector="#new")
    assert (await do(browser, "wait", text="Good morning"))["title"] == "Hello"
    await do(browser, "click", url=f"{site.url}/popups", selector="button")
    assert browser.visits.chromium is not None
    (context,) = browser.visits.chromium.browser.contexts[-1:]
    await wait_until(lambda: len(context.pages) <= 5)


async def test_closing_a_page_closes_its_cookies_too(browser: Browser, site: Site) -> None:
    await do(browser, "open", url=f"{site.url}/cookie")
    await do(browser, "close")
    await do(browser, "close")
    assert (await do(browser, "open", url=f"{site.url}/cookie"))["title"] == "none"


# ---- what goes wrong -------------------------------------------------------------------------------------------------


async def test_without_a_page_a_step_says_so_and_what_to_do(browser: Browser) -> None:
    for name, arguments in (("click", {"selector": "a"}), ("extract", {}), ("wait", {"quiet": True})):
        error = await fails(browser, name, **arguments)
        assert isinstance(error, NoPage)
        assert str(error) == (
            "there is no page open: nothing was opened in this execution since its process started, or it was closed; "
            "give this step the `url` to begin with, or run browser.open before it"
        )
        assert describe(error).happened == "nothing"
    assert browser.visits.count == 0


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "said"),
    [
        ("open", {"url": "ftp://example.org"}, InvalidCall, 'url: expected an address such as "https://example.org"'),
        ("open", {"url": "file:///etc/passwd"}, InvalidCall, 'got "file:///etc/passwd"'),
        ("open", {"url": "{site}/404"}, ToolError, "/404 answered 404"),
        ("open", {"url": "{site}/403"}, NotPermitted, "answered 403; the page needs a sign-in"),
        ("open", {"url": "{site}/500"}, Transient, "answered 500"),
        ("open", {"url": "{site}/429"}, RateLimited, "answered 429"),
        ("open", {"url": "{site}/loop"}, ToolError, "redirects without end"),
        ("open", {"url": "{site}/download"}, ToolError, "fetch it with http.get"),
        ("open", {"url": "http://127.0.0.1:1/"}, InvalidCall, "ERR_UNSAFE_PORT"),
        ("open", {"url": "{site}/never", "timeout": "0.2s"}, TimedOut, "/never: not within 0.2 s"),
        ("open", {"url": "{site}/hello", "timeout": 0}, InvalidCall, "timeout: expected more than 0 seconds"),
        ("open", {"url": "{site}/hello", "timeout": "soon"}, InvalidCall, 'timeout: expected a duration such as'),
        ("click", {"at": "hello", "selector": "#nope", "timeout": 0.3}, NotThere, "not within 0.3 s"),
        ("click", {"at": "form", "selector": "#off", "timeout": 0.3}, NotThere, "0.3 s; it is disabled"),
        ("click", {"at": "covered", "selector": "#under", "timeout": 0.3}, NotThere, "another element lies"),
        ("click", {"at": "hello", "selector": ".a"}, InvalidCall, "2 elements fit; say which"),
        ("click", {"at": "hello", "selector": "[["}, InvalidCall, "the selector cannot be read"),
        ("type", {"at": "form", "selector": "#fixed", "text": "x"}, InvalidCall, "only to be read"),
        ("type", {"at": "form", "selector": "#no", "text": "x", "timeout": 0.3}, NotThere, "not within"),
        ("wait", {"at": "hello", "text": "no such", "timeout": 0.3}, NotThere, 'wait for the text "no such"'),
        ("wait", {"at": "hello"}, InvalidCall, "expected one of selector, text, address and quiet, got none"),
        ("extract", {"at": "hello", "selector": "#no", "timeout": 0.3}, NotThere, 'extract "#no": not within'),
    ],
)  # fmt: skip
async def test_every_failure_has_its_category_and_was_without_effect(
    browser: Browser, site: Site, name: str, arguments: dict[str, Any], kind: type[ToolError], said: str
) -> None:
    if "at" in arguments:
        arguments = dict(arguments)
        await do(browser, "open", url=f"{site.url}/{arguments.pop('at')}")
    elif "url" in arguments:
        arguments = {**arguments, "url": arguments["url"].replace("{site}", site.url)}
    error = await fails(browser, name, **arguments)
    assert type(error) is kind
    assert said in str(error)
    assert describe(error).happened in ("nothing", "unknown" if name == "open" else "nothing")


async def test_a_page_that_spins_is_given_up_in_time(browser: Browser, site: Site) -> None:
    await do(browser, "open", url=f"{site.url}/busy")
    site.begin.set()
    await wait_until(lambda: "/begun" in site.seen)
    error = await fails(browser, "extract", timeout=0.2)
    assert isinstance(error, NotThere)
    await do(browser, "close")
    assert (await do(browser, "open", url=f"{site.url}/hello"))["title"] == "Hello"


async def test_a_certificate_that_nobody_vouches_for_is_refused(wide: Browser) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).parents[2] / "servers" / "self_signed.pem")
    with served(lambda socket: context.wrap_socket(socket, server_side=True)) as secured:
        error = await fails(wide, "open", url=f"https://localhost:{secured.server_port}/hello")
    assert isinstance(error, Misconfigured)
    assert "it cannot be trusted (ERR_CERT_AUTHORITY_INVALID); check the address and its certificate" in str(error)


# ---- where it may go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "http://10.255.255.1/",
            "10.255.255.1 is a private address; only public addresses are reached, and what tools.browser.allow",
        ),
        ("https://10.255.255.1/", "10.255.255.1 is a private address"),
        ("http://localhost:9/", ""),
        ("http://localhost:8099/", "which is this machine"),
        ("http://[::1]:8099/", "::1 is this machine"),
        ("http://169.254.169.254/latest", "169.254.169.254 is a link-local address"),
        ("{site}/inside", "10.255.255.1 is a private address"),
    ],
)
async def test_private_addresses_are_not_reached_not_even_by_a_redirect(
    browser: Browser, site: Site, url: str, said: str
) -> None:
    error = await fails(browser, "open", url=url.replace("{site}", site.url))
    assert isinstance(error, NotPermitted if said else InvalidCall)
    assert said in str(error)


async def test_subresources_and_clicks_do_not_get_there_either(browser: Browser, site: Site) -> None:
    opened = await do(browser, "open", url=f"{site.url}/loads")
    assert opened["title"] == "Scripted"  # its own script was loaded, the picture from inside was not
    assert browser.visits.chromium is not None
    assert isinstance(browser.visits.chromium.proxy.trouble_with("http://10.255.255.1/x.png"), NotPermitted)
    await do(browser, "click", url=f"{site.url}/hello", selector="#out")
    await wait_until(lambda: _page(browser).url.startswith("chrome-error:"))
    error = await fails(browser, "extract")
    assert "there is no page to work on: 10.255.255.1 is a private address" in str(error)


async def test_websockets_do_not_go_around_the_proxy(browser: Browser, site: Site) -> None:
    await do(browser, "open", url=f"{site.url}/socket")
    chromium = browser.visits.chromium
    assert chromium is not None
    await wait_until(lambda: chromium.proxy.trouble_with("ws://10.255.255.2/") is not None)
    assert isinstance(chromium.proxy.trouble_with("ws://10.255.255.2/"), NotPermitted)


def _page(browser: Browser) -> Any:
    assert browser.visits.chromium is not None
    return browser.visits.chromium.browser.contexts[-1].pages[-1]


async def test_the_browsers_own_door_is_closed_to_pages_whatever_is_allowed(wide: Browser, site: Site) -> None:
    await do(wide, "open", url=f"{site.url}/hello")
    assert wide.visits.chromium is not None
    (port,) = wide.visits.chromium.proxy._own_ports  # pyright: ignore[reportPrivateUsage]
    error = await fails(wide, "open", url=f"http://127.0.0.1:{port}/json/version")
    assert str(error) == f"127.0.0.1:{port} belongs to the browser itself; no page may reach it"


async def test_the_browser_listens_on_no_port_and_leaves_no_door_in_its_folder(browser: Browser, site: Site) -> None:
    """Whoever can talk to its driver's door can read every page; a step that runs a command would find it."""
    await do(browser, "open", url=f"{site.url}/hello")
    assert browser.visits.chromium is not None
    pid = browser.visits.chromium.pid
    everybody = (pid, *proc_tree.tree_below(pid))
    sockets = {link for one in everybody for link in links_of(one) if link.startswith("socket:")}
    assert sockets, "it talks to its proxy"
    assert listening() & set(links_of(os.getpid())), "the site and the proxy of this process are seen"
    assert not sockets & listening()
    assert "holdfast-pipes" not in os.listdir(f"/proc/{pid}/cwd")


def links_of(pid: int) -> list[str]:
    found: list[str] = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(file))
    return found


def listening() -> set[str]:
    """The sockets of this machine that wait for connections."""
    rows = [row.split() for kind in ("tcp", "tcp6") for row in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}


async def test_an_unknown_host_and_a_closed_port_are_transient(wide: Browser) -> None:
    error = await fails(wide, "open", url="http://no-such-host.invalid/")
    assert isinstance(error, Transient)
    assert 'the host "no-such-host.invalid" is not known' in str(error)
    error = await fails(wide, "open", url="http://localhost:8099/")
    assert isinstance(error, Transient)
    assert "localhost:8099 could not be reached" in str(error)


# ---- crashes, limits, letting go -------------------------------------------------------------------------------------


async def test_a_killed_browser_fails_the_step_and_the_next_one_gets_a_new_browser(
    browser: Browser, site: Site
) -> None:
    await do(browser, "open", url=f"{site.url}/hello")
    before = browser.visits.chromium
    assert before is not None
    await do(browser, "open", who="other", url=f"{site.url}/hello")
    waiting = asyncio.create_task(fails(browser, "wait", text="never", timeout=60))
    clicking = asyncio.create_task(fails(browser, "click", who="other", selector="#nope"))
    await asyncio.sleep(0)
    os.kill(before.pid, signal.SIGKILL)
    for error in (await waiting, await clicking):
        assert isinstance(error, Crashed)
        assert describe(error).category == "transient"
        assert describe(error).happened == "nothing"
        assert "crashed or was closed" in str(error)
    assert isinstance(await fails(browser, "extract"), NoPage)
    assert (await do(browser, "open", url=f"{site.url}/hello"))["title"] == "Hello"
    assert browser.visits.chromium is not before


async def test_only_so_many_executions_have_pages_and_the_others_come_back_later(wide: Browser, site: Site) -> None:
    await do(wide, "open", url=f"{site.url}/hello")
    error = await fails(wide, "open", who="other", url=f"{site.url}/hello")
    assert isinstance(error, RateLimited)
    assert (str(error), error.retry_after_s) == ("all 1 browser contexts are in use by other executions", 5)
    wide.forget("execution")  # as the engine says when an execution has ended
    wide.forget("execution")
    await do(wide, "open", who="other", url=f"{site.url}/hello")
    assert wide.visits.count == 1


async def test_what_nobody_uses_is_closed_and_at_last_the_browser(site: Site) -> None:
    idle = Browser(Config(allow=("127.0.0.1",), idle="0.1s"), HERE)
    try:
        await do(idle, "open", url=f"{site.url}/hello")
        assert idle.visits.chromium is not None
        pid = idle.visits.chromium.pid
        profile = Path(idle.visits.chromium._profile)  # pyright: ignore[reportPrivateUsage]
        assert is_there(pid)
        await wait_until(lambda: idle.visits.count == 0 and idle.visits.chromium is None)
        await wait_until(lambda: not is_there(pid) and not profile.exists())
    finally:
        await idle.close()


async def test_whoever_waited_while_a_neighbours_click_was_cut_off_opens_nothing_that_nobody_counts(
    wide: Browser, site: Site
) -> None:
    await do(wide, "open", url=f"{site.url}/stuck")
    assert wide.visits.chromium is not None
    at_first = len(wide.visits.chromium.browser.contexts)
    site.seen.clear()
    clicking = asyncio.create_task(do(wide, "click", selector="#go"))
    await wait_until(lambda: "/never" in site.seen)
    (visit,) = wide.visits._visits.values()  # pyright: ignore[reportPrivateUsage]
    waiting = asyncio.create_task(do(wide, "open", url=f"{site.url}/hello"))
    await wait_until(lambda: visit.users == 2)
    clicking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await clicking
    assert (await waiting)["title"] == "Hello"
    assert wide.visits.count == 1
    assert len(wide.visits.chromium.browser.contexts) == at_first


@pytest.mark.parametrize("how", ["killed", "cut off"])
async def test_a_click_that_broke_off_in_the_middle_is_unknown(browser: Browser, site: Site, how: str) -> None:
    await do(browser, "open", url=f"{site.url}/stuck")
    site.seen.clear()
    clicking = asyncio.create_task(do(browser, "click", selector="#go"))
    await wait_until(lambda: "/never" in site.seen)  # the page heard the click, and waits for an answer
    if how == "killed":
        assert browser.visits.chromium is not None
        os.kill(browser.visits.chromium.pid, signal.SIGKILL)
        with pytest.raises(Crashed) as caught:
            await clicking
        assert describe(caught.value).happened == "unknown"
    else:
        clicking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await clicking
    assert browser.visits.count == 0
    assert isinstance(await fails(browser, "extract"), NoPage)


async def test_a_page_that_crashes_is_gone_and_the_browser_stays(browser: Browser, site: Site) -> None:
    await do(browser, "open", url=f"{site.url}/hello")
    before = browser.visits.chromium
    waiting = asyncio.create_task(fails(browser, "wait", text="never", timeout=60))
    assert before is not None
    session = await _page(browser).context.new_cdp_session(_page(browser))
    crashing = asyncio.gather(session.send("Page.crash"), return_exceptions=True)
    assert isinstance(await waiting, Crashed)
    assert (await do(browser, "open", url=f"{site.url}/hello"))["title"] == "Hello"
    assert browser.visits.chromium is before
    await crashing


async def test_a_page_that_takes_too_much_memory_crashes_alone(site: Site) -> None:
    tight = Browser(Config(allow=("127.0.0.1",), heap_mb=64), HERE)
    try:
        await do(tight, "open", who="other", url=f"{site.url}/hello")
        before = tight.visits.chromium
        await do(tight, "open", url=f"{site.url}/hog")
        waiting = asyncio.create_task(fails(tight, "wait", text="never", timeout=60))
        site.begin.set()
        assert isinstance(await waiting, Crashed)
        assert (await do(tight, "extract", who="other", selector="h1"))["text"] == "Good morning"
        assert tight.visits.chromium is before
    finally:
        await tight.close()


@pytest.mark.parametrize(
    ("own_mb", "place"),
    [(900, HERE), (None, ToolsetFolders(resources=Resources(memory_bytes=900 << 20)))],
    ids=["its own setting", "the setting for everything"],
)
async def test_a_page_whose_memory_is_no_heap_is_ended_alone(
    site: Site, own_mb: int | None, place: ToolsetFolders
) -> None:
    tight = Browser(Config(allow=("127.0.0.1",), memory_mb=own_mb), place)
    try:
        await do(tight, "open", who="other", url=f"{site.url}/hello")
        before = tight.visits.chromium
        await do(tight, "open", url=f"{site.url}/bytes")
        waiting = asyncio.create_task(fails(tight, "wait", text="never", timeout=30))
        site.begin.set()
        assert isinstance(await waiting, Crashed)
        assert (await do(tight, "extract", who="other", selector="h1"))["text"] == "Good morning"
        assert tight.visits.chromium is before
    finally:
        await tight.close()


async def test_playwrights_own_process_may_die_too(browser: Browser, site: Site) -> None:
    await do(browser, "open", url=f"{site.url}/hello")
    (driver, *_) = [pid for pid in children_of(os.getpid()) if "run-driver" in command_of(pid)][::-1]
    os.kill(driver, signal.SIGKILL)
    assert isinstance(await fails(browser, "extract"), Crashed)
    assert (await do(browser, "open", url=f"{site.url}/hello"))["title"] == "Hello"


# ---- missing things, and settings ------------------------------------------------------------------------------------


async def test_a_missing_browser_says_what_to_install(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    named = Browser(Config(executable="no-such-browser"), HERE)
    error = await fails(named, "open", url=f"{site.url}/hello")
    assert isinstance(error, Misconfigured)
    assert str(error) == (
        'no browser called "no-such-browser" can be run; correct executable in [tools.browser], or install it'
    )
    with pytest.raises(Misconfigured, match="no browser called"):
        await named.health()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Misconfigured, match=r"no browser is on PATH .* install Chromium, such as with `apt install"):
        await Browser(Config(), HERE).health()


async def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for error in (await fails(Browser(Config(), HERE), "open", url=f"{site.url}/hello"),):
        assert str(error) == (
            "the browser tools need the Python package playwright; install it: pip install playwright"
        )


async def test_a_browser_that_does_not_start_says_its_last_words(tmp_path: Path, site: Site) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no display >&2\nexit 3\n")
    broken.chmod(0o755)
    error = await fails(Browser(Config(executable=str(broken)), HERE), "open", url=f"{site.url}/hello")
    assert isinstance(error, Misconfigured)
    assert str(error) == f"{broken} ended with code 3 instead of starting:\nno display\n"


async def test_it_is_healthy_where_everything_is_there(browser: Browser) -> None:
    await browser.health()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"timeout": "soon"}, "tools.browser.timeout: expected a duration"),
        ({"idle": "0s"}, "tools.browser.idle: expected more than 0 seconds"),
        ({"contexts": 0}, "tools.browser.contexts: expected at least 1, got 0"),
        ({"allow": ("a b",)}, "tools.browser.allow: expected a host"),
    ],
)
async def test_a_mistake_in_the_settings_is_named(config: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        Browser(Config(**config), HERE)
    assert str(refused.value).startswith(said)
