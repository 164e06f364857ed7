"""The built-in tools: what they do, and that every way to fail says what to do about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidCall
from holdfast.tools import sleep
from holdfast.tools.call import Call
from holdfast.tools.tool import Tool


async def run(tool: Tool[..., Any], folder: Path, **arguments: Any) -> Any:
    """As a step does it: validate, call, check the output."""
    call = Call("execution", "step", 1, "key", folder)
    value = await tool.invoke(tool.validate(arguments), call)
    tool.output(value)
    return value


# ---- time.sleep, and all of them -------------------------------------------------------------------------------------


async def test_sleeping_takes_the_time_it_is_given() -> None:
    assert await run(sleep.sleep, Path(), seconds=0) is None
    with pytest.raises(InvalidCall, match="seconds: expected a number from 0 upwards, got -1"):
        await run(sleep.sleep, Path(), seconds=-1)


def test_the_builtin_tools_import_nothing_heavy() -> None:
    program = (
        "import sys; from holdfast.tools.builtin import builtin_tools; builtin_tools()\n"
        "heavy = ('httpx', 'playwright', 'pydantic', 'apsw', 'yaml', 'rich', 'typer')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
