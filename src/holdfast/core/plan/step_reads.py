"""Whether a plan reads what one of its steps gave: looked up in the document, as it was written.

Errs on the side of yes: steps of the same id in inner lists are not told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from holdfast.core.expressions import chains, split_template

_OTHERS = frozenset({"status", "error", "failure"})  # what a step has besides its output


def is_output_read(document: Any, path: str) -> bool:
    """Whether an expression of the plan reads the output of the step, or of a step that it is a part of."""
    ids = {part.partition("[")[0] for part in path.split("/")}
    return any(_reads(chain, ids) for text in _expressions(document) for chain in chains(text))


def _reads(chain: str, ids: set[str]) -> bool:
    parts = chain.split(".")
    if parts[0] != "steps":
        return False
    return len(parts) == 1 or (parts[1] in ids and (len(parts) == 2 or parts[2] not in _OTHERS))


def _expressions(document: Any) -> Iterator[str]:
    """Every expression that stands anywhere in a plan."""
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        key, value = waiting.pop()
        match value:
            case dict():
                waiting += cast("dict[str, Any]", value).items()
            case list():
                waiting += [("", item) for item in cast("list[Any]", value)]
            case str() if "${{" in value:
                pieces = split_template(value)
                yield from [value] if isinstance(pieces, str) else [text for is_one, text in pieces if is_one]
            case str() if key == "when":
                yield value
            case _:
                pass
