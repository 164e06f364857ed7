"""One step being taken to its end: what was asked, by which program, and what its history says is next.

Only readings; perform.py tells the story, admission.py, attempt.py, after_failure.py and resolution.py do what it says.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from holdfast.core import events as ev
from holdfast.core.execution import Step, call_key
from holdfast.core.policy import Effect
from holdfast.engine.program import FallbackTool, StepCall
from holdfast.tools.call import Call
from holdfast.tools.json_values import encode
from holdfast.tools.tool import Tool

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver


def input_digest(tool: str, arguments: bytes) -> str:
    """What a step was asked to do: its tool and its input, whatever the order of its keys."""
    if arguments.count(b":") > 1:  # with one key there is no order
        arguments = msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
    return blake2b(b"%b\0%b" % (tool.encode(), arguments), digest_size=16).hexdigest()


def notes_for(tool: Tool[..., Any], step: Step) -> ev.MaybeRaw:
    """What an earlier attempt of the same tool noted; to another tool, such as a fallback, it would mean nothing."""
    return step.notes if step.noted_by in ("", tool.name) else UNSET  # "": from before anybody wrote it down


class StepContext:
    """`task` is the one that the program asked from."""

    __slots__ = ("asked", "call", "digest", "driver", "task", "verified_attempt")

    def __init__(self, driver: Driver, call: StepCall, digest: str, asked: bytes, task: asyncio.Task[Any]) -> None:
        self.driver = driver
        self.call = call
        self.digest = digest
        self.asked = asked
        self.task = task
        self.verified_attempt = 0  # the one that the tool's own check was asked about last, by this very process

    @property
    def is_fresh(self) -> bool:
        """Whoever handed the task in wants every tool to be asked anew."""
        return self.driver.state.facts().fresh

    def tool_of(self, step: Step) -> Tool[..., Any]:
        """The step's own tool, or the fallback it has come to."""
        other = self._fallback(step)
        return self.call.tool if other is None else other.tool

    def effect_of(self, tool: Tool[..., Any]) -> Effect:
        return self.call.policy.effect or tool.effect

    async def arguments_of(self, step: Step) -> bytes:
        """The input of the next attempt: what the last one had, reduced or for the fallback if that was decided."""
        fallback = self._fallback(step)
        if fallback is not None and fallback.arguments is not None:
            return encode(fallback.arguments, f"the fallback arguments of {step.path}")
        return await self.driver.value(step.arguments) if step.arguments else self.asked

    def _fallback(self, step: Step) -> FallbackTool | None:
        """A program that has fewer of them than when it was recorded goes back to the step's own tool."""
        return self.call.fallbacks[step.fallback - 1] if 0 < step.fallback <= len(self.call.fallbacks) else None

    def started(  # noqa: PLR0917 -- made for every attempt: each keyword would cost
        self, at: int, number: int, tool: Tool[..., Any], fallback: int, arguments: bytes, step: Step | None = None,
        reserved_micros: int = 0,
    ) -> ev.StepStarted:  # fmt: skip
        call = self.call
        return ev.StepStarted(
            at=at,
            path=call.path,
            tool=tool.name,
            attempt=number,
            kind=call.kind,
            effect=call.policy.effect or tool.effect,
            arguments=self.driver.keep(arguments),
            digest=self.digest,
            title=call.title,
            fallback=fallback,
            reduced=step.reduced if step is not None else False,
            refreshed=step.refreshed if step is not None else False,
            reserved_micros=reserved_micros,
            secrets=call.secrets,
            fallback_digest=self.fallback_digest(fallback) if fallback else "",
            undoes=call.policy.undoes,
        )

    def fallback_digest(self, place: int) -> str:
        """Of the input that a fallback has for itself; "" if it has the step's."""
        other = self.call.fallbacks[place - 1] if place <= len(self.call.fallbacks) else None
        if other is None or other.arguments is None:
            return ""
        return input_digest(other.tool.name, encode(other.arguments))

    def as_call(self, step: Step) -> Call:
        """The last attempt, for the hooks of its tool."""
        return self.driver.make_call(step.path, step.attempt, notes_for(self.tool_of(step), step))

    def lives_on(self, step: Step) -> bool:
        """Whether a call of it that was cut off still runs here."""
        return self.driver.services.is_living(step.call_key or call_key(self.driver.state.id, step.path))
