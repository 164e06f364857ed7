"""`search.web`: one question, several places to ask, in the order of the settings.

A provider that fails or takes too long is passed over for the next one, and the answer says so. Without a provider in
the settings, the text files of the execution's own folder are searched.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from holdfast.core.durations import parse_duration
from holdfast.core.errors import (
    InputInvalid,
    InvalidCall,
    Misconfigured,
    NotPermitted,
    ResourceShort,
    SettingsInvalid,
    ToolError,
    Transient,
)
from holdfast.tools.allowed_roots import AllowedRoots
from holdfast.tools.call import Call, HeldBack
from holdfast.tools.net.address_policy import Reach
from holdfast.tools.net.answers import explained, raise_for_status
from holdfast.tools.net.body import TooLarge, read_body
from holdfast.tools.net.client import HttpClient, Trip
from holdfast.tools.runtime.cancellation import NeverBegan, StillRunning
from holdfast.tools.runtime.fair_queue import Pacer, parse_rate
from holdfast.tools.runtime.thread_pool import pool
from holdfast.tools.search.local_index import FolderIndex
from holdfast.tools.search.results import FILES, WEB, Result, cleaned, results_in
from holdfast.tools.secrets.redaction import cover
from holdfast.tools.secrets.vault import Referring, Vault
from holdfast.tools.tool import Tool, tool
from holdfast.tools.toolset import Adapter, ToolsetFolders

RESULTS = 10
RESULTS_MAX = 50
QUERY_CHARS_MAX = 500
ANSWER_BYTES_MAX = 2 * 1024 * 1024
CONNECTIONS = 4


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`folder` for local, `url` for the others. `key` names the environment variable that holds the key, or refers to a
    secret: `${{ secrets.NAME }}`."""

    kind: Literal["local", "searxng", "brave"]
    folder: str = ""
    url: str = ""
    key: str = ""
    rate: str = ""
    timeout: str = "10s"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    providers: tuple[Provider, ...] = ()
    cache: str = "10m"  # how long an answer is good for the same question; "0s" asks every time
    allow: tuple[str, ...] = ()  # as for http: what may be reached although it is not public


class PassedOver(TypedDict):
    provider: str
    why: str


class Answer(TypedDict):
    provider: str
    results: list[Result]
    passed_over: list[PassedOver]


class Search(Adapter):
    """Questions to search providers."""

    Config = Config

    def __init__(self, config: Config, place: ToolsetFolders) -> None:
        super().__init__(config, place)
        try:
            self._cache_s = parse_duration(config.cache)
            self._client = HttpClient(Reach(config.allow, "tools.search.allow"), CONNECTIONS, None)
            self._grounds: Callable[[Path], AllowedRoots] | None = None
            self._places = [
                _Asked(one, place.secrets) for one in config.providers or (Provider(kind="local", folder="."),)
            ]
        except (InputInvalid, SettingsInvalid) as error:
            raise SettingsInvalid(f"tools.search: {error}") from None

    def keep_to(self, grounds: Callable[[Path], AllowedRoots]) -> None:
        """Search only files that may be read, as seen from an execution's folder."""
        self._grounds = grounds

    def tools(self) -> Sequence[Tool[..., Any]]:
        cache = self._cache_s or None
        return (tool(name="search.web", effect="read", cache=cache, judge=_judge, reduce=_reduced)(self.web),)

    async def health(self) -> None:
        """Ill only if nobody could be asked: whoever is down is passed over."""
        told: list[str] = []
        for place in self._places:
            try:
                await self._check(place)
            except ToolError as error:
                told.append(f"{place.name}: {error}")
            else:
                return
        raise Transient("\n".join(told))

    async def _check(self, place: _Asked) -> None:
        if place.provider.kind == "local":
            folder = self.place.root / place.provider.folder
            if not folder.is_dir():
                raise Misconfigured(f"there is no folder {folder} to search")
            return
        url, _, _ = await place.request("anything", 1)  # which wants its key
        await self._client.check_reachable(url)

    async def close(self) -> None:
        await self._client.close()

    async def web(self, query: str, call: Call, limit: int = RESULTS) -> Answer:
        """Search the web, or the files that the settings name."""
        asked = _checked(query, limit)
        passed_over: list[PassedOver] = []
        failure: ToolError | None = None
        for place in self._places:
            try:
                found = await self._ask(place, asked, limit, call)
            except ToolError as error:
                passed_over.append({"provider": place.name, "why": str(error)})
                failure = error
                continue
            # Files change at any time, and their index keeps up. Whoever was passed over may be back any moment.
            is_local = place.provider.kind == "local"
            call.may_be_cached = not is_local and not passed_over
            results = cleaned(found, limit, FILES if is_local else WEB)
            return {"provider": place.name, "results": results, "passed_over": passed_over}
        assert failure is not None
        if len(passed_over) == 1:
            raise failure
        told = "\n".join(f"{one['provider']}: {one['why']}" for one in passed_over)
        raise type(failure)(f"no search provider answered\n{told}", retry_after_s=failure.retry_after_s)

    async def _ask(self, place: _Asked, query: str, limit: int, call: Call) -> list[dict[str, Any]]:
        try:
            async with asyncio.timeout(place.timeout_s):
                if place.pacer is not None:
                    await call.take_turn(place.pacer)
                if place.provider.kind == "local":
                    return await self._ask_index(place, query, limit, call)
                try:
                    return await self._ask_server(place, query, limit, call)
                except NotPermitted:
                    if not await place.has_another_key():
                        raise
                return await self._ask_server(place, query, limit, call)
        except (TimeoutError, StillRunning, NeverBegan) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # it was the step that was cut, and not the thread that was too slow
            raise Transient(f"no answer within {place.timeout_s:g} s") from None

    async def _ask_index(self, place: _Asked, query: str, limit: int, call: Call) -> list[dict[str, Any]]:
        folder = (call.folder / place.provider.folder).resolve()
        name = blake2b(os.fsencode(folder), digest_size=8).hexdigest()
        grounds = self._grounds(call.folder) if self._grounds is not None else None
        index = FolderIndex(folder, self.place.data / "search" / f"{name}.db", grounds)
        return list(await pool.run(lambda: index.search(query, limit)))

    async def _ask_server(self, place: _Asked, query: str, limit: int, call: Call) -> list[dict[str, Any]]:
        url, params, headers = await place.request(query, limit)
        trip = Trip()
        try:
            async with self._client.stream(call, "GET", url, trip=trip, params=params, headers=headers) as response:
                body = await read_body(response, url, ANSWER_BYTES_MAX)
            raise_for_status(url, response, body)
        except HeldBack:
            raise
        except TooLarge as error:
            said = f"{place.name} answers with more than {ANSWER_BYTES_MAX:,} bytes; ask for fewer results"
            raise ResourceShort(said) from error
        except Exception as error:
            raise explained(error, url, trip) from error
        try:
            answer = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise ToolError(f"{place.name} answered with something that is not JSON; check its address") from error
        return results_in(answer, place.results_at, place.snippet, place.name)


def _checked(query: str, limit: int) -> str:
    asked = " ".join(query.split())
    if not asked or len(asked) > QUERY_CHARS_MAX:
        raise InvalidCall(f"query: expected 1 to {QUERY_CHARS_MAX} characters, got {len(asked)}")
    if not 1 <= limit <= RESULTS_MAX:
        raise InvalidCall(f"limit: expected 1 to {RESULTS_MAX}, got {limit}")
    return asked


def _reduced(call: Call, arguments: dict[str, Any]) -> dict[str, Any]:
    """The same question, for half of the results."""
    return {**arguments, "limit": max(1, arguments.get("limit", RESULTS) // 2)}


def _judge(known: Mapping[str, Any], later: Collection[str]) -> None:
    _checked(known.get("query", "anything"), known.get("limit", RESULTS))


class _Asked:
    """One provider of the settings, read and checked."""

    def __init__(self, provider: Provider, secrets: Vault) -> None:
        self.provider = provider
        self._own_key = Referring({"key": provider.key}, secrets)
        self._key_used = ""
        self.name = f"{provider.kind} {provider.url or provider.folder}".strip()
        self.timeout_s = parse_duration(provider.timeout)
        if self.timeout_s == 0:
            raise SettingsInvalid("providers: a timeout of 0 leaves no time at all; leave it out for the default")
        self.pacer = Pacer(parse_rate(provider.rate)) if provider.rate else None
        is_brave = provider.kind == "brave"
        self.results_at = ("web", "results") if is_brave else ("results",)
        self.snippet = "description" if is_brave else "content" if provider.kind == "searxng" else "snippet"
        if provider.kind == "local" and not provider.folder:
            raise SettingsInvalid("providers: a local provider needs its folder")
        if provider.kind != "local" and not provider.url:
            raise SettingsInvalid(f"providers: a {provider.kind} provider needs its url")

    async def has_another_key(self) -> bool:
        """After it was refused: whether where it comes from has another one by now."""
        if not self._own_key.can_renew:
            return False
        refused = self._key_used
        if await self._key() == refused:
            self._own_key.forget()
        return await self._key() != refused

    async def request(self, query: str, limit: int) -> tuple[str, dict[str, str], dict[str, str]]:
        base = self.provider.url.rstrip("/")
        if self.provider.kind == "searxng":
            return f"{base}/search", {"q": query, "format": "json"}, {}
        return f"{base}/web/search", {"q": query, "count": str(limit)}, {"X-Subscription-Token": await self._key()}

    async def _key(self) -> str:
        if self._own_key.names:
            self._key_used = (await self._own_key.filled())["key"]
            return self._key_used
        key = os.environ.get(self.provider.key, "") if self.provider.key else ""
        if not key:
            raise Misconfigured(
                f"{self.name} needs a key; name the environment variable that holds it as `key` and set it"
            )
        cover(self.provider.key, key)
        return key
