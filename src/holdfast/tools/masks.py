"""What this process must not tell: one set of masks for all engines in it, filled by tools/secrets.py.

Credentials that the settings of a tool name are masked, too, as far as they look like some: a variable that is handed
to a server may as well hold a folder or a word, and masking those would spoil what tools say.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from holdfast.core.masking import Masks
from holdfast.core.secrets import SECRET_CHARS_MIN

CREDENTIAL_CHARS_MIN = 8  # of a value that nobody has declared to be secret: what is shorter may be any word
TOKEN_CHARS_MIN = 16  # of a part of an address, and then with a digit in it

masks = Masks()


def cover(name: str, value: str) -> None:
    """Mask a credential, such as a key or `Bearer …`. An address is covered by its password, a path is none."""
    if "://" in value:
        cover_address(name, value)
        return
    for part in {value, value.rpartition(" ")[2]}:
        if len(part) >= CREDENTIAL_CHARS_MIN and not part.startswith(("/", "~", ".")):
            masks.add(name, part, declared=False)


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
    for piece in pieces | {password}:
        for form in {piece, unquote(piece)}:
            if len(form) >= SECRET_CHARS_MIN:
                masks.add(name, form, declared=False)
