"""`checkpoint:` as plans, settings and `Engine.start` write it → `Checkpoints`, or every mistake with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.core.error_text import describe_value, did_you_mean, quoted
from holdfast.core.errors import InputInvalid
from holdfast.core.plan.fields import Fields, Problems, TooMany, plain_json
from holdfast.core.policy import CHECKPOINT_EVERY_S_MIN, CHECKPOINT_STEPS_MAX, RESTS, Checkpoints, Rest

KEYS = ("every_steps", "every_s", "on")
_SHAPE = "a map such as {every_steps: 10, every_s: 5m, on: [pause, interrupt, end]}"


def checkpoints_of(value: Checkpoints | Mapping[str, Any]) -> Checkpoints:
    """What a caller in Python says, held to the same rules."""
    if isinstance(value, Checkpoints):
        value = {key: said for key in KEYS if (said := getattr(value, key)) not in (None, ())}
    problems = Problems()
    found: Checkpoints | None = None
    try:
        document = plain_json({"checkpoint": dict(value)}, problems)
        found = read_checkpoints(Fields(cast("dict[str, Any]", document), "", problems, ("checkpoint",)))
    except TooMany:
        pass
    if problems:
        raise InputInvalid("\n".join(map(str, problems.in_reading_order())))
    return found or Checkpoints()


def read_checkpoints(fields: Fields) -> Checkpoints | None:
    """None if nothing is said; an empty map says: none, whatever the settings say."""
    inner = fields.fields("checkpoint", KEYS, _SHAPE)
    if inner is None:
        return None
    steps = inner.whole("every_steps", 1, 1, CHECKPOINT_STEPS_MAX) if "every_steps" in inner else None
    every_s = inner.duration("every_s")
    if every_s is not None and every_s < CHECKPOINT_EVERY_S_MIN:
        inner.note(
            "every_s", f"expected at least {CHECKPOINT_EVERY_S_MIN:g} s, got {describe_value(inner.get('every_s'))}"
        )
    return Checkpoints(every_steps=steps, every_s=every_s, on=_rests(inner))


def _rests(inner: Fields) -> tuple[Rest, ...]:
    value = inner.get("on")
    if "on" not in inner:
        return ()
    words = cast("list[Any]", value) if isinstance(value, list) else [value]
    wrong = [word for word in words if word not in RESTS]
    if wrong:
        hint = did_you_mean(wrong[0], RESTS) if isinstance(wrong[0], str) else ""
        inner.note("on", f"expected a list of {', '.join(map(quoted, RESTS))}, got {describe_value(wrong[0])}{hint}")
    return tuple(rest for rest in RESTS if rest in words)
