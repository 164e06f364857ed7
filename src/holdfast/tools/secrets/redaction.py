"""What this process must not tell: one set of masks for all engines in it, filled by tools/secrets/vault.py.

Credentials that the settings of a tool name are masked, too, as far as they look like some: a variable that is handed
to a server may as well hold a folder or a word, and masking those would spoil what tools say and give back.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from holdfast.core.masking import Masks

CREDENTIAL_CHARS_MIN = 8  # of a value that nobody has declared to be secret: what is shorter may be any word
TOKEN_CHARS_MIN = 16  # of a part of an address, and then with a digit in it
_SAYS_SO = re.compile(r"auth|bearer|cookie|credential|key|pass|pwd|secret|session|signature|token", re.IGNORECASE)

masks = Masks()
too_short: set[str] = set()  # names of what is a credential, and is not masked because it has too few characters


def cover(name: str, value: str) -> None:
    """Mask a credential, such as a key or `Bearer …`. An address is covered by its password, a path is none."""
    if "://" in value:
        cover_address(name, value)
        return
    for part in {value, value.rpartition(" ")[2]}:
        if len(part) >= CREDENTIAL_CHARS_MIN and not _is_path(part):
            masks.add(name, part, declared=False)


def cover_literal(name: str, value: str) -> None:
    """Mask a value that stands in the settings itself, if it is a credential by its name or by its looks: most of the
    others are plain words, such as `application/json`."""
    word = value.rpartition(" ")[2]
    looks_so = len(word) >= TOKEN_CHARS_MIN and any(map(str.isdigit, word)) and any(map(str.isalpha, word))
    if looks_so or _SAYS_SO.search(name):
        cover(name, value)


def _is_path(text: str) -> bool:
    """Whether it looks like one, or like a list of them, and is there: a key may begin like a path, and be none."""
    try:
        return text.startswith(("/", "~", ".")) and any(
            os.path.lexists(os.path.expanduser(part)) for part in text.split(os.pathsep) if part
        )
    except ValueError:  # a NUL: nothing that a file could be called
        return False


def cover_address(name: str, address: str) -> None:
    """Mask the password of an address, and the parts of it that are tokens."""
    try:
        parts = urlsplit(address)
        host, password = parts.hostname or "", parts.password or ""
    except ValueError:
        host, password = "", ""
    pieces = {
        piece
        for piece in re.split(r"[/?&=@:#,]+", address.partition("://")[2])
        if len(piece) >= TOKEN_CHARS_MIN and any(map(str.isdigit, piece)) and not (piece == host and "." in host)
    }
    if password and len(unquote(password)) < CREDENTIAL_CHARS_MIN and not masks.found_in(unquote(password)):
        too_short.add(name)
    for piece in pieces | {password}:
        for form in {piece, unquote(piece)}:
            if len(form) >= CREDENTIAL_CHARS_MIN:
                masks.add(name, form, declared=False)
