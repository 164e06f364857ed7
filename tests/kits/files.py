"""A family of file tools in a folder, called as a step calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast.tools.call import Call, Verdict
from holdfast.tools.files import Files
from holdfast.tools.tool import Tool
from holdfast.tools.toolset import Adapter, ToolsetFolders, make_adapters

FAMILIES: dict[str, type[Adapter]] = {"files": Files}


class Desk:
    """The project's folder is `folder`; Holdfast's own data lies in it, as it usually does."""

    def __init__(
        self, folder: Path, *, store: str = "", data: Path | None = None, settings_file: str = "", **config: Any
    ) -> None:
        self.folder = folder
        own = data or folder / ".holdfast"
        place = ToolsetFolders(folder, own, store or str(own / "journal.db"), settings_file)
        (family,) = make_adapters(FAMILIES, {"files": config}, place)
        assert isinstance(family, Files)
        self.family = family
        self.tools = {tool.name.removeprefix("files."): tool for tool in family.tools()}

    def call(self, step: str = "step", execution: str = "run", attempt: int = 1) -> Call:
        return Call(execution, step, attempt, f"{execution}:{step}", self.folder)

    async def do(self, name: str, step: str = "step", execution: str = "run", **arguments: Any) -> Any:
        """As a step does it: validate, call, check the output."""
        tool: Tool[..., Any] = self.tools[name]
        value = await tool.invoke(tool.validate(arguments), self.call(step, execution))
        tool.output(value)
        return value

    async def verify(self, name: str, step: str = "step", **arguments: Any) -> Verdict:
        return await self.tools[name].run_verify(arguments, self.call(step))

    async def undo(self, name: str, step: str = "step") -> None:
        await self.tools[name].run_undo({}, None, self.call(step))

    def contents(self) -> dict[str, str]:
        """Every file of the project and what is in it, without Holdfast's own."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and ".holdfast" not in path.parts)
        return {str(path.relative_to(self.folder)): path.read_text(errors="replace") for path in found}

    def die_while_changing(self, name: str, **arguments: Any) -> None:
        """In a process of its own, which dies when the change is on record and not yet made."""
        done = subprocess.run(
            [sys.executable, "-c", _DIES, str(self.folder), name, json.dumps(arguments)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert done.returncode == 9


_DIES = """
import json, os, pathlib, sys
from holdfast.tools.files import atomic_ops
from kits.files import Desk
atomic_ops._check_unchanged = atomic_ops.move = lambda *_: os._exit(9)
folder, name, arguments = sys.argv[1:]
desk = Desk(pathlib.Path(folder))
getattr(desk.family.changer, name)(**json.loads(arguments), call=desk.call())
"""
