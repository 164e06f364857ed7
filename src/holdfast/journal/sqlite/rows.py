"""What SQLite's rows mean: heads, commands, and the conditions of a list.

Heads are read one by one, so that a damaged row is a damaged execution and not a damaged store: it comes back set
aside, with as much of it as can be read, and with a sentence that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import msgspec

from holdfast.core.commands import Answer, Command
from holdfast.core.events import Reason
from holdfast.journal.codec import DIGEST_BYTES
from holdfast.journal.keyed import KeyedRow
from holdfast.journal.query_match import TEXTS, glob, label_marks, label_part, like, words
from holdfast.journal.sql import queries
from holdfast.journal.store import Head, Query

Clause = tuple[str, tuple[Any, ...]]

_NAMES = Head.__struct_fields__
_JSON = {"labels": msgspec.json.Decoder(dict[str, str]), "reasons": msgspec.json.Decoder(tuple[Reason, ...])}
_FIELDS = {field.name: field for field in msgspec.structs.fields(Head)}


class HeadRow(NamedTuple):
    """A head, and what is wrong with its row: "" if nothing is."""

    head: Head
    trouble: str = ""


def read_heads(connection: Any, where: str, values: Any) -> list[HeadRow]:
    """The heads that fit, in the order asked for. `where` may also hold ORDER BY and LIMIT."""
    sql = queries("sqlite")
    try:
        rows = connection.execute(f"{sql['head_columns']} {where}", values).fetchall()
    except UnicodeDecodeError:  # a text that is none spoils the whole answer; one row at a time, it spoils one row
        nums = connection.execute(f"{sql['head_nums']} {where}", values).fetchall()
        return [_read_alone(connection, num) for (num,) in nums]
    return [_found(row) for row in rows]


def _read_alone(connection: Any, num: int) -> HeadRow:
    sql = queries("sqlite")
    try:
        return _found(connection.execute(f"{sql['head_columns']} WHERE num = ?", (num,)).fetchone())
    except UnicodeDecodeError as error:
        (identity,) = connection.execute(sql["head_id_bytes"], (num,)).fetchone()
        return _damaged({"id": bytes(identity).decode(errors="replace")}, str(error))


def _found(row: Any) -> HeadRow:
    stored: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    try:
        values = {name: _JSON[name].decode(value) if name in _JSON else value for name, value in stored.items()}
        return HeadRow(msgspec.convert(values, Head))
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError):
        return _damaged(stored)


def _damaged(stored: dict[str, Any], trouble: str = "") -> HeadRow:
    """What can be read of a row, and the first thing that cannot."""
    values: dict[str, Any] = {"id": str(stored["id"]), "name": "", "kind": "", "created_at": 0}
    for name, value in stored.items():
        try:
            decoded = _JSON[name].decode(value) if name in _JSON else value
            values[name] = msgspec.convert(decoded, _FIELDS[name].type)
        except (msgspec.MsgspecError, TypeError, UnicodeDecodeError) as error:
            trouble = trouble or f"{name}: {error}"
    trouble = f"its row in the list cannot be read ({trouble})"
    values["quarantined"] = values.get("quarantined") or trouble
    return HeadRow(Head(**values), trouble)


# ---- what no chain covers ----------------------------------------------------------------------------------------


def command_of(row: Any) -> Command | None:
    """A row of the inbox; None if it is not what was written."""
    identity, execution_id, verb, at, by, arguments, seal = row
    try:
        command = Command(
            id=identity.decode(),
            execution_id=execution_id.decode(),
            verb=verb.decode(),
            at=at,
            by=by.decode(),
            arguments=msgspec.Raw(arguments),
        )
        return command if seal in (b"", seal_of_command(command)) else None
    except (AttributeError, TypeError, UnicodeDecodeError):  # not even of the types that were written
        return None


def seal_of_command(command: Command) -> bytes:
    told = (command.id, command.execution_id, command.verb, command.at, command.by, bytes(command.arguments))
    return _seal("command", *told)


def seal_of_answer(answer: Answer) -> bytes:
    return _seal("answer", answer.command_id, answer.outcome, answer.text, answer.seq)


def seal_of_cached(key: str, output: bytes, expires_at: int) -> bytes:
    return _seal("cached", key, output, expires_at)


def seal_of_row(space: str, key: str, version: int, value: bytes) -> bytes:
    return _seal("row", space, key, version, value)


def keyed_row(space: str, row: Any) -> KeyedRow | None:
    """A keyed row; None if it is not what was written."""
    key, version, value, seal = row
    try:
        found = KeyedRow(key.decode(), version, value)
        return found if seal == seal_of_row(space, *found) else None
    except (AttributeError, TypeError, UnicodeDecodeError):  # not even of the types that were written
        return None


def row_version(space: str, row: Any) -> int:
    found = keyed_row(space, row)
    return found.version if found else -1


def _seal(*values: object) -> bytes:
    return blake2b(msgspec.json.encode(values), digest_size=DIGEST_BYTES).digest()


# ---- rows that may not be texts ----------------------------------------------------------------------------------


def readable(rows: Any) -> Iterator[Any]:
    """The rows without those that hold a text that is none: what one hand spoilt must not be in everybody's way."""
    while True:
        try:
            row = next(rows, None)
        except UnicodeDecodeError:
            continue
        if row is None:
            return
        yield row


def texts(rows: Any) -> list[str]:
    """The first column, where it is a text."""
    return [cast(str, row[0]) for row in readable(rows) if isinstance(row[0], str)]


def conditions(query: Query) -> tuple[str, tuple[Any, ...]]:
    """A query as SQL. Lists are short and newest first: walking the table is quick enough without more indexes."""
    clauses: list[str] = []
    values: list[Any] = []
    for clause, wanted in (*_exact(query), *_labels(query), *_texts(query)):
        clauses.append(clause)
        values.extend(wanted)
    return (f"WHERE {' AND '.join(clauses)}" if clauses else ""), tuple(values)


def _exact(query: Query) -> Iterator[Clause]:
    status = (
        "status" if query.ended_after is None else "+status"
    )  # the plus sign: not the index of that, but of the order
    for column, several in (("id", query.ids), (status, query.status)):
        if several:
            yield f"{column} IN (SELECT value FROM json_each(?))", (msgspec.json.encode(several).decode(),)
    if query.held:
        yield "(held <> '' OR (status = 'queued' AND wake_at IS NULL))", ()
    for column, one in (
        ("name", query.name),
        ("owner", query.owner),
        ("failed_path", query.failed_step),
        ("forked_from", query.forked_from),
    ):
        if one:
            yield f"{column} = ?", (one,)
    # Said for the partial indexes, which are not used without it.
    if query.parent_id:
        yield "parent_id <> ''", ()
    if query.forked_from:
        yield "forked_from <> ''", ()
    if query.ended_after is not None:
        yield "ended_at <> 0 AND (ended_at, id) > (?, ?)", query.ended_after
    for clause, value in (
        ("parent_id = ?", query.parent_id),
        ("created_at >= ?", query.created_after),
        ("created_at < ?", query.created_before),
        ("ended_at <> 0 AND ended_at < ?", query.ended_before),
        ("num < (SELECT num FROM executions WHERE id = ?)", query.before or None),
    ):
        if value is not None:
            yield clause, (value,)


def _labels(query: Query) -> Iterator[Clause]:
    for key, value in query.labels.items():
        yield "(instr(labels, ?) = 1 OR instr(labels, ?))", label_marks(key, value)


def _texts(query: Query) -> Iterator[Clause]:
    for word in words(query):
        operator, pattern = _part(word)
        anywhere = " OR ".join(f"{column} {operator}" for column in TEXTS)
        in_labels = label_part(word)
        if in_labels is None:
            yield f"({anywhere})", (pattern,) * len(TEXTS)
        else:
            operator, other = _part(in_labels)
            yield f"({anywhere} OR labels {operator})", (*(pattern,) * len(TEXTS), other)
    if query.error:
        operator, pattern = _part(query.error)
        yield f"error {operator}", (pattern,)


def _part(part: str) -> tuple[str, str]:
    """LIKE is four times as fast, and knows the cases of ASCII alone."""
    return ("LIKE ? ESCAPE '!'", like(part)) if part.isascii() else ("GLOB ?", glob(part))
