"""Reads the named queries and numbered migrations that lie beside this file, one folder per dialect."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def queries(dialect: str) -> dict[str, str]:
    """`-- name: x` starts query x; the comments below it are for readers."""
    text = resources.files(__name__).joinpath(dialect, "queries.sql").read_text("utf-8")
    parts = _NAME.split(text)[1:]
    return {name: _strip(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def migrations(dialect: str) -> list[str]:
    """In order; the n-th brings the schema from version n - 1 to n."""
    folder = resources.files(__name__).joinpath(dialect)
    names = sorted(item.name for item in folder.iterdir() if item.name[:4].isdigit())
    return [folder.joinpath(name).read_text("utf-8") for name in names]


def _strip(body: str) -> str:
    return "\n".join(line for line in body.strip().splitlines() if not line.startswith("--"))
