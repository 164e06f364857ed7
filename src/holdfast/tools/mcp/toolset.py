"""The settings of MCP servers, and their tools as the registry knows them.

Which tools there are, only the server knows: it is asked when an engine opens and nothing is on disk (catalog.py), or
when that is old. After that a server is started by the first call that needs it. One that cannot be started costs
nobody but those who need its tools: they are missing, and the reason is told.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.durations import parse_duration
from holdfast.core.errors import InputInvalid, Misconfigured, SettingsInvalid, ToolError, Trouble
from holdfast.core.plan.resources import resources_of
from holdfast.core.policy import Approval, Effect
from holdfast.core.resources import Resources
from holdfast.tools.argument_errors import Mistake
from holdfast.tools.call import Call
from holdfast.tools.mcp.catalog import Catalogue, Described, Offer
from holdfast.tools.mcp.results import Answer, Misfit
from holdfast.tools.mcp.schema import EXTRA_NEEDED, SchemaSignature
from holdfast.tools.mcp.server import Reached, Server
from holdfast.tools.mcp.tool import McpTool, refuse_if_stricter
from holdfast.tools.mcp.transport import minimal_environment
from holdfast.tools.options import Options
from holdfast.tools.secrets.redaction import cover, cover_literal
from holdfast.tools.secrets.vault import Referring, Vault
from holdfast.tools.tool import Tool
from holdfast.tools.toolset import MEMORY, Adapter, HealthCheck, ToolsetFolders

SERVERS_MAX = 50
FROM_HERE = "env:"
REFERS = "${{"
HELD = ("memory", "processes", "open_files")  # limits of a server
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
# Names of families that come with Holdfast, or will: a server of that name could pass for one of them.
TAKEN = frozenset(
    {"agent", "browser", "files", "holdfast", "http", "human", "mcp", "models", "notify", "search", "shell", "time"}
)
log = logging.getLogger("holdfast")


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`command` or `url`. Values of `env` and `headers` may be `env:NAME`, a variable of the environment here, or
    refer to a secret: `Bearer ${{ secrets.NAME }}`."""

    command: tuple[str, ...] = ()
    url: str = ""
    env: tuple[str, ...] | dict[str, str] = ()  # variables handed on; in a map, what they are set to
    headers: dict[str, str] = {}
    cwd: str = "."
    timeout: str = "60s"  # of one call, unless its step says otherwise
    start_timeout: str = "30s"
    allow: tuple[str, ...] = ("*",)  # tools that can be called; `*` stands for anything
    deny: tuple[str, ...] = ()
    effects: dict[str, Effect] = {}  # by the name of a tool, or a pattern of names
    trust_hints: bool = False  # what a server says of its own tools is a claim; who trusts it, says so
    approval: bool | tuple[str, ...] = False  # for all tools, or for those named
    resources: dict[str, int | str] = {}  # memory, processes and open files of the server that is started here


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    servers: dict[str, ServerConfig] = {}


class Mcp(Adapter):
    """The tools of MCP servers."""

    Config = Config
    names_are_foreign = True

    def __init__(self, config: Config, place: ToolsetFolders) -> None:
        super().__init__(config, place)
        if len(config.servers) > SERVERS_MAX:
            raise SettingsInvalid(f"tools.mcp.servers: at most {SERVERS_MAX} are possible, got {len(config.servers)}")
        self._sources = [ServerSource(name, server, place) for name, server in config.servers.items()]

    def tools(self) -> Sequence[Tool[..., Any]]:
        return [tool for source in self._sources for tool in source.known()]

    async def open(self) -> Sequence[Tool[..., Any]]:
        found = await asyncio.gather(*(source.asked() for source in self._sources))
        return [tool for tools in found for tool in tools]

    def learn(self, again: bool = False) -> Sequence[Tool[..., Any]]:
        """For whoever has no engine and no event loop: as `open`, with servers that are ended again."""
        wanted = [source for source in self._sources if again or source.is_old()]
        if not wanted:
            return ()
        found: list[Tool[..., Any]] = []

        async def ask() -> None:
            try:
                for tools in await asyncio.gather(*(source.asked(again=again) for source in wanted)):
                    found.extend(tools)
            finally:
                await self.close()

        # In a thread, because nobody can know whether a loop runs in this one.
        asking = threading.Thread(target=lambda: asyncio.run(ask()), name="holdfast-mcp")
        asking.start()
        asking.join()
        return found

    def absent(self, tool: str) -> str:
        return next(filter(None, (source.absent(tool) for source in self._sources)), "")

    def troubles(self) -> Sequence[Trouble]:
        return [said for source in self._sources if (said := source.lacks())]

    def missing(self, tool: str) -> Sequence[Trouble]:
        return [said for source in self._sources if tool.startswith(f"{source.name}.") and (said := source.lacks())]

    def suspect(self, tool: str, arguments: Mapping[str, Any]) -> Sequence[Mistake]:
        own = [source for source in self._sources if tool.startswith(f"{source.name}.")]
        return [mistake for source in own for mistake in source.suspect(tool, arguments)]

    def has_credentials(self, tool: str) -> bool:
        return any(source.has_credentials for source in self._sources if tool.startswith(f"{source.name}."))

    async def health(self) -> None:
        """Raises for the first server that cannot be used."""
        for source in self._sources:
            await source.check()

    def health_checks(self, tools: Sequence[str]) -> Sequence[HealthCheck]:
        """One for each server: one that is down says nothing about the others."""
        checks: list[HealthCheck] = []
        for source in self._sources:
            own = tuple(tool for tool in tools if tool.startswith(f"{source.name}."))
            if own:
                checks.append(HealthCheck(own, source.check))
        return checks

    async def close(self) -> None:
        await asyncio.gather(*(source.close() for source in self._sources))


class ServerSource:
    """One server of the settings: its tools, and the way to it."""

    def __init__(self, name: str, config: ServerConfig, place: ToolsetFolders) -> None:
        self.name = name
        self._config = config
        self._place = place
        self._timeout_s, self._start_timeout_s = _checked(name, config)
        self._resources = _resources(name, config, place.resources)
        self._referring = _referring(name, config, place.secrets)
        folder = None if place.store == MEMORY else place.data / "mcp"
        key = [config.command, config.url, config.env, config.headers, config.cwd]
        self._catalogue = Catalogue(folder, name, key)
        self._offer = self._catalogue.read()
        self._tools: dict[str, McpTool] = {}
        self._server: Server | None = None
        self._trouble = ""

    @property
    def has_credentials(self) -> bool:
        return bool(self._config.env or self._config.headers)

    def server(self) -> Server:
        """Made on the loop it will live on."""
        if self._server is None:
            self._server = Server(self.name, self._reached_now, self._told)
        return self._server

    async def check(self) -> None:
        await self.server().check()

    def known(self) -> list[McpTool]:
        """The tools it offers, as far as anybody here knows; the same object for the same name, as long as it lives."""
        offered = self._offer.tools if self._offer is not None else ()
        return [self._tool(one) for one in offered if self._is_wanted(one.name)]

    def _tool(self, described: Described) -> McpTool:
        tool = self._tools.get(described.name)
        if tool is None:
            tool = self._tools[described.name] = McpTool(self, described, self._options(described))
            if self._referring.can_renew:
                tool.refresh(self._refresh)
        tool.renew(described, self._effect(described))
        return tool

    def is_old(self) -> bool:
        return self._offer is None or not self._offer.is_fresh()

    async def asked(self, again: bool = False) -> list[McpTool]:
        if not again and not self.is_old():
            return []
        try:
            await self.server().listed()
        except ToolError as error:
            self._trouble = str(error)
            log.warning("the tools of %s are missing: %s", self.name, error)
            return []
        self._trouble = ""
        return self.known()

    def lacks(self) -> Trouble | None:
        """What keeps it from being reached, as far as that can be seen without trying."""
        if importlib.util.find_spec("mcp") is None:
            return EXTRA_NEEDED
        if missing := self._referring.missing():
            return missing
        try:
            reached = self._reached({})
        except Misconfigured as error:
            return Trouble.of(error)
        if not reached.command:
            return None
        program = reached.command[0]
        sought = os.path.join(reached.cwd, program) if "/" in program else program
        if shutil.which(sought, path=reached.env.get("PATH")) is not None:
            return None
        where = f"tools.mcp.servers.{self.name}.command"
        return Trouble(f'{where}: no program called "{program}" can be run', "install it, or correct the command")

    def absent(self, tool: str) -> str:
        """Why a tool of that name cannot be had, if it is ours to say."""
        if not tool.startswith(f"{self.name}."):
            return ""
        own = tool.removeprefix(f"{self.name}.")
        if self._trouble:
            return self._trouble
        if not self._is_wanted(own):
            return f"`allow` and `deny` of tools.mcp.servers.{self.name} leave it out"
        offered = self._offer is None or any(one.name == own for one in self._offer.tools)
        return "" if offered else f"the MCP server {self.name} does not offer it"

    async def call(self, tool: Described, arguments: Mapping[str, Any], call: Call, owner: str) -> Answer | Misfit:
        def accept(live: Described) -> None:
            refuse_if_stricter(self._effect(live), call.started_as, owner)

        return await self.server().call(tool, arguments, call, owner, accept)

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _told(self, offer: Offer) -> None:
        before = self._offer.left_out if self._offer is not None else ()
        for reason in offer.left_out if offer.left_out != before else ():
            log.warning("the MCP server %s offers what cannot be used: %s", self.name, reason)
        self._offer = offer
        self._catalogue.write(offer)
        self.known()

    async def _refresh(self, call: Call, arguments: Mapping[str, Any]) -> None:
        """After a refusal: the next attempt fetches the secrets anew, and hands them to a connection of its own."""
        self._referring.forget()
        if self._server is not None:
            self._server.retire()

    async def _reached_now(self) -> Reached:
        return self._reached(await self._referring.filled())

    def _reached(self, filled: Mapping[str, str]) -> Reached:
        """`filled` are the values that refer to secrets, by their places."""
        config, where = self._config, f"tools.mcp.servers.{self.name}"
        named = config.env if isinstance(config.env, dict) else {name: FROM_HERE + name for name in config.env}
        env = {name: filled.get(f"env.{name}") or _value(name, value, f"{where}.env") for name, value in named.items()}
        headers = {
            name: filled.get(f"headers.{name}") or _value(name, value, f"{where}.headers")
            for name, value in config.headers.items()
        }
        for name, value in headers.items():
            if not value.isascii():  # told here, and not by somebody who would show the character
                raise Misconfigured(
                    f"{where}.headers.{name}: it has a character that is not ASCII", todo="write it in ASCII"
                )
        cwd = Path(self._place.root, config.cwd)
        return Reached(
            config.command, minimal_environment(env), cwd, config.url, headers, self._start_timeout_s, self._resources
        )

    def _is_wanted(self, tool: str) -> bool:
        config = self._config
        return _fits(tool, config.allow) and not _fits(tool, config.deny)

    def _options(self, tool: Described) -> Options:
        config = self._config
        asks = config.approval if isinstance(config.approval, bool) else _fits(tool.name, config.approval)
        return Options(
            name=f"{self.name}.{tool.name}",
            effect=self._effect(tool),
            timeout_s=self._timeout_s,
            approval=Approval() if asks else None,
            description=tool.description,
        )

    def _effect(self, tool: Described) -> Effect:
        """The settings' word; without one, the server's own is believed only if they say so."""
        effects = self._config.effects
        if tool.name in effects:
            return effects[tool.name]
        for pattern, effect in effects.items():
            if fnmatchcase(tool.name, pattern):
                return effect
        if not self._config.trust_hints:
            return "once"
        return "read" if tool.reads_only else "idempotent" if tool.is_idempotent else "once"

    def suspect(self, tool: str, arguments: Mapping[str, Any]) -> list[Mistake]:
        """What nobody here checks about them."""
        known = next((one for one in self.known() if one.name == tool), None)
        signature = known.signature if known is not None else None
        try:
            return signature.unchecked(arguments) if isinstance(signature, SchemaSignature) else []
        except Misconfigured:
            return []  # a schema that cannot be used is told by whoever checks by it


def _fits(tool: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)


def _referring(name: str, config: ServerConfig, secrets: Vault) -> Referring:
    """The values that refer to secrets."""
    env = config.env if isinstance(config.env, dict) else {}
    placed = {"env": env, "headers": config.headers}
    texts = {f"{part}.{key}": text for part, values in placed.items() for key, text in values.items() if REFERS in text}
    try:
        return Referring(texts, secrets)
    except InputInvalid as error:
        raise SettingsInvalid(f"tools.mcp.servers.{name}: {error}") from None


def _value(name: str, value: str, where: str) -> str:
    if REFERS in value:
        return value
    if not value.startswith(FROM_HERE):
        cover_literal(name, value)
        return value
    variable = value.removeprefix(FROM_HERE)
    if variable not in os.environ:
        raise Misconfigured(f"{where}: the environment variable {variable} is not set", todo="set it")
    cover(variable, os.environ[variable])
    return os.environ[variable]


def _resources(name: str, config: ServerConfig, otherwise: Resources) -> Resources:
    """What the server may have at one time; where its own settings say nothing, what anything may here.

    What it uses up by and by has no limit: it may run for weeks.
    """
    where = f"tools.mcp.servers.{name}.resources"
    if config.url and config.resources:
        raise SettingsInvalid(f"{where}: only a server that is started by `command` can be held to limits")
    if others := sorted(config.resources.keys() - set(HELD)):
        raise SettingsInvalid(f"{where}.{others[0]}: unknown key; known are: {', '.join(HELD)}")
    try:
        return resources_of(config.resources).over(otherwise)
    except InputInvalid as error:
        raise SettingsInvalid(
            "\n".join(f"tools.mcp.servers.{name}.{line}" for line in str(error).splitlines())
        ) from None


def _checked(name: str, config: ServerConfig) -> tuple[float, float]:
    """The two time limits in seconds; every mistake that can be seen in the settings alone is told now."""
    where = f"tools.mcp.servers.{name}"
    if name in TAKEN:
        raise SettingsInvalid(f'{where}: "{name}" is a family of tools that comes with Holdfast; choose another name')
    if not _NAME.fullmatch(name):
        raise SettingsInvalid(f"{where}: expected a name of small letters, digits, _ and -, at most 40 long")
    if bool(config.command) == bool(config.url):
        raise SettingsInvalid(f"{where}: expected either `command` or `url`")
    if config.url and not config.url.startswith(("http://", "https://")):
        raise SettingsInvalid(
            f'{where}.url: expected an address that begins with http:// or https://, got "{config.url}"'
        )
    if config.url and config.env:
        raise SettingsInvalid(f"{where}.env: only a server that is started by `command` has an environment")
    if config.command and config.headers:
        raise SettingsInvalid(f"{where}.headers: only a server with a `url` is sent headers")
    try:
        limits = parse_duration(config.timeout), parse_duration(config.start_timeout)
    except InputInvalid as error:
        raise SettingsInvalid(f"{where}: {error}") from None
    if not all(limits):
        raise SettingsInvalid(f"{where}: a time limit of 0 leaves no time at all; leave it out for the default")
    return limits
