"""What a tool may be called with: from a Python signature to named, typed, checked arguments and back to a JSON Schema.

The fast path converts all arguments at once through one msgspec struct built per tool. Only when that fails are the
arguments looked at one by one, to report every mistake with its place and in words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import InvalidCall, UsageError
from holdfast.tools.argument_errors import Mistake, convert_or_explain, mistakes_in_words, type_in_words
from holdfast.tools.call import Call
from holdfast.tools.json_values import encode
from holdfast.tools.parameter_types import (
    Parameter,
    convert_custom,
    decoder_if_readable,
    default_for_schema,
    is_lenient,
    readable,
    schema_of,
    softened,
    without_prose,
)

_Struct = Any  # the struct made for a tool has fields only its signature knows


class Signature:
    """The arguments of one tool. `owner` names the tool in errors."""

    lenient: tuple[str, ...] = ()  # the parameters that take what was meant

    def __init__(self, function: Callable[..., Any], hints: Mapping[str, Any], owner: str) -> None:
        self.owner = owner
        self.call_parameter = ""
        self.positional_only: tuple[str, ...] = ()
        self.parameters: dict[str, Parameter] = {}
        self._positional: list[str] = []
        for given in inspect.signature(function).parameters.values():
            self._add(given, hints.get(given.name, Any))
        self.lenient = tuple(name for name, parameter in self.parameters.items() if parameter.is_lenient)
        self._struct = self._build_struct()
        returns = hints.get("return", Any)
        self.return_type = returns
        self.return_decoder = None if returns is Any else decoder_if_readable(returns)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """A Python call as named arguments; missing and unknown ones are for `validate` to report."""
        if len(args) > len(self._positional):
            raise InvalidCall(
                f"{self.owner} takes {len(self._positional)} positional arguments, got {len(args)}; "
                "pass the others by name"
            )
        bound = dict(zip(self._positional, args, strict=False))
        for name in kwargs:
            if name in bound:
                raise InvalidCall(f"{self.owner}: {name}: given twice, by position and by name; give it once")
        bound.update(kwargs)
        return bound

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """JSON values as the types the tool declared. What was not given is left to the function's own defaults."""
        if self.lenient:
            arguments = self.soften(arguments)
        try:
            converted: _Struct = msgspec.convert(arguments, self._struct, dec_hook=convert_custom)
            return {name: getattr(converted, name) for name in arguments}
        except (msgspec.ValidationError, AttributeError, TypeError):
            pass  # the slow path says what is wrong, in full
        mistakes: list[Mistake] = []
        validated = self._validate_one_by_one(arguments, frozenset(), mistakes)
        if mistakes:
            raise InvalidCall(mistakes_in_words(self.owner, mistakes))
        return validated

    def check(self, arguments: Mapping[str, Any], dynamic: frozenset[str] = frozenset()) -> list[Mistake]:
        """Every mistake that can be seen before the `dynamic` arguments have their values."""
        mistakes: list[Mistake] = []
        self._validate_one_by_one(self.soften(arguments, dynamic), dynamic, mistakes)
        return mistakes

    def known(self, arguments: Mapping[str, Any], dynamic: frozenset[str]) -> dict[str, Any]:
        """Those whose values are there already, as the types the tool declared; they have been checked."""
        return self._validate_one_by_one(self.soften(arguments, dynamic), dynamic, [])

    def soften(self, arguments: Mapping[str, Any], dynamic: frozenset[str] = frozenset()) -> Mapping[str, Any]:
        """With what was meant in the place of what was said, where a parameter declares that it may be."""
        if not self.lenient:
            return arguments
        meant = dict(arguments)
        for name in self.lenient:
            if name in meant and name not in dynamic:
                meant[name] = softened(self.parameters[name], meant[name])
        return meant

    def unfit(self, other: Signature) -> str:
        """Why a call of this tool cannot be made to another with the same arguments; "" if it can."""
        if not isinstance(other, Signature):  # pyright: ignore[reportUnnecessaryIsInstance] -- a fake takes anything
            return ""
        for name in self.parameters:
            if name not in other.parameters:
                return f"it takes no argument called {name}"
        for name, parameter in other.parameters.items():
            if parameter.required and (name not in self.parameters or not self.parameters[name].required):
                return f"it needs the argument {name}, which may be missing here"
        return ""

    def schema(self) -> dict[str, Any]:
        """The arguments as one JSON Schema object."""
        definitions: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            described = schema_of(parameter.readable, definitions)
            if not parameter.required:
                described = described | default_for_schema(parameter.default)
            properties[name] = described
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [name for name, parameter in self.parameters.items() if parameter.required]
        if required:
            schema["required"] = required
        if definitions:
            schema["$defs"] = definitions
        return schema

    def digest(self, name: str, version: str) -> str:
        """Changes when a recorded call may no longer fit; titles and descriptions do not count."""
        text = encode([name, version, without_prose(self.schema())])
        return blake2b(text, digest_size=8).hexdigest()

    def _add(self, given: inspect.Parameter, hint: Any) -> None:
        if hint is Call:
            self.call_parameter = given.name
            if given.kind is given.POSITIONAL_ONLY:
                raise UsageError(f"{self.owner}: {given.name}: a `Call` is passed by name; move it after the `/`")
            return
        if given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            stars = "*" if given.kind is given.VAR_POSITIONAL else "**"
            raise UsageError(
                f"{self.owner}: {stars}{given.name}: a tool's arguments need names and types; "
                f"declare each one, or one parameter that is a list or a dict"
            )
        if given.kind is given.POSITIONAL_ONLY:
            self.positional_only += (given.name,)
        if given.kind is not given.KEYWORD_ONLY:
            self._positional.append(given.name)
        kind = readable(hint, f"{self.owner}: {given.name}")
        self.parameters[given.name] = Parameter(given.name, hint, given.default, kind, is_lenient(hint))

    def _build_struct(self) -> type[msgspec.Struct]:
        fields: list[Any] = []
        for name, parameter in self.parameters.items():
            kind = parameter.readable
            # The function fills in its own defaults: a struct's could not be told from a given value.
            fields.append((name, kind) if parameter.required else (name, kind, msgspec.field(default=msgspec.UNSET)))
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)

    def _validate_one_by_one(
        self, arguments: Mapping[str, Any], dynamic: frozenset[str], mistakes: list[Mistake]
    ) -> dict[str, Any]:
        validated: dict[str, Any] = {}
        for name, value in arguments.items():
            parameter = self.parameters.get(name)
            if parameter is None:
                mistakes.append((name, self._unknown(name)))
            elif name not in dynamic:
                validated[name] = convert_or_explain(parameter, value, mistakes)
        for name, parameter in self.parameters.items():
            if parameter.required and name not in arguments and name not in dynamic:
                mistakes.append((name, f"is missing: expected {type_in_words(parameter.type)}"))
        return validated

    def _unknown(self, name: str) -> str:
        if not self.parameters:
            return f"no such argument; {self.owner} takes none"
        meant = did_you_mean(name, self.parameters)
        return f"no such argument{meant or f'; {self.owner} takes ' + ', '.join(self.parameters)}"
