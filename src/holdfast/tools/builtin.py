"""The tools every engine has. What they need that is heavy, they import when they are called."""

from __future__ import annotations

from typing import Any

from holdfast.tools import clock, files, http, shell
from holdfast.tools.tool import Tool


def builtin_tools() -> list[Tool[..., Any]]:
    return [shell.run, files.read, files.write, http.get, clock.sleep]
