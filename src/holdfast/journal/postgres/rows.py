"""What PostgreSQL's rows mean: heads, commands, and the values of a list's conditions.

The server keeps the types of its columns, so that of a head only the JSON inside it can be spoilt: such a head comes
back set aside, with a sentence that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from holdfast.core.commands import Command
from holdfast.core.events import Reason
from holdfast.journal.postgres.connection import Connection, statements
from holdfast.journal.query_match import label_marks, label_part, regex, words
from holdfast.journal.store import Head, Query

_NAMES = Head.__struct_fields__
_JSON = {"labels": msgspec.json.Decoder(dict[str, str]), "reasons": msgspec.json.Decoder(tuple[Reason, ...])}


class HeadRow(NamedTuple):
    """A head, and what is wrong with its row: "" if nothing is."""

    head: Head
    trouble: str = ""


async def read_heads(connection: Connection, which: Sequence[str], values: dict[str, Any]) -> list[HeadRow]:
    """The heads that fit the named parts of a query, in their order."""
    sql = statements()
    cursor = await connection.execute(b" ".join(sql[name] for name in ("head_columns", *which)), values)
    return [_found(row) for row in await cursor.fetchall()]


def _found(row: Sequence[Any]) -> HeadRow:
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    trouble = ""
    for name, decoder in _JSON.items():
        try:
            values[name] = decoder.decode(values[name])
        except msgspec.MsgspecError as error:
            del values[name]
            trouble = trouble or f"its row in the list cannot be read ({name}: {error})"
    values["quarantined"] = values["quarantined"] or trouble
    return HeadRow(Head(**values), trouble)


def head_values(head: Head) -> dict[str, Any]:
    """A head as the named values of its columns."""
    values = msgspec.structs.asdict(head)
    values["labels"] = json_text(head.labels)
    values["reasons"] = json_text(head.reasons)
    values["key_digest"] = key_digest(head.owner, head.key) if head.key else None
    return values


def key_digest(owner: str, key: str) -> bytes:
    return blake2b(f"{len(owner)}:{owner}{key}".encode(), digest_size=16).digest()


def command_of(row: Sequence[Any]) -> Command:
    identity, execution_id, verb, at, by, arguments = row
    return Command(id=identity, execution_id=execution_id, verb=verb, at=at, by=by, arguments=msgspec.Raw(arguments))


def query_values(query: Query) -> dict[str, Any]:
    marks = [label_marks(key, value) for key, value in query.labels.items()]
    return {
        "ids": list(query.ids) or None,
        "status": list(query.status) or None,
        "held": query.held or None,
        "name": query.name or None,
        "owner": query.owner or None,
        "parent_id": query.parent_id,
        "forked_from": query.forked_from or None,
        "failed_step": query.failed_step or None,
        "error": regex(query.error) or None,
        "texts": [regex(word) for word in words(query)],
        "label_texts": [None if (part := label_part(word)) is None else regex(part) for word in words(query)],
        "firsts": [first for first, _ in marks],
        "others": [other for _, other in marks],
        "created_after": query.created_after,
        "created_before": query.created_before,
        "ended_before": query.ended_before,
        "ended_at": query.ended_after[0] if query.ended_after else None,
        "ended_id": query.ended_after[1] if query.ended_after else None,
        "before": query.before or None,
        "limit": query.limit,
    }


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
