"""Reads the named queries and numbered migrations that lie beside this file, one folder per dialect."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def queries(dialect: str) -> dict[str, str]:
    """`-- name: x` starts query x; the comments below it are for readers."""
    text = (_HERE / dialect / "queries.sql").read_text("utf-8")
    parts = _NAME.split(text)[1:]
    return {name: _strip(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def migrations(dialect: str) -> list[str]:
    """In order; the n-th brings the schema from version n - 1 to n."""
    files = sorted(file for file in (_HERE / dialect).iterdir() if file.name[:4].isdigit())
    return [file.read_text("utf-8") for file in files]


def _strip(body: str) -> str:
    return "\n".join(line for line in body.strip().splitlines() if not line.startswith("--"))
