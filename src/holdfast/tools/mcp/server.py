"""One MCP server: started when it is first needed, started again when it died, and asked.

The SDK's client lives in a task of its own, because it must be left in the task that entered it; steps only send
requests through it. When a connection ends, every request under way is answered with that, and the next call makes a
new one: after a while that grows with each failure in a row, and after too many of them only now and then.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.errors import Misconfigured, ToolError, Transient
from holdfast.core.resources import Resources
from holdfast.tools.call import Call
from holdfast.tools.hooks import OutputInvalid
from holdfast.tools.mcp import transport as mcp_transport
from holdfast.tools.mcp.catalog import TOOLS_MAX, Described, Offer, read_offer
from holdfast.tools.mcp.results import Answer, Misfit, answer_of, explained
from holdfast.tools.mcp.schema import EXTRA_NEEDED, Checker
from holdfast.tools.processes.spawn import Lasting, spawn
from holdfast.tools.secrets.redaction import masks

FIRST_PAUSE_S = 0.5  # after a failure; twice as long after each that follows
FAILURES_MAX = 5  # in a row; then a start is tried only every GIVEN_UP_S
GIVEN_UP_S = 60.0
PATIENCE_S = 10.0  # how long a call waits for its server's next start
CLOSING_S = 5.0
CHECK_S = 10.0
PAGES_MAX = 200  # of a listing
MESSAGE_CHARS_MAX = 500  # of a progress message
KEY = "holdfast/idempotency-key"
log = logging.getLogger("holdfast")


class Reached(NamedTuple):
    """How a server is reached, with every secret already looked up."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    url: str
    headers: Mapping[str, str]
    start_timeout_s: float
    resources: Resources


class ServerConnection:
    """One connection, from its start to its end."""

    def __init__(self) -> None:
        self.client: Any = None
        self.lost = asyncio.Event()  # from either side
        self.outage = mcp_transport.Outage()
        self.offer = Offer(at=0)
        self.task: asyncio.Task[None] | None = None
        self.users = 0  # requests under way
        self.is_retired = False  # nobody begins anything with it any more; it ends with the last of its users
        self.is_of_one_stream = True  # that all requests share: if one of them lost it, so did the others


class Server:
    """`reached` is asked before each start: what it needs of the environment may be there by then."""

    def __init__(self, name: str, reached: Callable[[], Awaitable[Reached]], told: Callable[[Offer], None]) -> None:
        self.name = name
        self._reached = reached
        self._told = told
        self._link: ServerConnection | None = None
        self._starting = asyncio.Lock()
        self._failures = 0
        self._next_at = float("-inf")
        self._last_failure = ""
        self._renewals: set[asyncio.Task[None]] = set()
        self._retired: list[ServerConnection] = []

    async def listed(self) -> Offer:
        """What it offers now; it is started if it does not run."""
        return (await self._linked()).offer

    async def check(self) -> None:
        """Whether it answers. One that nobody needed yet is not started for that; one that failed says so."""
        link = self._link
        if link is None or link.lost.is_set():
            if self._last_failure:
                raise Transient(f"the MCP server {self.name}: {self._last_failure}", without_effect=True)
            return
        try:
            with self._using(link):
                async with asyncio.timeout(CHECK_S):
                    await self._listing(link)
        except Exception as error:
            said = str(error) or type(error).__name__
            raise Transient(f"the MCP server {self.name} does not answer: {said}", without_effect=True) from None

    async def call(
        self,
        tool: Described,
        arguments: Mapping[str, Any],
        call: Call,
        owner: str,
        accept: Callable[[Described], None],
    ) -> Answer | Misfit:
        """`accept` sees the tool as the server describes it now, and may refuse to call it as that."""
        link = await self._linked()
        now = next((one for one in link.offer.tools if one.name == tool.name), None)
        if now is None:
            raise Misconfigured(f'{owner}: its server has no tool called "{tool.name}" any more')
        accept(now)
        with self._using(link):
            result = await self._ask(link, tool.name, dict(arguments), call, owner)
        self._failures, self._last_failure = 0, ""
        return answer_of(result, Checker(now.output_schema, owner) if now.output_schema is not None else None, owner)

    async def _ask(self, link: ServerConnection, tool: str, arguments: dict[str, Any], call: Call, owner: str) -> Any:
        import mcp_types as types
        from mcp.shared.exceptions import MCPError
        from pydantic import TypeAdapter

        async def show(progress: float, total: float | None, message: str | None) -> None:
            text = masks.beginning(message or "", MESSAGE_CHARS_MAX)
            if total:
                call.progress(100 * progress / total, text)
            elif text:
                call.say(text)

        meta: Any = {KEY: call.key}
        params = types.CallToolRequestParams(name=tool, arguments=arguments, _meta=meta)
        either: Any = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        try:
            result = await link.client.session.send_request(
                types.CallToolRequest(params=params), either, progress_callback=show
            )
        except MCPError as error:
            if error.code == mcp_transport.CONNECTION_CLOSED:
                if link.is_of_one_stream or link.users == 1:
                    link.outage.because(str(error.message))
                    link.lost.set()
                    raise await self._lost(link, owner) from None
                self._retire(link)
                raise Transient(f"{owner}: the MCP server {self.name} was lost: {error.message}") from None
            failure = explained(error, owner)
            if isinstance(failure, Transient) and failure.without_effect:
                self._retire(link)  # it may have forgotten the session: the next call begins anew
            raise failure from None
        except ValueError as error:  # pydantic's: what came back is no result of a tool
            said = masks.beginning(str(error).splitlines()[0], 200)
            raise OutputInvalid(f"{owner}: its server answered with nonsense: {said}; tell its author") from None
        if isinstance(result, types.InputRequiredResult):
            raise Misconfigured(f"{owner}: its server asks for input of a person, which cannot be given here")
        return result

    @contextmanager
    def _using(self, link: ServerConnection) -> Generator[None]:
        link.users += 1
        try:
            yield
        finally:
            link.users -= 1
            if link.is_retired and not link.users:
                link.lost.set()

    def _retire(self, link: ServerConnection) -> None:
        """Over HTTP each request has an answer of its own, and one that went wrong says nothing about the others."""
        if link.lost.is_set() or link.is_retired:
            return
        link.is_retired = True
        self._retired = [one for one in self._retired if one.task is not None and not one.task.done()] + [link]
        if self._link is link:
            self._link = None

    def retire(self) -> None:
        """Whatever begins from now on begins with another connection."""
        link = self._link
        if link is not None:
            self._retire(link)
            if not link.users:
                link.lost.set()

    async def _lost(self, link: ServerConnection, owner: str) -> ToolError:
        """Nobody knows how far it came. The reason may only just be on its way."""
        if link.task is not None:
            await asyncio.wait([link.task], timeout=CLOSING_S)
        return Transient(f"{owner}: the MCP server {self.name} was lost: {link.outage.told()}")

    # ---- starting and ending -----------------------------------------------------------------------------------------

    async def _linked(self) -> ServerConnection:
        """The connection; every failure here is without effect on anything but the server's own start."""
        async with self._starting:
            if self._link is not None and not self._link.lost.is_set():
                return self._link
            if self._link is not None:
                self._fail(self._link.outage.told())
                self._link = None
            await self._wait_for_the_next_start()
            link = ServerConnection()
            try:
                await self._start(link)
            except ToolError as error:
                self._fail(str(error))
                raise
            self._link = link
            return link

    def _fail(self, reason: str) -> None:
        self._failures += 1
        self._last_failure = reason
        given_up = self._failures > FAILURES_MAX
        pause_s = GIVEN_UP_S if given_up else FIRST_PAUSE_S * 2 ** (self._failures - 1)
        self._next_at = asyncio.get_running_loop().time() + (pause_s if self._failures > 1 else 0)

    async def _wait_for_the_next_start(self) -> None:
        left_s = self._next_at - asyncio.get_running_loop().time()
        if left_s > PATIENCE_S:
            raise Transient(
                f"the MCP server {self.name} failed {self._failures} times in a row, and is not started again before "
                f"{left_s:.0f} s have passed: {self._last_failure}",
                without_effect=True,
            )
        await asyncio.sleep(max(0.0, left_s))

    async def _start(self, link: ServerConnection) -> None:
        reached = await self._reached()
        link.is_of_one_stream = not reached.url
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A context of its own: what the SDK says for years must not be taken for words of the step that came first.
        link.task = asyncio.get_running_loop().create_task(
            self._hold(link, reached, opened), name=f"holdfast-mcp {self.name}", context=contextvars.Context()
        )
        try:
            async with asyncio.timeout(reached.start_timeout_s):
                await asyncio.shield(opened)
        except TimeoutError:
            await self._end(link, at_once=True)
            words = link.outage.told() if link.outage.reason or link.outage.stderr else "it said nothing"
            raise Transient(
                f"the MCP server {self.name} did not introduce itself within {reached.start_timeout_s:g} s: {words}",
                without_effect=True,
            ) from None
        except BaseException:
            await self._end(link, at_once=True)
            raise

    async def _hold(self, link: ServerConnection, reached: Reached, opened: asyncio.Future[None]) -> None:
        """Enter the SDK's client, stay in it until the connection is lost or no longer wanted, and leave it."""
        try:
            async with AsyncExitStack() as stack:
                link.client = await stack.enter_async_context(await self._client(link, reached, stack))
                link.offer = await self._listing(link)
                opened.set_result(None)
                await link.lost.wait()
        except BaseException as error:
            if isinstance(error, Exception):
                link.outage.because(
                    masks.beginning(
                        "; ".join(
                            dict.fromkeys(str(one) or type(one).__name__ for one in mcp_transport.all_reasons(error))
                        ),
                        500,
                    )
                )
            if not opened.done():
                opened.set_exception(self._unusable(link, error))
                opened.exception()
        finally:
            link.lost.set()

    async def _client(self, link: ServerConnection, reached: Reached, stack: AsyncExitStack) -> Any:
        client_class = await asyncio.to_thread(_sdk)  # a second of importing, during which others go on
        if reached.url:
            http = await stack.enter_async_context(mcp_transport.http_client(reached.headers))
            transport: Any = mcp_transport.over_http(reached.url, http)
        else:
            limits = Lasting(reached.resources)
            process = await spawn(reached.command, cwd=reached.cwd, env=reached.env, talks=True, resources=limits)
            stack.push_async_callback(mcp_transport.end, process)
            transport = mcp_transport.piped(process, link.outage, link.lost)
        return client_class(transport, cache=None, message_handler=self._hear)

    async def _hear(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification" and self._link is not None and not self._renewals:
            # In a task: whoever hears must not ask, or the answer is never heard.
            renewal = asyncio.get_running_loop().create_task(self._renew(self._link))
            self._renewals.add(renewal)
            renewal.add_done_callback(self._renewals.discard)

    async def _renew(self, link: ServerConnection) -> None:
        try:
            link.offer = await self._listing(link)
        except Exception as error:
            log.warning("the MCP server %s changed its tools and could not say how: %s", self.name, error)

    async def _listing(self, link: ServerConnection) -> Offer:
        import mcp_types as types

        listed: list[Any] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await link.client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            listed += page.tools
            cursor = page.next_cursor
            if not cursor or len(listed) > TOOLS_MAX:
                break
        offer = await asyncio.to_thread(read_offer, listed[:TOOLS_MAX], len(listed) > TOOLS_MAX)
        self._told(offer)
        return offer

    def _unusable(self, link: ServerConnection, error: BaseException) -> ToolError:
        """Why it could not be started, in the category of the reason."""
        first = mcp_transport.all_reasons(error)[0]
        if isinstance(first, ToolError):
            return type(first)(f"the MCP server {self.name}: {first}", without_effect=True)
        code = getattr(first, "code", None)
        if isinstance(code, int) and code != mcp_transport.CONNECTION_CLOSED:
            known = explained(first, f"the MCP server {self.name}")
            return type(known)(str(known), without_effect=True, retry_after_s=known.retry_after_s)
        text = f"the MCP server {self.name} could not be started: {link.outage.told()}"
        return Transient(text, without_effect=True)

    async def close(self) -> None:
        for renewal in list(self._renewals):
            renewal.cancel()
        links = [*self._retired, *([self._link] if self._link is not None else [])]
        self._link, self._retired = None, []
        for link in links:
            await self._end(link)

    async def _end(self, link: ServerConnection, at_once: bool = False) -> None:
        """Ask it to leave, and make it; `at_once` for one that has not come far enough to hear."""
        link.lost.set()
        task = link.task
        if task is None:
            return
        if not at_once:
            await asyncio.wait([task], timeout=CLOSING_S)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CLOSING_S)


def _sdk() -> Any:
    # What it logs is in our own errors, or of no use. Its session does so as "client", with all that a server said.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    logging.getLogger("client").addFilter(_is_of_others)
    with suppress(ImportError):
        from mcp import Client

        return Client
    raise Misconfigured(EXTRA_NEEDED.what, todo=EXTRA_NEEDED.todo)


def _is_of_others(record: logging.LogRecord) -> bool:
    return os.path.join("mcp", "client", "session.py") not in record.pathname
