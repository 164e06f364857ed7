"""Commands that make no sense: arguments of another type, too large, or such as do not fit what they are about."""

from __future__ import annotations

from random import Random

import msgspec

from holdfast.core.commands import DATA_BYTES_MAX

TOO_LARGE = 0.02  # how often: each is kept whole
_UNREADABLE = (
    b"[]",
    b'"now"',
    b'{"why":null}',
    b'{"why":7}',
    b'{"until":"soon"}',
    b'{"step":["s0"]}',
    b'{"forced":"yes"}',
)
_UNFIT_STEPS = (
    {"id": "odd"},
    [{"id": 7, "tool": "look"}],
    [{"id": "odd", "tool": "nowhere"}],
    [{"id": "odd", "tool": "look", "needs": ["nobody"]}],
)


def oddity(verb: str, asked: str, rng: Random) -> bytes:
    """The arguments of one; `asked` is a request that is open, if there is one."""
    if rng.random() < TOO_LARGE:
        return msgspec.json.encode({"why": "x" * DATA_BYTES_MAX})
    if verb == "extend" and rng.random() < 0.7:
        return msgspec.json.encode({"data": rng.choice(_UNFIT_STEPS), "count": 1})
    if verb == "approve" and asked and rng.random() < 0.7:
        return msgspec.json.encode({"step": asked, "arguments": rng.choice(([1], "value", 7))})
    if verb == "resolve" and asked and rng.random() < 0.7:
        return msgspec.json.encode({"step": asked, "remedy": "again", "data": rng.choice(([1], "value", 7))})
    return rng.choice(_UNREADABLE)
