"""How a server is reached: through the pipes of a process that dies with this one, or over HTTP.

Owns what every message is bounded by before anything is made of it. A server that writes nonsense, or without
end, or ends, is cut off here, and the reason is written down for whoever waited for its answer.
"""

# sentences of others: the MCP SDK

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.tools.processes.spawn import Process
from holdfast.tools.secrets.redaction import masks

if TYPE_CHECKING:
    import httpx2

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
PIECE_BYTES = 64 * 1024
NOISE_LINES_MAX = 100  # lines on stdout that are no messages: some servers greet there
MESSAGES_PER_S_MAX = 1000  # whoever writes faster is read more slowly
STDERR_LINES = 5
STDERR_LINE_CHARS = 300
GOODBYE_S = 0.5  # for a server to end by itself once its stdin is closed
CONNECT_TIMEOUT_S = 10.0
KEPT_FROM_HERE = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "TZ", "SSL_CERT_FILE")

# What we have to say of a request travels through the SDK as an error of the protocol: this mark says it is ours.
OURS = secrets.token_hex(8)
UNREACHED = -32950
REFUSED = -32951
NONSENSE = -32952
# For the SDK, that the connection ended. For a server, whatever it likes; with a status of 4xx, mostly a session it
# does not know. So that the two are never confused, a server's own gets another code on its way to the SDK.
CONNECTION_CLOSED = SERVER_ERROR = -32000
SAID_SO = -32953


class _Addressed(msgspec.Struct):
    """What a line must have to be an answer, however little else of it makes sense."""

    id: int | str
    method: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Outage:
    """Why a connection ended, as far as anybody knows."""

    def __init__(self) -> None:
        self.reason = ""
        self.stderr: deque[str] = deque(maxlen=STDERR_LINES)

    def because(self, reason: str) -> None:
        self.reason = self.reason or reason

    def told(self) -> str:
        said = "\n".join(self.stderr)
        return (self.reason or "the connection ended") + (f"\nits last words: {said}" if said else "")


def minimal_environment(wanted: Mapping[str, str]) -> dict[str, str]:
    return {**{name: os.environ[name] for name in KEPT_FROM_HERE if name in os.environ}, **wanted}


# ---- pipes -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def piped(process: Process, outage: Outage, lost: asyncio.Event) -> AsyncGenerator[Any]:
    """The streams that the SDK's client reads and writes, over the pipes of a running server."""
    import anyio

    to_client, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, from_client = anyio.create_memory_object_stream[Any](0)

    async def read() -> None:
        try:
            async with to_client:
                await _read_messages(process, to_client, outage)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody listens any more
        finally:
            lost.set()

    async def write() -> None:
        try:
            async with from_client:
                async for message in from_client:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.write(line.encode() + b"\n")
        except OSError:
            pass  # it reads no more; that it has ended is told by its stdout
        finally:
            lost.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        tasks.start_soon(_read_stderr, process, outage)
        try:
            yield incoming, outgoing
        finally:
            tasks.cancel_scope.cancel()
            for stream in (to_client, incoming, outgoing, from_client):
                stream.close()


async def _read_messages(process: Process, to_client: Any, outage: Outage) -> None:
    import mcp_types as types
    from mcp.shared.message import SessionMessage

    loop, noise, second, count = asyncio.get_running_loop(), 0, 0.0, 0
    async for line in _lines(process.stdout, outage):
        if loop.time() - second > 1:
            second, count = loop.time(), 0
        count += 1
        if count > MESSAGES_PER_S_MAX:
            await asyncio.sleep(max(0.0, second + 1 - loop.time()))
        try:
            message: Any = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            if (asked := _answered(line)) is not None:
                error = types.ErrorData(code=NONSENSE, message=_shown(line), data={"mark": OURS})
                await to_client.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=asked, error=error)))
                continue
            noise += 1
            if line.lstrip().startswith((b"{", b"[")) or noise > NOISE_LINES_MAX:
                outage.because(f"it wrote something that is no MCP message: {_shown(line)}")
                return
            continue
        await to_client.send(SessionMessage(_as_said(message)))
    if not outage.reason:
        outage.because(await _end_of(process))


def _answered(line: bytes) -> int | str | None:
    """The request that a line which is no message wanted to answer: it alone has failed. None if nobody can tell."""
    try:
        answer = msgspec.json.decode(line, type=_Addressed)
    except (msgspec.DecodeError, RecursionError):
        return None
    return answer.id if answer.method is msgspec.UNSET else None


def _as_said(message: Any) -> Any:
    error: Any = getattr(message, "error", None)
    if error is None or error.code != SERVER_ERROR:
        return message
    return message.model_copy(update={"error": error.model_copy(update={"code": SAID_SO})})


async def _lines(stream: asyncio.StreamReader, outage: Outage) -> AsyncIterator[bytes]:
    held = bytearray()
    while piece := await stream.read(PIECE_BYTES):
        searched = len(held)
        held += piece
        while (end := held.find(b"\n", searched)) >= 0:
            line = bytes(held[:end]).strip()
            del held[: end + 1]
            searched = 0
            if line:
                yield line
        if len(held) > MESSAGE_BYTES_MAX:
            outage.because(f"it wrote a message of more than {MESSAGE_BYTES_MAX:,} bytes")
            return


async def _end_of(process: Process) -> str:
    try:
        async with asyncio.timeout(1):
            end = await process.wait()
    except TimeoutError:
        return "it closed its stdout"
    if end.over:
        return f"it was ended, because it went over its limit; if it needs more, raise its resources.{end.over}"
    code = end.code
    return f"it ended with exit code {code}" if code >= 0 else f"it was killed by {signal.Signals(-code).name}"


async def _read_stderr(process: Process, outage: Outage) -> None:
    line = ""
    while piece := await process.stderr.read(PIECE_BYTES):
        *whole, line = (line + piece.decode(errors="replace")).split("\n")
        outage.stderr.extend(_cut(one) for one in whole if one.strip())
        # As much more as the rest of a secret may need to be recognised.
        line = masks.ending(line, STDERR_LINE_CHARS + masks.longest)
    if line.strip():
        outage.stderr.append(_cut(line))


def _cut(line: str) -> str:
    return masks.beginning(line.strip(), STDERR_LINE_CHARS)


def _shown(line: bytes) -> str:
    return repr(masks.beginning(line[:480].decode(errors="replace"), 120))


async def end(process: Process) -> None:
    """As the protocol asks: its stdin is closed first; whoever stays is killed, with everything it started."""
    try:
        process.close_stdin()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await process.wait()
        except TimeoutError:
            await process.kill()
    finally:
        process.close()


# ---- http ------------------------------------------------------------------------------------------------------------


def http_client(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """For one server. Bodies are bounded, and what kept a request from being answered is told to it alone."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self._inner:
                size += len(piece)
                if size > MESSAGE_BYTES_MAX:
                    raise httpx2.StreamError(f"it sent a message of more than {MESSAGE_BYTES_MAX:,} bytes")
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    async def refusal(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """With its status kept. Errors that the protocol itself defines are left to the SDK."""
        try:
            answer: Any = msgspec.json.decode(await response.aread())
            error = dict(answer["error"])
        except (httpx2.HTTPError, httpx2.StreamError, msgspec.DecodeError, LookupError, TypeError, ValueError):
            error = {}
        finally:
            await response.aclose()
        is_defined = isinstance(error.get("code"), int) and error["code"] != SERVER_ERROR
        if request.method != "POST" or is_defined or (response.status_code == 404 and not error):
            return response
        why = masks.beginning(str(error.get("message", "")), 300)
        said = f"{response.status_code} {response.reason_phrase} {why}".strip()
        more = {"status": response.status_code, "after": response.headers.get("retry-after", "")}
        return _told(httpx2, request, REFUSED, said, more)

    class Guarded(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            try:
                response = await super().handle_async_request(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                return _told(httpx2, request, UNREACHED, str(error) or type(error).__name__, {})
            kind = response.headers.get("content-type", "").lower()
            if not kind.startswith("text/event-stream"):  # whose single events the SDK bounds
                response.stream = Bounded(response.stream)
            return await refusal(request, response) if response.status_code >= 400 else response

    return httpx2.AsyncClient(
        headers=dict(headers),
        transport=Guarded(),
        timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S),  # the step's own time limit bounds an answer
        trust_env=False,
    )


@asynccontextmanager
async def over_http(url: str, client: httpx2.AsyncClient) -> AsyncGenerator[Any]:
    """The streams that the SDK's client reads and writes, over HTTP."""
    from mcp.client.streamable_http import streamable_http_client

    async with streamable_http_client(url, http_client=client, max_sse_event_size=MESSAGE_BYTES_MAX) as streams:
        incoming, outgoing = streams
        yield _Incoming(incoming), outgoing


class _Incoming:
    """What a server says, and what the SDK says of an answer that broke off, which it begins with `SSE stream`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aenter__(self) -> _Incoming:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self._inner.__aexit__(*reason)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        item = await self._inner.__anext__()
        error: Any = getattr(getattr(item, "message", None), "error", None)
        if error is not None and not error.message.startswith("SSE stream"):
            item.message = _as_said(item.message)
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _told(httpx2: Any, request: Any, code: int, said: str, more: Mapping[str, Any]) -> Any:
    error = {"code": code, "message": said, "data": {"mark": OURS, **more}}
    body = {"jsonrpc": "2.0", "id": 0, "error": error}
    return httpx2.Response(502, json=body, request=request)


def all_reasons(error: BaseException) -> list[BaseException]:
    """What is at the bottom of an exception that the SDK's task groups have wrapped."""
    if isinstance(error, BaseExceptionGroup):
        inside = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return [reason for inner in inside for reason in all_reasons(inner)]
    return [error]
