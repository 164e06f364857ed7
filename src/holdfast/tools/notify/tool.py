"""`notify.send`: a message to people by mail, chat or webhook, through the channels that the settings name.

A plan names a channel, never an address of a service, so no plan can send anywhere that nobody agreed to. Each channel
is confirmed by itself and noted, so that another attempt does not tell the ones again who have been told; and each has
one address, or nobody could say which of them was told. Once somebody was told, no failure is without effect any more.

apprise is imported when the first message is sent.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import os
import warnings
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Literal, TypedDict, cast
from urllib.parse import quote

import msgspec

from holdfast.core.durations import parse_duration
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import (
    InputInvalid,
    InvalidCall,
    Misconfigured,
    SettingsInvalid,
    ToolError,
    Transient,
    Trouble,
)
from holdfast.core.policy import Breaker
from holdfast.tools.call import Call
from holdfast.tools.net.client import check_connection
from holdfast.tools.notify.filter import Filter
from holdfast.tools.notify.outcome import failure_of
from holdfast.tools.notify.response_capture import overhear
from holdfast.tools.runtime.cancellation import NeverBegan
from holdfast.tools.runtime.fair_queue import Pacer, parse_rate
from holdfast.tools.runtime.thread_pool import pool
from holdfast.tools.secrets.redaction import cover_address
from holdfast.tools.tool import Tool, tool
from holdfast.tools.toolset import Adapter, ToolsetFolders

TEXT_CHARS_MAX = 100_000
TITLE_CHARS_MAX = 500
CHANNELS_MAX = 20  # of one message
NEEDS_EXTRA = Trouble("notify.send needs the Python package apprise", "install it: pip install apprise")
Format = Literal["text", "markdown", "html"]
_OWN_SERVERS = frozenset({"json", "xml", "form", "mailto"})
_Telling = Callable[[], Awaitable[None]]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    channels: dict[str, str] = {}  # a name and an apprise URL, or `env:NAME` for a variable that holds one
    recipients: tuple[str, ...] = ()  # who may be written to by name, as in `mail:ann@example.org`
    rate: str = "30/m"  # messages of the whole process
    timeout: str = "30s"  # for one channel to confirm
    block: tuple[str, ...] = ()  # a message with one of these patterns is refused
    mask: tuple[str, ...] = ()  # what fits one of these patterns is not sent
    hook: str = ""  # `module:function`, which is given channel, title and text, and may refuse with a reason


class Sent(TypedDict):
    delivered: list[str]


class Notify(Adapter):
    """Messages to people."""

    Config = Config

    def __init__(self, config: Config, place: ToolsetFolders) -> None:
        super().__init__(config, place)
        try:
            self._timeout_s = parse_duration(config.timeout)
            if self._timeout_s == 0:
                raise SettingsInvalid("timeout: 0 leaves no time at all; leave it out for the default")
            self._pacer = Pacer(parse_rate(config.rate))
            self._filter = Filter(config.block, config.mask, config.recipients, config.hook)
        except (InputInvalid, SettingsInvalid) as error:
            raise SettingsInvalid(f"tools.notify: {error}") from None

    def tools(self) -> Sequence[Tool[..., Any]]:
        apart = Breaker(by=lambda arguments: str(arguments["to"]))  # one channel that is down does not close the others
        return (tool(name="notify.send", effect="once", breaker=apart, judge=self._judge)(self.send),)

    async def send(self, to: str | list[str], text: str, call: Call, title: str = "", format: Format = "text") -> Sent:
        """Send a message through channels of the settings; `mail:ann@example.org` names somebody on a mail channel."""
        message = _digest(title, text, format)
        delivered = _delivered_before(call.notes, message)
        try:
            for channel, tell in (await self._prepared(to, title, text, format)).items():
                if channel not in delivered:
                    await call.take_turn(self._pacer, has_begun=bool(delivered))
                    await tell()
                    delivered.append(channel)
                    await call.note({"delivered": delivered, "message": message})
        except ToolError as error:
            raise _after(delivered, error) from error
        return {"delivered": delivered}

    async def _prepared(self, to: str | list[str], title: str, text: str, format: Format) -> dict[str, _Telling]:
        """All of them, checked before the first is told."""
        channels = _channels(to)
        _check(channels, title, text)
        addresses = {channel: self._address(channel) for channel in channels}
        shown_title, shown_text = await _before(partial(self._filter.passed, channels, title, text))
        targets = {channel: await self._target(channel, address) for channel, address in addresses.items()}
        return {
            channel: partial(self._tell, channel, target, shown_title, shown_text, format)
            for channel, target in targets.items()
        }

    def _judge(self, known: Mapping[str, Any], later: Collection[str]) -> None:
        """Everything but the variables that hold addresses, which this process may not have."""
        channels = _channels(known["to"]) if "to" in known else ["later"]
        _check(channels, known.get("title", ""), known.get("text", "later"))
        for channel in channels if "to" in known else ():
            name, _, person = channel.partition(":")
            if not self._known(name, "to").startswith("env:"):
                self._address(channel)
            elif person:
                self._filter.check_recipient(person)

    def missing(self, tool: str) -> Sequence[Trouble]:
        return () if importlib.util.find_spec("apprise") else (NEEDS_EXTRA,)

    def troubles(self) -> Sequence[Trouble]:
        if not self.config.channels:
            return ()
        if lacks := self.missing(""):
            return lacks
        found: list[Trouble] = []
        for name in self.config.channels:
            try:
                _service(_apprise(), name, self._address(name))
            except Misconfigured as error:
                found.append(Trouble.of(error))
        return found

    async def health(self) -> None:
        """Each channel's address, and of those that name their own server, whether somebody is there."""
        told: list[str] = []
        for name in self.config.channels:
            try:
                service = await self._target(name, self._address(name))
                server = _own_server(service.services[0])
                if server is not None:
                    await check_connection(*server)
            except ToolError as error:
                told.append(f'the channel "{name}": {error}')
        if told:
            raise Transient("\n".join(told))

    async def tell(self, channel: str, title: str, text: str, whose: str) -> None:
        """One message through one channel, outside of any step. Raises when it is not confirmed."""
        address = self._address(channel)
        shown_title, shown_text = await _before(partial(self._filter.passed, [channel], title, text))
        target = await self._target(channel, address)
        await self._pacer.take(whose)
        await self._tell(channel, target, shown_title, shown_text, "text")

    def check_channel(self, channel: str) -> None:
        """Raise if there is no such channel."""
        self._known(channel.partition(":")[0])

    def _known(self, name: str, argument: str = "") -> str:
        known = self.config.channels
        if name not in known:
            there = did_you_mean(name, known) or (f"; there are: {', '.join(known)}" if known else "; there are none")
            where = f"{argument}: " if argument else ""
            raise Misconfigured(f'{where}no channel called "{name}" in [tools.notify]{there}')
        return known[name]

    def _address(self, channel: str) -> str:
        """The address of a channel, with the person on it if one is named."""
        name, _, person = channel.partition(":")
        address = self._known(name, "to")
        if address.startswith("env:"):
            variable = address.removeprefix("env:")
            address = os.environ.get(variable, "")
            if not address:
                raise Misconfigured(f'the channel "{name}" needs the environment variable {variable}', todo="set it")
        cover_address(name, address)
        if person:
            if not address.startswith(("mailto://", "mailtos://")):
                raise InvalidCall(f'to: "{name}" is no mail channel, so nobody can be named on it')
            self._filter.check_recipient(person)
            address += f"{'&' if '?' in address else '?'}to={quote(person)}"
        return address

    async def _target(self, channel: str, address: str) -> Any:
        apprise = await _before(_apprise)  # it reads a hundred services: not on the loop
        return _service(apprise, channel, address)

    async def _tell(self, channel: str, service: Any, title: str, text: str, format: Format) -> None:
        (target,) = service.services
        target.retry, target.redirects = 0, False  # whatever its address says: whether to try again is decided here
        heard = overhear(target)
        with heard.listening():
            result: Any = await service.async_notify(
                title=title, body=text, body_format=format, timeout=self._timeout_s
            )
        if not result:
            is_unmatched = result.status == _apprise().AppriseResultStatus.NOMATCH
            raise failure_of(channel, result, is_unmatched, heard)


async def _before(function: Callable[[], Any]) -> Any:
    """What is done in a thread before anything is sent: whoever is cut there has told nobody."""
    try:
        return await pool.run(function)
    except asyncio.CancelledError:
        raise NeverBegan from None


def _service(apprise: Any, channel: str, address: str) -> Any:
    # Whoever redirects may have taken the message first, and what fails after that looks as if nothing was sent.
    asset = apprise.AppriseAsset(app_id="Holdfast", app_desc="Holdfast", http_redirects=False)
    service: Any = apprise.Apprise(asset=asset)
    if not service.add(address):
        raise Misconfigured(f'the address of the channel "{channel}" makes no sense to apprise', todo="correct it")
    if len(service.services) != 1:
        raise Misconfigured(f'the channel "{channel}" has more than one address', todo="make each of them a channel")
    return service


def _own_server(target: Any) -> tuple[str, int] | None:
    """Host and port, of a service whose address names them: of the others, apprise alone knows where they are."""
    if not _OWN_SERVERS & {target.protocol, target.secure_protocol}:
        return None
    port = target.port or (443 if target.secure else 80)
    return str(getattr(target, "smtp_host", "") or target.host), int(port)


def _channels(to: str | list[str]) -> list[str]:
    return [to] if isinstance(to, str) else list(dict.fromkeys(to))


def _check(channels: list[str], title: str, text: str) -> None:
    if not 1 <= len(channels) <= CHANNELS_MAX:
        raise InvalidCall(f"to: expected 1 to {CHANNELS_MAX} channels, got {len(channels)}")
    if not text.strip():
        raise InvalidCall("text: expected a message, got nothing")
    for name, value, most in (("text", text, TEXT_CHARS_MAX), ("title", title, TITLE_CHARS_MAX)):
        if len(value) > most:
            raise InvalidCall(f"{name}: expected at most {most:,} characters, got {len(value):,}")
    if "\n" in title or "\r" in title:
        raise InvalidCall("title: expected one line")


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(errors="replace"), digest_size=8).hexdigest()


def _delivered_before(notes: Any, message: str) -> list[str]:
    """Who has been told this very message by an earlier attempt; notes of any other shape say nothing about that."""
    if not isinstance(notes, dict):
        return []
    noted = cast("dict[str, Any]", notes)
    found: Any = noted.get("delivered")
    if not isinstance(found, list) or noted.get("message", message) != message:
        return []
    return [channel for channel in cast("list[Any]", found) if isinstance(channel, str)]


def _after(delivered: list[str], error: ToolError) -> ToolError:
    """A failure after somebody was told: the others were not, but nobody may begin anew because of that."""
    if not delivered or not error.without_effect:
        return error
    kind = ToolError if isinstance(error, Transient) else type(error)  # it is known what happened
    told = f"{error}\nalready told, and not told again by another attempt: {', '.join(delivered)}"
    return kind(told, without_effect=False, retry_after_s=error.retry_after_s)


@functools.cache
def _apprise() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of modules that its own services import
            apprise: Any = importlib.import_module("apprise")
            apprise.Apprise.instantiate("json://localhost")  # which makes it read all of them
    except ImportError as error:
        raise Misconfigured(NEEDS_EXTRA.what, todo=NEEDS_EXTRA.todo) from error
    return apprise
