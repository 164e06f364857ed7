"""What a family of tools is: settings of its own, resources of its own, and the tools that share both.

Owns how a family is set up from its table in the settings (`[tools.files]`, `[tools.http]` …) and let go of when its
engine closes. Refuses to open anything by being made: whatever is heavy is opened by the first call that needs it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import SettingsInvalid, Trouble
from holdfast.core.resources import DEFAULTS, Resources
from holdfast.tools.argument_errors import Mistake, explained
from holdfast.tools.secrets.vault import Vault
from holdfast.tools.tool import Tool

MEMORY = "memory:"


class ToolsetFolders(NamedTuple):
    """Where relative paths begin, and where a family may keep what must outlive the process.

    `store` is the journal's file or address. With one in memory nothing outlives the process, so nothing is kept.
    `settings` is the file that the settings were read from, if there was one, and `resources` what they say that
    anything started here may use, unless something of its own says otherwise.
    """

    root: Path = Path()
    data: Path = Path(".holdfast")
    store: str = MEMORY
    settings: str = ""
    resources: Resources = DEFAULTS
    secrets: Vault = Vault()  # those that a table of the settings may refer to


HERE = ToolsetFolders()


class HealthCheck(NamedTuple):
    """One question, for tools that are well or ill together."""

    tools: tuple[str, ...]
    ask: Callable[[], Awaitable[None]]


class NoConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For a family that has nothing to set."""


class Adapter:
    """One family of tools. `Config` is what its table in the settings may say, with every default."""

    Config: ClassVar[type[msgspec.Struct]] = NoConfig
    names_are_foreign: ClassVar[bool] = False  # others name its tools: a name that is taken stays whose it is

    def __init__(self, config: Any, place: ToolsetFolders) -> None:
        self.config = config
        self.place = place

    def tools(self) -> Sequence[Tool[..., Any]]:
        """The tools that are known without opening anything."""
        return ()

    async def open(self) -> Sequence[Tool[..., Any]]:
        """Tools that only the other side can name, asked for when an engine opens."""
        return ()

    def learn(self, again: bool = False) -> Sequence[Tool[..., Any]]:
        """As `open`, for whoever has no engine, and blocking. What was asked for lately is not asked `again`."""
        return ()

    def absent(self, tool: str) -> str:
        """Why there is no tool of that name, if this family should have it; "" if it has nothing to say to that."""
        return ""

    def missing(self, tool: str) -> Sequence[Trouble]:
        """What this machine lacks for one of its tools. Starts and asks nothing."""
        return ()

    def suspect(self, tool: str, arguments: Mapping[str, Any]) -> Sequence[Mistake]:
        """What in these arguments, those that are known, will probably fail here: a warning, and no more."""
        return ()

    def troubles(self) -> Sequence[Trouble]:
        """What its settings ask for and cannot be had here."""
        return ()

    def has_credentials(self, tool: str) -> bool:
        """Whether what a tool answers depends on who asks, as the settings or the environment say: it is not cached."""
        return False

    async def health(self) -> None:
        """Raise a `ToolError` if the family cannot work now; its text is shown to people. Quick and harmless."""

    def health_checks(self, tools: Sequence[str]) -> Sequence[HealthCheck]:
        """Which of its tools are well or ill together, and whom to ask: all of them, unless the family knows better."""
        asks = type(self).health is not Adapter.health
        return [HealthCheck(tuple(tools), self.health)] if asks and tools else []

    def forget(self, execution_id: str) -> None:
        """An execution has ended or was interrupted here: let go of what is kept for it, without waiting."""

    async def close(self) -> None:
        """Let go of everything; the engine has ended every call before."""


def make_adapters(
    families: Mapping[str, type[Adapter]], tables: Mapping[str, Any], place: ToolsetFolders, file: str = ""
) -> list[Adapter]:
    """Every family, set up by its table; a mistake is named with its place in the settings."""
    where = f"{file}: " if file else ""
    for name in tables:
        if name not in families:
            known = did_you_mean(name, families) or f"; there are: {', '.join(sorted(families))}"
            raise SettingsInvalid(f"{where}tools.{name}: no such family of tools{known}")
    return [family(_config(family, name, tables.get(name, {}), where), place) for name, family in families.items()]


def _config(family: type[Adapter], name: str, table: Any, where: str) -> Any:
    try:
        return msgspec.convert(table, family.Config)
    except msgspec.ValidationError as error:
        place, said = explained(f"tools.{name}", family.Config, table, str(error))
        raise SettingsInvalid(f"{where}{place}: {said}") from None
