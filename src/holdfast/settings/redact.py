"""What of the settings must not be shown: passwords in addresses, and values that are there only to be secret.

`env:NAME` says where a value is, and is shown. Refuses to guess at anything else than names and addresses: a token
among the arguments of a command is shown, as it is by `ps`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

HIDDEN = "[hidden]"
_ELSEWHERE = "env:"  # such a value only names the variable that holds it
_ALL_HIDDEN = frozenset(
    {"channels", "headers", "env"}
)  # tables of families whose values are secret, whatever their names
_SECRET_NAME = re.compile(r"passw|secret|token|authori[sz]ation|credential|api_?key|private", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)")
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s]*@")
_QUERY = re.compile(r"([?&][^=&#\s]*(?:passw|secret|token|key|sig)[^=&#\s]*=)[^&#\s]+", re.IGNORECASE)


def without_secrets(value: Any, *, is_secret: bool = False) -> Any:
    """The same settings as they may be shown. `is_secret`: whatever text is in here."""
    match value:
        case dict() | Mapping():
            pairs = cast("Mapping[str, Any]", value).items()
            return {name: without_secrets(item, is_secret=is_secret or _hides(name, item)) for name, item in pairs}
        case list() | tuple():
            return [without_secrets(item, is_secret=is_secret) for item in cast("list[Any]", value)]
        case str() if is_secret and not value.startswith(_ELSEWHERE):
            scheme = _SCHEME.match(value)
            return f"{scheme[1] if scheme else ''}{HIDDEN}"
        case str():
            return _QUERY.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", value))
        case _:
            return value


def _hides(name: str, value: Any) -> bool:
    return (name in _ALL_HIDDEN and isinstance(value, Mapping)) or bool(_SECRET_NAME.search(name))
