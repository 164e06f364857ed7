"""What the tests of MCP tools share: a family with one server, and ways to call its tools."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.tools.call import SILENT, Call
from holdfast.tools.mcp.toolset import Config, Mcp
from holdfast.tools.registry import Registry
from holdfast.tools.toolset import ToolsetFolders

SERVERS = Path(__file__).parents[1] / "servers"
MODULES = SERVERS / "npm" / "node_modules"
NPM = MODULES / "@modelcontextprotocol"

# In continuous integration they run, and fail, where they are not there: a gate must not pass without them.
needs_servers = pytest.mark.skipif(
    os.environ.get("CI") != "true" and (shutil.which("node") is None or not (MODULES / ".installed").exists()),
    reason="needs Node.js, and the servers that `make test` installs into tests/servers/npm",
)


def hostile(vice: str, folder: Path, **more: Any) -> dict[str, Any]:
    """The settings of a server with that vice."""
    env = {"COUNT": str(folder / "count")}
    return {"command": [sys.executable, str(SERVERS / "hostile_mcp.py"), vice], "env": env, **more}


def node(package: str, *arguments: str, **more: Any) -> dict[str, Any]:
    return {"command": ["node", str(NPM / package / "dist" / "index.js"), *arguments], **more}


class Family:
    def __init__(self, adapter: Mcp, registry: Registry, folder: Path) -> None:
        self.adapter = adapter
        self.registry = registry
        self._folder = folder

    async def call(self, name: str, host: Any = SILENT, **arguments: Any) -> Any:
        tool = self.registry.get(name)
        call = Call("e", "step", 1, "key-1", self._folder, host=host)
        answer = await tool.invoke(tool.validate(arguments), call)
        tool.output(answer)
        return answer


@asynccontextmanager
async def family(folder: Path, **servers: Any) -> AsyncIterator[Family]:
    config = msgspec.convert({"servers": servers}, Config)
    adapter = Mcp(config, ToolsetFolders(folder, folder / ".holdfast", str(folder / "journal.db")))
    registry = Registry()
    registry.add_adapter(adapter)
    await registry.open()
    try:
        yield Family(adapter, registry, folder)
    finally:
        await registry.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
