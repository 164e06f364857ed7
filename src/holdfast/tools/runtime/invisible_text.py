"""Characters of a stranger's text that nobody sees and a model reads all the same: such text can hide orders."""

from __future__ import annotations

import re
from unicodedata import category

# Those that Unicode counts among letters, marks or signs although they show nothing. U+FE0F stays: it makes emoji.
_SHOWS_NOTHING = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\U000e0000-\U000e0fff]"
)


def has_unseen(text: str) -> bool:
    return not text.isprintable() or _SHOWS_NOTHING.search(text) is not None


def without_unseen(text: str, keep: str = "") -> str:
    """Without all that cannot be seen, but what is to `keep`; what separates words, such as a tab, becomes a space."""
    if not text.isprintable():  # which Python says of "Other" characters, and of every space but the common one
        text = "".join(char if char.isprintable() or char in keep else _instead(char) for char in text)
    return _SHOWS_NOTHING.sub("", text)


def _instead(char: str) -> str:
    return "" if category(char) == "Cf" else " "  # those that say how to write stand within words
