"""What the texts of a query mean, for every store alike: words in any case, labels, parts of an error.

The databases' own ideas of upper and lower case end at ASCII, or depend on how a server was set up. So a pattern names
both cases of each letter itself; and whatever has a meaning in a pattern is taken literally.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.journal.store import Head, Query

TEXTS = ("id", "name", "title", "owner", "error")  # where words are looked for, beside the labels
_PUNCTUATION = ("{", "}", "{}", ":", ",")  # what stands in the JSON of labels without being part of any


def words(query: Query) -> list[str]:
    return query.text.split()


def fits(head: Head, query: Query) -> bool:
    """Whether a head is asked for: what the databases say in SQL. `before` and `limit` are not looked at."""
    return (
        _has_texts(head, query)
        and (not query.ids or head.id in query.ids)
        and (not query.status or head.status in query.status)
        and (not query.held or bool(head.held) or (head.status == "queued" and head.wake_at is None))
        and (not query.name or head.name == query.name)
        and (not query.owner or head.owner == query.owner)
        and (query.parent_id is None or head.parent_id == query.parent_id)
        and (not query.forked_from or head.forked_from == query.forked_from)
        and (not query.failed_step or head.failed_path == query.failed_step)
        and all(key in head.labels and value in (None, head.labels[key]) for key, value in query.labels.items())
        and (query.created_after is None or head.created_at >= query.created_after)
        and (query.created_before is None or head.created_at < query.created_before)
        and (query.ended_before is None or 0 < head.ended_at < query.ended_before)
        and (query.ended_after is None or (head.ended_at > 0 and (head.ended_at, head.id) > query.ended_after))
    )


def _has_texts(head: Head, query: Query) -> bool:
    if not query.text and not query.error:
        return True
    told = [head.id, head.name, head.title, head.owner, head.error]
    texts = [text.lower() for text in told]
    labels = msgspec.json.encode(head.labels).decode().lower()
    return query.error.lower() in texts[-1] and all(
        any(word.lower() in text for text in texts)
        or ((part := label_part(word)) is not None and part.lower() in labels)
        for word in words(query)
    )


def label_part(word: str) -> str | None:
    """How a word reads inside the JSON of labels; None for one that is found there whatever the labels say.

    A quote is escaped inside of a name or a value, so that none of those around them is found.
    """
    return None if word in _PUNCTUATION else _json(word)[1:-1]


def label_marks(key: str, value: str | None) -> tuple[str, str]:
    """How the JSON of labels reads if this one is among them: as the first, or after another one.

    Quotes inside of a name or a value are escaped there, so that only the name of a label follows a bracket or a comma.
    """
    pair = f"{_json(key)}:{_json(value) if value is not None else ''}"
    return "{" + pair, "," + pair


def like(part: str) -> str:
    """For SQLite's LIKE ... ESCAPE, which knows both cases of ASCII letters."""
    literal = re.sub("([%_!])", r"!\1", part)
    return f"%{literal}%"


def glob(part: str) -> str:
    """For SQLite's GLOB, where a letter is written as the set of its two cases."""
    return f"*{''.join(f'[{either}]' if either not in ('^', ']') else either for either in _either_case(part))}*"


def regex(part: str) -> str:
    """For PostgreSQL's regular expressions."""
    return "".join(f"[{either}]" if either.isalnum() else re.escape(either) for either in _either_case(part))


def _either_case(part: str) -> list[str]:
    return ["".join(sorted({char, *(c for c in (char.lower(), char.upper()) if len(c) == 1)})) for char in part]


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
