"""Every text there is, in PostgreSQL's: they cannot hold the character zero, and a tool's error message may.

It is written as two characters of the private use area and read back as it was, in every column and every condition.
"""

from __future__ import annotations

from typing import cast

import psycopg
from psycopg.abc import Buffer
from psycopg.types.string import StrDumper, TextLoader

_MARK, _ZERO = "\ue000", "\ue000\ue001"
_MARK_ITSELF = "\ue000\ue002"


def escape(text: str) -> str:
    return text.replace(_MARK, _MARK_ITSELF).replace("\0", _ZERO)


def unescape(text: str) -> str:
    return text.replace(_ZERO, "\0").replace(_MARK_ITSELF, _MARK)


class _Dumper(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escape(obj))


class _Loader(TextLoader):
    def load(self, data: Buffer) -> str:
        text = cast(str, super().load(data))
        return unescape(text) if _MARK in text else text


def adapt_texts(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
    connection.adapters.register_dumper(str, _Dumper)
    connection.adapters.register_loader("text", _Loader)
