"""Text as JSON: what a server answers, what a command prints, and `json(text)` in expressions.

Refuses what could not be handed on: numbers beyond 64 bits, half a surrogate pair, NaN.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_LONG_NUMBER = re.compile(r"\d{19}")
_INTEGER_MAX = 2**63 - 1


class JsonInvalid(ValueError):
    """The text is not JSON; the message says why and where."""


def read_json(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
        if _LONG_NUMBER.search(text):
            json.loads(text, parse_int=_bounded)
    except RecursionError:
        raise JsonInvalid("it is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeError, ValueError) as error:
        raise JsonInvalid(_why(text, error)) from None
    return value


def _bounded(digits: str) -> int:
    number = int(digits)
    if abs(number) > _INTEGER_MAX:
        raise JsonInvalid("it holds a whole number of more than 64 bits")
    return number


def _why(text: str, error: Exception) -> str:
    """The standard library knows the line."""
    if isinstance(error, JsonInvalid):
        return str(error)
    try:
        json.loads(text)
    except json.JSONDecodeError as known:
        return f"{known.msg[:1].lower()}{known.msg[1:]} (line {known.lineno}, column {known.colno})"
    except (ValueError, RecursionError):
        pass
    said = str(error)
    return f"{said[:1].lower()}{said[1:]}"
