"""Arguments and results against the JSON Schemas of an MCP server, which may be a stranger's.

Owns how a schema is made harmless before it is used, and mistakes in words. Refuses to follow a reference out of the
schema and to check without a bound: what is left out here, the server itself still checks. A stranger's regular
expressions can take for ever, so they get names that only our own way of matching knows (schema_keywords.py,
re2_patterns.py).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, cast

from holdfast.core.error_text import describe_value, did_you_mean
from holdfast.core.errors import InvalidCall, Misconfigured, Trouble
from holdfast.tools.argument_errors import Mistake, mistakes_in_words
from holdfast.tools.json_values import encode
from holdfast.tools.mcp.re2_patterns import Matching
from holdfast.tools.mcp.schema_keywords import NAMES, OTHERS, PATTERN, keywords, patterns_of_names, shown
from holdfast.tools.parameter_types import Parameter, without_prose
from holdfast.tools.secrets.redaction import masks
from holdfast.tools.signature import Signature

Schema = dict[str, Any]

DEPTH_MAX = 64  # of a schema
REFERENCES_MAX = 10_000  # followed while one value is checked: a small schema can ask for more than a lifetime's work
MISTAKES_MAX = 20
EXTRA_NEEDED = Trouble("MCP servers need the Python package mcp", "install it: pip install 'mcp>=2.3,<3'")

_NAMED = (
    "properties",
    "patternProperties",
    "$defs",
    "dependentSchemas",
)  # here keys are names, and no words of the schema language
_DATA = ("const", "default", "enum", "examples")
_LEFT_OUT = ("$schema", "$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$vocabulary", "format",
             "uniqueItems")  # fmt: skip
_OURS = (PATTERN, NAMES, OTHERS)
_TYPES = {
    "string": "a string", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "null": "null", "array": "a list", "object": "a map",
}  # fmt: skip
_WHOLE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
                    "minProperties", "maxProperties", "$ref", "const", "enum"})  # fmt: skip


class SchemaUnusable(ValueError):
    """It is not a JSON Schema."""


def harmless(schema: Any) -> Schema:
    """A server's schema without what could do harm here. Raises `SchemaUnusable` if it is none."""
    if not isinstance(schema, dict):
        raise SchemaUnusable(f"expected a map, got {describe_value(schema)}")
    hidden: list[Any] = []
    tamed = cast("Schema", _tamed(cast("Schema", schema), hidden, 0))
    validator_class = _jsonschema().Draft202012Validator
    try:
        validator_class.check_schema(tamed)
        validator_class.check_schema({"allOf": [True, *hidden]})
    except Exception as error:  # its own error for a wrong schema, and whatever a wrong one makes it stumble over
        said = getattr(error, "message", None) or str(error) or type(error).__name__
        raise SchemaUnusable(str(said)[:200]) from None
    return tamed


def _tamed(schema: Any, hidden: list[Any], depth: int) -> Any:
    """`hidden` are the schemas that it keeps under names of ours, where nobody else would check them."""
    if depth > DEPTH_MAX:
        raise SchemaUnusable(f"it is nested more than {DEPTH_MAX} deep")
    if isinstance(schema, list):
        return [_tamed(item, hidden, depth + 1) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    given = cast("Schema", schema)
    reference = given.get("$ref")
    if isinstance(reference, str) and not reference.startswith(("#/$defs/", "#/definitions/")):
        return {}
    kept: Schema = {}
    for key, value in given.items():
        name = "$defs" if key == "definitions" else key
        if name in _LEFT_OUT or name in _OURS:
            continue
        if name in _NAMED and isinstance(value, dict):
            inner = {one: _tamed(each, hidden, depth + 1) for one, each in cast("Schema", value).items()}
            kept[name] = {**kept.get(name, {}), **inner}
        else:
            kept[name] = value if name in _DATA else _tamed(value, hidden, depth + 1)
    if isinstance(reference, str):
        kept["$ref"] = reference.replace("#/definitions/", "#/$defs/", 1)
    if isinstance(kept.get("pattern"), str):
        kept[PATTERN] = kept.pop("pattern")
    if isinstance(kept.get("patternProperties"), dict):
        kept[NAMES] = kept.pop("patternProperties")
        hidden += kept[NAMES].values()
        if "additionalProperties" in kept:
            kept[OTHERS] = kept["additionalProperties"]
            kept["additionalProperties"] = True  # whoever cannot see the patterns would refuse what fits them
            hidden.append(kept[OTHERS])
    return kept


class Checker:
    """Checks values against one harmless schema."""

    def __init__(self, schema: Schema, owner: str) -> None:
        self.schema = schema
        self._owner = owner
        self._left = 0
        self._matching = Matching()
        self._validator: Any = None

    def mistakes(self, value: Any, name: str = "") -> list[Mistake]:
        """Each with its place; `name` is what the value itself is called."""
        return [(_place(error, name), _words(error)) for error in self.errors(value)]

    def unchecked(self, value: Any) -> list[str]:
        """The patterns of which nobody here can say whether the value fits them."""
        self.errors(value)
        return list(dict.fromkeys(self._matching.unchecked))

    def errors(self, value: Any) -> list[Any]:
        if self._validator is None:
            self._validator = self._built()
        self._left = REFERENCES_MAX
        self._matching = Matching()
        try:
            found: Iterator[Any] = self._validator.iter_errors(value)
            return [error for error, _ in zip(found, range(MISTAKES_MAX), strict=False)]
        except (RecursionError, _Endless):
            raise Misconfigured(f"{self._owner}: its server's schema is too complicated to check anything by") from None
        except Exception as error:  # a reference that leads nowhere, and the like
            said = masks.beginning(str(error), 200)
            raise Misconfigured(f"{self._owner}: its server's schema cannot be used: {said}; tell its author") from None

    def _built(self) -> Any:
        jsonschema = _jsonschema()
        import referencing

        base: Any = jsonschema.Draft202012Validator
        everywhere = list(patterns_of_names(self.schema))
        follow: Any = base.VALIDATORS["$ref"]

        def counted(validator: Any, reference: Any, value: Any, schema: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise _Endless
            return follow(validator, reference, value, schema)

        ours = keywords(base.VALIDATORS, lambda: self._matching, jsonschema.ValidationError, everywhere)
        made: Any = jsonschema.validators.extend(base, {"$ref": counted, **ours})
        nowhere = cast("Any", referencing).Registry()  # nothing is fetched
        return made(self.schema, registry=nowhere)


class _Endless(Exception): ...


class SchemaSignature(Signature):
    """The arguments of a tool as its server describes them."""

    def __init__(self, schema: Schema, owner: str, call_parameter: str) -> None:
        self.owner = owner
        self.call_parameter = call_parameter
        self.positional_only = ()
        self.lenient = ()
        self.return_type = Any
        self.return_decoder = None
        self._schema: Schema = {"type": "object", "properties": {}, **schema}
        self._properties = cast("dict[str, Any]", self._schema["properties"])
        required: Any = self._schema.get("required", ())
        self.parameters = {
            name: Parameter(name, Any, inspect.Parameter.empty if name in required else None, Any)
            for name in self._properties
        }
        others: Any = self._schema.get("additionalProperties", NAMES in self._schema)
        self._is_open = self._schema.get(OTHERS, others) is not False
        self._checker = Checker(self._schema, owner)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args:
            raise InvalidCall(f"{self.owner} takes its arguments by name")
        return dict(kwargs)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        mistakes = self.check(arguments)
        if mistakes:
            raise InvalidCall(mistakes_in_words(self.owner, mistakes))
        return dict(arguments)

    def check(self, arguments: Mapping[str, Any], dynamic: frozenset[str] = frozenset()) -> list[Mistake]:
        unknown = [name for name in arguments if not self._is_known(name)] if not self._is_open else []
        mistakes: list[Mistake] = [(name, self._no_such(name)) for name in unknown]
        given = {name: value for name, value in arguments.items() if name not in dynamic and name not in unknown}
        for error in self._checker.errors(given):
            about_all = not error.absolute_path
            if about_all and error.validator == "required":
                mistakes += self._missing(given, dynamic)
            elif about_all and dynamic and error.validator in _WHOLE:
                continue  # only all arguments together can be wrong in this way, and some are not known yet
            else:
                mistakes.append((_place(error, "arguments" if about_all else ""), _words(error)))
        return list(dict.fromkeys(mistakes))

    def unchecked(self, arguments: Mapping[str, Any]) -> list[Mistake]:
        """What only the server can say about each of them."""
        said = "whether it fits the pattern {} is not checked here, only by the server"
        one_by_one = ((name, self._checker.unchecked({name: value})) for name, value in arguments.items())
        return [(name, said.format(shown(pattern))) for name, patterns in one_by_one for pattern in patterns]

    def schema(self) -> Schema:
        return self._schema

    def digest(self, name: str, version: str) -> str:
        return blake2b(encode([name, version, without_prose(self._schema)]), digest_size=8).hexdigest()

    def _missing(self, given: Mapping[str, Any], dynamic: frozenset[str]) -> list[Mistake]:
        wanted = [name for name in self._schema.get("required", ()) if name not in given and name not in dynamic]
        return [(name, f"is missing: expected {_expected(self._properties.get(name))}") for name in wanted]

    def _is_known(self, name: str) -> bool:
        patterns: Any = self._schema.get(NAMES, ())
        return name in self._properties or any(Matching().fits(each, name) is not False for each in patterns)

    def _no_such(self, name: str) -> str:
        fitting = [f"names that match {shown(pattern)}" for pattern in self._schema.get(NAMES, ())]
        takes = ", ".join([*self._properties, *fitting]) or "none"
        return f"no such argument{did_you_mean(name, self._properties) or f'; {self.owner} takes {takes}'}"


def _place(error: Any, name: str) -> str:
    place = name
    for key in error.absolute_path:
        place += f"[{key}]" if isinstance(key, int) else f".{key}" if place else str(key)
    return place or "the whole"


def _words(error: Any) -> str:
    match error.validator:
        case "type":
            return f"expected {_expected({'type': error.validator_value})}, got {describe_value(error.instance)}"
        case "enum" | "const":
            options = error.validator_value if error.validator == "enum" else [error.validator_value]
            return f"expected {_one_of(options)}, got {describe_value(error.instance)}"
        case "x-pattern":
            return f"{error.message}, got {describe_value(error.instance)}"
        case _:
            return masks.beginning(str(error.message), 300)


def _expected(schema: Any) -> str:
    given: Schema = cast("Schema", schema) if isinstance(schema, dict) else {}
    if isinstance(given.get("enum"), list):
        return _one_of(given["enum"])
    kinds: Any = given.get("type")
    named = [
        _TYPES.get(str(kind), str(kind)) for kind in (cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds])
    ]
    return " or ".join(named) if kinds else "a value"


def _one_of(options: list[Any]) -> str:
    shown = ", ".join(json.dumps(option, ensure_ascii=False, default=str)[:60] for option in options[:20])
    return f"one of {shown}{', …' if len(options) > 20 else ''}"


def _jsonschema() -> Any:
    try:
        import jsonschema
    except ImportError as error:
        raise Misconfigured(EXTRA_NEEDED.what, todo=EXTRA_NEEDED.todo) from error
    return jsonschema
