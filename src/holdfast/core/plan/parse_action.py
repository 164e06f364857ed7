"""Reading what a step does: its tool with arguments and policy, its wait, its child, its approval."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, cast, get_args

import msgspec

from holdfast.core.durations import parse_duration, parse_moment
from holdfast.core.error_text import describe_value, did_you_mean, quoted
from holdfast.core.errors import InputInvalid, Problem
from holdfast.core.expressions import Template, place_of
from holdfast.core.forms import ASK
from holdfast.core.plan.fields import Fields, Problems
from holdfast.core.plan.model import (
    CACHE_S,
    EMPTY,
    NO_DEFAULTS,
    NOTHING,
    PARALLEL_MAX,
    RETRIES_MAX,
    PlanApproval,
    PlanFallback,
    StepDefaults,
    WaitSpec,
)
from holdfast.core.plan.resources import read_resources
from holdfast.core.plan.scope import Scope
from holdfast.core.policy import (
    APPROVAL_EXPIRES_S,
    BACKOFF_FACTOR,
    BACKOFF_FIRST_S,
    BACKOFF_MAX_S,
    FALLBACKS_MAX,
    FOR_EACH_PARALLEL,
    RETRIES,
    DoubtPolicy,
    Effect,
    OnError,
    Retry,
    StepPolicy,
)

FACTOR_MAX = 100.0
ACTING = ("fallback", "timeout", "retry", "cache", "effect", "in_doubt", "approval")
DEFAULT_KEYS = ("critical", "on_error", "max_parallel", "timeout", "retry", "in_doubt")
_INSTEAD = {"timeout": "say expires among its arguments", "fallback": "say on_expiry among its arguments"}
_AFTERWARDS = "make it a step of its own, with a condition on the one that failed"


class ToolCatalog(Protocol):
    """What the reader asks about tools. Without a catalog, as when a recorded plan is reopened, tools go unchecked."""

    def names(self) -> Collection[str]: ...

    def check(self, tool: str, arguments: Mapping[str, Any], dynamic: frozenset[str]) -> list[tuple[str, str]]:
        """`(argument, what is wrong)` pairs; values under `dynamic` names are only known when the step is due."""
        ...

    def why_absent(self, name: str) -> str:
        """Why a tool that should be there is not; "" if nobody knows of it."""
        ...

    def fallbacks_of(self, name: str) -> tuple[str, ...]:
        """The tools that a tool itself names to be tried in its place."""
        ...


class ActionReader:
    def __init__(
        self,
        tools: ToolCatalog | None,
        programs: Callable[[str], bool] | None,
        problems: Problems,
        template: Callable[[Any, str, Scope], Template],
        defaults: StepDefaults,
    ) -> None:
        self._defaults = defaults
        self._tools = tools
        self._tool_names = frozenset(tools.names()) if tools is not None else frozenset[str]()
        self._programs = programs
        self._problems = problems
        self._template = template

    # ---- tools --------------------------------------------------------------------------------------------------

    def tool(self, fields: Fields, scope: Scope, optional: bool) -> dict[str, Any]:
        name = fields.text("tool", "the name of a tool")
        arguments = self._arguments(fields, scope.with_secrets())
        if name == ASK:
            self._check_asking(fields)
        if name and self._is_there(name, fields.at("tool"), optional):
            self._check(name, arguments, fields.at("with"))
            self._check_declared_fallbacks(name, arguments, fields)
        fallbacks = self._fallbacks(fields, scope, arguments, optional)
        own = [other.arguments for other in fallbacks if other.arguments is not None]
        return {
            "tool": name,
            "arguments": arguments,
            "secrets": arguments.secrets.union(*(other.secrets for other in own)),
            "policy": msgspec.structs.replace(self._policy(fields), undoes=self._undoes(fields, scope)),
            "fallbacks": fallbacks,
            "approval": self.approval(fields, scope),
        }

    def _undoes(self, fields: Fields, scope: Scope) -> tuple[str, ...]:
        """The steps of the plan's outermost list that this one takes back."""
        value: Any = fields.get("undoes")
        if "undoes" not in fields:
            return ()
        named = [value] if isinstance(value, str) else value
        if not isinstance(named, list) or not all(isinstance(one, str) for one in cast("list[Any]", named)):
            fields.expected("undoes", "the id of a step, or a list of ids")
            return ()
        for one in cast("list[str]", named):
            if not scope.has_step(one):
                fields.note("undoes", f"no step called {quoted(one)} that may have ended before this one")
        return tuple(cast("list[str]", named))

    def _check_asking(self, fields: Fields) -> None:
        for key in ACTING:
            if key in fields:
                fields.note(
                    key, f"goes with tools that act, and {ASK} waits for a person; {_INSTEAD.get(key, 'drop it')}"
                )

    def _arguments(self, fields: Fields, scope: Scope) -> Template:
        value = fields.get("with")
        if "with" not in fields:
            return EMPTY
        if not isinstance(value, dict) and not (isinstance(value, str) and "${{" in value):
            fields.expected("with", "a map of arguments, such as {url: …}")
            return EMPTY
        return self._template(value, fields.at("with"), scope)

    def _is_there(self, name: str, place: str, optional: bool) -> bool:
        if "${{" in name:
            self._problems.note(place, "expected the name of a tool; an expression cannot choose one")
        elif self._tools is None or name in self._tool_names:
            return self._tools is not None
        elif not optional:
            why = self._tools.why_absent(name)
            known = f": {why}" if why else did_you_mean(name, self._tool_names)
            self._problems.append(Problem(place, f"no tool called {quoted(name)}{known}", missing_tool=name))
        return False

    def _check(self, tool: str, arguments: Template, place: str) -> None:
        values: Any = arguments.source
        if self._tools is not None and isinstance(values, dict):
            given = cast("dict[str, Any]", values)
            for argument, message in self._tools.check(tool, given, arguments.dynamic_keys):
                self._problems.note(_inside(place, argument, given) if argument else place, message)

    def _check_declared_fallbacks(self, tool: str, arguments: Template, fields: Fields) -> None:
        """Those of the tool itself, which count when the step names none: what it is called with must fit them, too."""
        values: Any = arguments.source
        if "fallback" in fields or self._tools is None or not isinstance(values, dict):
            return
        given = cast("dict[str, Any]", values)
        for other in self._tools.fallbacks_of(tool):
            if other not in self._tool_names:
                self._problems.note(fields.at("tool"), f"its fallback {quoted(other)} is not here")
                continue
            for argument, message in self._tools.check(other, given, arguments.dynamic_keys):
                place = place_of(fields.at("with"), argument) if argument else fields.at("with")
                self._problems.note(place, f"for its fallback {other}: {message}")

    def _fallbacks(self, fields: Fields, scope: Scope, own: Template, optional: bool) -> tuple[PlanFallback, ...]:
        if "fallback" not in fields:
            return ()
        value = fields.get("fallback")
        entries = cast("list[Any]", value) if isinstance(value, list) else [value]
        if len(entries) > FALLBACKS_MAX:
            fields.note("fallback", f"at most {FALLBACKS_MAX} fallbacks are tried, got {len(entries)}")
            return ()
        found: list[PlanFallback] = []
        for index, entry in enumerate(entries):
            place = fields.at("fallback") + (f"[{index}]" if isinstance(value, list) else "")
            if isinstance(entry, str) and entry.strip():
                tool, arguments, checked_at = entry, None, place
            elif isinstance(entry, dict):
                inner = Fields(cast("dict[str, Any]", entry), place, self._problems, ("tool", "with"))
                tool = inner.text("tool", "the name of a tool")
                arguments = self._arguments(inner, scope.with_secrets()) if "with" in inner else None
                checked_at = place if arguments is None else inner.at("with")
                if "tool" not in inner:
                    self._problems.note(place, "missing tool; a fallback is the name of a tool, or {tool: …, with: …}")
            else:
                self._problems.note(
                    place, f"expected the name of a tool or {{tool, with}}, got {describe_value(entry)}"
                )
                continue
            if tool == ASK:
                self._problems.note(place, f"{ASK} waits for a person and cannot stand in for a tool; {_AFTERWARDS}")
            elif tool and self._is_there(tool, place, optional):
                self._check(tool, own if arguments is None else arguments, checked_at)
            found.append(PlanFallback(tool=tool, arguments=arguments))
        return tuple(found)

    def _policy(self, fields: Fields) -> StepPolicy:
        effects: tuple[Effect, ...] = get_args(Effect)
        defaults = self._defaults if fields.values.get("tool") != ASK else NO_DEFAULTS
        in_doubt, retry, timeout_s = read_in_doubt(fields), read_retry(fields), read_timeout(fields)
        return StepPolicy(
            effect=fields.choice("effect", effects),
            timeout_s=defaults.timeout_s if timeout_s is None else timeout_s,
            retry=defaults.retry if retry is None else retry,
            retry_is_default=retry is None and defaults.retry is not None,
            in_doubt=in_doubt or defaults.in_doubt,
            cache_s=self._cache(fields),
            resources=read_resources(fields),
            on_error=read_on_error(fields) or self._defaults.on_error,
        )

    def _cache(self, fields: Fields) -> float | None:
        value = fields.get("cache")
        if isinstance(value, bool):
            return CACHE_S if value else None
        return fields.duration("cache")

    # ---- people, time, children ---------------------------------------------------------------------------------

    def approval(self, fields: Fields, scope: Scope) -> PlanApproval | None:
        value = fields.get("approval")
        if "approval" not in fields or value is False:
            return None
        if value is True or value == "required":
            return PlanApproval()
        if isinstance(value, str) and value.strip():
            return PlanApproval(message=self._template(value, fields.at("approval"), scope))
        inner = fields.fields("approval", ("message", "expires"), '"required", a message, or {message, expires}')
        if inner is None:
            return None
        expires_s = inner.duration("expires")
        message = NOTHING
        if "message" in inner:
            message = self._template(inner.text("message"), inner.at("message"), scope)
        return PlanApproval(message=message, expires_s=APPROVAL_EXPIRES_S if expires_s is None else expires_s)

    def child(self, fields: Fields, scope: Scope) -> dict[str, Any]:
        program = fields.text("start", "a plan file or the name of a function")
        if "${{" in program:
            fields.note("start", "expected a plan file or the name of a function; an expression cannot choose one")
        elif program and self._programs is not None and not self._programs(program):
            fields.note("start", f"no plan file or function called {quoted(program)}")
        return {"start": program, "arguments": self._arguments(fields, scope)}

    def wait(self, fields: Fields, scope: Scope) -> WaitSpec:
        if not isinstance(fields.get("wait"), dict):
            return WaitSpec(duration=self._timed(fields, "wait", scope, parse_duration))
        inner = fields.fields("wait", ("for", "until", "event", "timeout"), "a duration or a map")
        assert inner is not None
        given = [key for key in ("for", "until", "event") if key in inner]
        if len(given) != 1:
            got = " and ".join(map(quoted, given)) or "none of them"
            self._problems.note(inner.place, f'expected exactly one of "for", "until" and "event", got {got}')
        if "timeout" in inner and "event" not in inner:
            inner.note("timeout", 'goes with "event", which this wait does not have')
        event = None
        if "event" in inner:
            event = self._template(inner.text("event", "the name of an event"), inner.at("event"), scope)
        return WaitSpec(
            duration=self._timed(inner, "for", scope, parse_duration),
            until=self._timed(inner, "until", scope, parse_moment),
            event=event,
            timeout=self._timed(inner, "timeout", scope, parse_duration),
        )

    def _timed(self, fields: Fields, key: str, scope: Scope, parse: Callable[[Any], float]) -> Template | None:
        """A value that is checked now when it is written out, and when the step is due when it is an expression."""
        if key not in fields:
            return None
        template = self._template(fields.get(key), fields.at(key), scope)
        if not template.dynamic:
            try:
                parse(template.source)
            except InputInvalid as error:
                fields.note(key, str(error))
        return template


def read_defaults(fields: Fields | None) -> StepDefaults:
    """What a plan says once for all its steps."""
    if fields is None:
        return NO_DEFAULTS
    return StepDefaults(
        critical=fields.truth("critical", True),
        on_error=read_on_error(fields) or "ask",
        parallel=fields.whole("max_parallel", FOR_EACH_PARALLEL, 1, PARALLEL_MAX),
        timeout_s=read_timeout(fields),
        retry=read_retry(fields),
        in_doubt=read_in_doubt(fields),
    )


def read_on_error(fields: Fields) -> OnError | None:
    options: tuple[OnError, ...] = get_args(OnError)
    return fields.choice("on_error", options)


def read_in_doubt(fields: Fields) -> DoubtPolicy | None:
    options: tuple[DoubtPolicy, ...] = get_args(DoubtPolicy)
    return fields.choice("in_doubt", options)


def read_timeout(fields: Fields) -> float | None:
    seconds = fields.duration("timeout")
    if seconds == 0:
        fields.note("timeout", "expected more than 0 seconds; leave it out for the default")
        return None
    return seconds


def read_retry(fields: Fields) -> Retry | None:
    value = fields.get("retry")
    if "retry" not in fields:
        return None
    if not isinstance(value, dict):
        return Retry(max=fields.whole("retry", RETRIES, 0, RETRIES_MAX))
    known = ("max", "first", "factor", "max_delay")
    inner = Fields(cast("dict[str, Any]", value), fields.at("retry"), fields.problems, known)
    first, most = inner.duration("first"), inner.duration("max_delay")
    factor: Any = inner.values.get("factor", BACKOFF_FACTOR)
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 1 <= factor <= FACTOR_MAX:
        inner.expected("factor", f"a number from 1 to {FACTOR_MAX:g}")
        factor = BACKOFF_FACTOR
    return Retry(
        max=inner.whole("max", RETRIES, 0, RETRIES_MAX),
        first_s=BACKOFF_FIRST_S if first is None else first,
        factor=float(factor),
        max_s=BACKOFF_MAX_S if most is None else most,
    )


def _inside(place: str, argument: str, given: Mapping[str, Any]) -> str:
    """The place of an argument, or of something inside it: `form.colour.choices[1]`."""
    name = argument if argument in given else re.split(r"[.\[]", argument, maxsplit=1)[0]
    return place_of(place, name) + argument[len(name) :]
