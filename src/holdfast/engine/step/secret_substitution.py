"""A secret that a program wrote out into the arguments of a step stands in the journal as a reference.

The tool gets the same as before: what is replaced is exactly what the reference stands for at this moment, and another
attempt, in this process or the next, puts it in again. The step's digest stays that of what was asked. Refuses to
touch what is recorded already: whether data in it is escaped (core/secret_refs.py) was decided when it was written.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import Misconfigured
from holdfast.core.execution import Step
from holdfast.core.secret_refs import marked, taken_out
from holdfast.engine.program import FallbackTool, StepCall
from holdfast.tools.json_values import encode
from holdfast.tools.secrets.redaction import masks

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver


async def hidden(driver: Driver, call: StepCall, asked: bytes, step: Step | None) -> tuple[StepCall, bytes]:
    """The same call with references in it, and its arguments; both as they were if there is nothing to hide."""
    recorded = _recorded(driver, step)
    if recorded is not None and not recorded:
        return call, asked
    others = [None if other.arguments is None else encode(other.arguments) for other in call.fallbacks]
    values: dict[str, str] = {}
    if masks.active:
        values = await _known_in(
            driver, b"\n".join([asked, *(other for other in others if other is not None)]).decode()
        )
    if not values and set(recorded or ()) <= set(call.secrets):
        return call, asked

    def written(arguments: bytes) -> Any:
        given = msgspec.json.decode(arguments)
        return taken_out(given if call.secrets else marked(given, set()), values)

    arguments = written(asked)
    return msgspec.structs.replace(
        call,
        arguments=arguments,
        fallbacks=tuple(
            FallbackTool(fallback.tool, None if other is None else written(other))
            for fallback, other in zip(call.fallbacks, others, strict=True)
        ),
        secrets=tuple(sorted({*call.secrets, *(recorded or ()), *values})),
    ), encode(arguments)


def _recorded(driver: Driver, step: Step | None) -> tuple[str, ...] | None:
    """The secrets that recorded arguments of the step refer to; None if none are recorded."""
    if step is None:
        return None
    if step.attempt:
        return step.secrets
    request = driver.state.requests.get(step.request_id)
    return request.request.secrets if request is not None else None


async def _known_in(driver: Driver, text: str) -> dict[str, str]:
    """The secrets of this engine that stand in a text as they are now, by their names."""
    found: dict[str, str] = {}
    for name in masks.names_in(text) & driver.services.secrets.names:
        with suppress(Misconfigured):  # it cannot be had any more, and so no reference could stand for it
            found |= await driver.services.secrets.fetch([name])
    return found
