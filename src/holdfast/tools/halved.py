"""The `reduce` hook of tools that take a size or a number: the same again, with half of it."""

from __future__ import annotations

from typing import Any

from holdfast.tools.call import Call
from holdfast.tools.hooks import Hook


def halved(argument: str, default: int) -> Hook:
    """`default` is what the tool takes if the call does not say."""

    def reduce(call: Call, arguments: dict[str, Any]) -> dict[str, Any]:
        said = arguments.get(argument)
        return {**arguments, argument: max(1, (default if said is None else said) // 2)}

    return reduce
