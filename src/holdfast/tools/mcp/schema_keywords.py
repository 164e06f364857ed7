"""The words of a schema that are judged here otherwise than the library does: all that look at a pattern.

Owns the names under which patterns are kept, which nobody else judges by, and what follows from one that was left to
the server: it counts as kept to, and whoever would refuse because of that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from holdfast.tools.mcp.re2_patterns import Matching
from holdfast.tools.secrets.redaction import masks

PATTERN = "x-pattern"
NAMES = "x-patternProperties"
OTHERS = "x-additionalProperties"  # of a schema that has patterns of names
PATTERN_CHARS_SHOWN = 100

# A schema inside these may be kept to and yet be a mistake, or change what else is looked at.
_TURNING = ("not", "oneOf", "if", "contains", "unevaluatedProperties", "unevaluatedItems")

Judge = Callable[[Any, Any, Any, Any], Iterator[Any]]


def keywords(
    library: dict[str, Judge], matching: Callable[[], Matching], mistake: Callable[[str], Any], everywhere: list[str]
) -> Any:
    """By name; `matching` is that of the check under way. `everywhere` are the patterns of names of the whole schema:
    where all that lies below a schema or behind its references counts, a name that fits any of them is let pass."""

    def fits(pattern: str, text: str) -> bool:
        return matching().fits(pattern, text) is not False

    def pattern(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, str) and not fits(wanted, value):
            yield mistake(f"expected text that matches {shown(wanted)}")

    def names(validator: Any, schemas: Any, value: Any, schema: Any) -> Iterator[Any]:
        for wanted, each in schemas.items() if isinstance(value, dict) else ():
            for name, inner in cast("dict[str, Any]", value).items():
                if matching().fits(wanted, name):
                    yield from validator.descend(inner, each, path=name, schema_path=wanted)

    def others(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        yield from library["additionalProperties"](validator, wanted, value, known(schema, value))

    def unevaluated(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        yield from library["unevaluatedProperties"](validator, wanted, value, known(schema, value, everywhere))

    def known(schema: Any, value: Any, patterns: Iterable[str] | None = None) -> Any:
        """The schema, with those names among its properties that fit its patterns, or the ones that are given."""
        given = list(cast("dict[str, Any]", value)) if isinstance(value, dict) else []
        wanted_here: Iterable[str] = schema.get(NAMES, ()) if patterns is None else patterns
        fitting = {name: True for name in given if any(fits(wanted, name) for wanted in wanted_here)}
        return {**schema, "properties": {**fitting, **schema.get("properties", {})}}

    def unless_in_doubt(judge: Judge) -> Judge:
        def judged(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
            before = len(matching().unchecked)
            found = list(judge(validator, wanted, value, schema))
            return iter(found if len(matching().unchecked) == before else ())

        return judged

    changed = {**library, "unevaluatedProperties": unevaluated}
    turning = {name: unless_in_doubt(changed[name]) for name in _TURNING}
    return {**turning, PATTERN: pattern, NAMES: names, OTHERS: others}


def patterns_of_names(schema: Any) -> Iterator[str]:
    """Of the whole schema."""
    if isinstance(schema, dict):
        found = cast("dict[str, Any]", schema)
        yield from found.get(NAMES, ())
        schema = list(found.values())
    for inner in cast("list[Any]", schema) if isinstance(schema, list) else ():
        yield from patterns_of_names(inner)


def shown(pattern: str) -> str:
    return masks.beginning(pattern, PATTERN_CHARS_SHOWN)
