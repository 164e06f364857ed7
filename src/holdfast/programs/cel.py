"""The expression language of plans: CEL, through Google's own runtime.

Owns the translation between CEL and the core's port: declared variables, errors in plain words, results as JSON. The
runtime bounds the work of every expression itself. It is imported on first use, off the path of `--help`.
"""

# sentences of others: CEL

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from holdfast.core.error_text import describe_value, did_you_mean, quoted
from holdfast.core.errors import InvalidCall
from holdfast.core.expressions import Expression, ExpressionInvalid, chains, references
from holdfast.programs.cel_syntax import syntax_mistake, with_caret
from holdfast.tools.json_text import JsonInvalid, read_json

EXPRESSION_CHARS_MAX = 10_000  # longer than any expression a person can read
ENVIRONMENTS_MAX = 256  # one per set of visible names; a plan has a handful
EXPRESSIONS_MAX = 16_384
FIELDS_SHOWN = 8  # of a map in which one is missing
FIELD_CHARS_SHOWN = 40

_FIRST_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_OVERLOAD = re.compile(r"found no matching overload for '([^']*)' applied to '\((.*)\)'")
_NO_OVERLOAD = re.compile(r"No matching overloads found : (\S+?)(?:\((.*)\))?$")
_SELECTOR = r"(?:\.[A-Za-z_]\w*|\[(?:\d{1,9}|\"[^\"\\]*\"|'[^'\\]*')\])"
_PATH = re.compile(rf"[A-Za-z_]\w*{_SELECTOR}*", re.ASCII)
_SELECTORS = re.compile(r"\.(?P<field>[A-Za-z_]\w*)|\[(?P<index>\d+)\]|\[[\"'](?P<key>[^\"']*)[\"']\]", re.ASCII)
_ORDER = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_KINDS = {"INT": "integer", "STRING": "string", "BOOL": "boolean", "DOUBLE": "number", "LIST": "array", "MAP": "object"}
_NOT_NAMES = frozenset({"true", "false", "null", "in"})
# What can be called in an expression: by itself, and as `value.name(…)`. For people; the runtime knows by itself.
FUNCTIONS = (
    "size", "has", "int", "uint", "double", "string", "bool", "bytes", "timestamp", "duration", "type", "dyn", "json",
)  # fmt: skip
METHODS = (
    "all", "exists", "exists_one", "filter", "map", "join", "contains", "startsWith", "endsWith", "matches", "split",
    "replace", "substring", "trim", "lowerAscii", "upperAscii", "indexOf", "lastIndexOf", "charAt", "reverse", "format",
)  # fmt: skip


class Cel:
    """`Expressions` over CEL. Environments and compiled expressions are kept, so that the same text costs once."""

    def __init__(self) -> None:
        self._environments: dict[frozenset[str], Any] = {}
        self._compiled: dict[tuple[str, frozenset[str]], Expression] = {}

    def compile(self, text: str, names: frozenset[str]) -> Expression:
        known = self._compiled.get((text, names))
        if known is not None:
            return known
        if len(text) > EXPRESSION_CHARS_MAX:
            raise ExpressionInvalid(f"the expression is longer than {EXPRESSION_CHARS_MAX} characters")
        environment = self._environment(names)
        try:
            program = environment.compile(text)
        except RuntimeError as error:
            raise _explain_compile(str(error), text, names) from None
        except (TypeError, UnicodeError):
            raise ExpressionInvalid("the expression holds characters that are not valid text") from None
        path = _path(text, names)
        expression = _Path(text, *path) if path else _CelExpression(text, environment, program, names)
        if len(self._compiled) >= EXPRESSIONS_MAX:
            self._compiled.clear()
        self._compiled[text, names] = expression
        return expression

    def judge(self, text: str, types: Mapping[str, str]) -> tuple[str, str]:
        """What is wrong with the types in an expression, and what it gives (in the words of JSON Schema) if that is
        known. `types` are those of dotted names; of all others nothing is known."""
        from cel_expr_python import cel  # pyright: ignore[reportMissingTypeStubs]
        from cel_expr_python.ext import ext_strings  # pyright: ignore[reportMissingTypeStubs]

        kinds = {"string": cel.Type.STRING, "integer": cel.Type.INT, "boolean": cel.Type.BOOL}
        names = dict.fromkeys(sorted(references(text) - _NOT_NAMES), cel.Type.DYN)
        variables = {**names, **{name: kinds[kind] for name, kind in types.items()}}
        environment = cel.NewEnv(variables=variables, extensions=[ext_strings.ExtStrings(), _own_functions(cel)])
        try:
            kind = environment.compile(text).return_type().name().partition("<")[0]
        except RuntimeError as error:
            return _wrong_types(str(error)), ""
        return "", _KINDS.get(kind, "")

    def _environment(self, names: frozenset[str]) -> Any:
        environment = self._environments.get(names)
        if environment is None:
            from cel_expr_python import cel  # pyright: ignore[reportMissingTypeStubs]
            from cel_expr_python.ext import ext_strings  # pyright: ignore[reportMissingTypeStubs]

            variables = dict.fromkeys(sorted(names), cel.Type.DYN)
            environment = cel.NewEnv(variables=variables, extensions=[ext_strings.ExtStrings(), _own_functions(cel)])
            if len(self._environments) >= ENVIRONMENTS_MAX:
                self._environments.clear()
            self._environments[names] = environment
        return environment


def _own_functions(cel: Any) -> Any:
    read = cel.Overload("json_string", cel.Type.DYN, [cel.Type.STRING], False, _read_json)
    return cel.CelExtension("holdfast", [cel.FunctionDecl("json", [read])])


def _read_json(text: str) -> Any:
    try:
        return read_json(text)
    except JsonInvalid as error:
        raise ValueError(f"json(…) needs JSON, got {describe_value(text)}: {error}") from None


class _CelExpression:
    __slots__ = ("_environment", "_program", "_variables", "text")

    def __init__(self, text: str, environment: Any, program: Any, names: frozenset[str]) -> None:
        self.text = text
        self._environment = environment
        self._program = program
        # Only what the expression names is handed over: the runtime copies every value it is given.
        self._variables = tuple(sorted({name for chain in chains(text) if (name := _variable(chain, names))}))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        data = {name: values[name] for name in self._variables if name in values}
        try:
            outcome = self._program.eval(self._environment.Activation(data))
            if outcome.type().name() == "ERROR":
                raise _failed(self.text, _explain_evaluation(str(outcome.value())))
            return _json(outcome.plain_value(), self.text)
        except RuntimeError as error:
            raise _failed(self.text, _explain_evaluation(str(error))) from None


class _Path:
    """An expression that only follows a path, such as `steps.search.output.results`: by far the most common kind.

    It is compiled by CEL like every other, but walked in Python, because the runtime would copy the whole variable.
    """

    __slots__ = ("_selectors", "_variable", "text")

    def __init__(self, text: str, variable: str, selectors: tuple[str | int, ...]) -> None:
        self.text = text
        self._variable = variable
        self._selectors = selectors

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        try:
            value: Any = values[self._variable]
        except KeyError:
            raise _failed(self.text, f"{self._variable} has no value yet") from None
        for selector in self._selectors:
            value = self._select(value, selector)
        return _json(value, self.text)

    def _select(self, value: Any, selector: str | int) -> Any:
        if isinstance(value, dict):
            found = cast("dict[Any, Any]", value)
            if selector in found:
                return found[selector]
            raise _failed(self.text, _no_field(str(selector), [str(key) for key in found]))
        if isinstance(value, list) and isinstance(selector, int):
            items = cast("list[Any]", value)
            if selector < len(items):
                return items[selector]
            raise _failed(self.text, f"there is no item {selector} in a list of {len(items)}")
        raise _failed(self.text, f"{_called(value)} has no field or item {quoted(str(selector))}")


def _path(text: str, names: frozenset[str]) -> tuple[str, tuple[str | int, ...]] | None:
    if not _PATH.fullmatch(text) or text in _NOT_NAMES:
        return None
    variable = _variable(next(chains(text)), names)
    if variable is None:
        return None
    selectors: list[str | int] = []
    for match in _SELECTORS.finditer(text, len(variable)):
        selectors.append(int(match["index"]) if match["index"] else match["field"] or match["key"] or "")
    return variable, tuple(selectors)


def _variable(chain: str, names: frozenset[str]) -> str | None:
    """The declared variable a dotted name begins with; the longest one, as in CEL."""
    while chain:
        if chain in names:
            return chain
        chain = chain.rpartition(".")[0]
    return None


# ---- errors in plain words -------------------------------------------------------------------------------------


def _explain_compile(raw: str, text: str, names: frozenset[str]) -> ExpressionInvalid:
    mistake = syntax_mistake(raw, text)
    if mistake is not None:
        message = with_caret(mistake.message, text, mistake.line, mistake.column)
        return ExpressionInvalid(message, mistake.column, is_shown=True)
    first = _FIRST_ERROR.search(raw)
    message = first[3].strip().removesuffix("[INVALID_ARGUMENT]").strip() if first else raw.strip().split("\n")[0]
    column = max(0, int(first[2])) if first else 0
    undeclared = _UNDECLARED.search(message)
    if undeclared:
        name = undeclared[1]
        found = re.search(r"\s*\.\s*".join(map(re.escape, name.split("."))), text)
        return ExpressionInvalid(_explain_name(name, text, names), found.start() + 1 if found else column)
    overload = _OVERLOAD.search(message)
    if overload:
        return ExpressionInvalid(_explain_types(overload[1], overload[2]), column)
    if "recursion" in message:
        return ExpressionInvalid("the expression is nested too deeply")
    return ExpressionInvalid(message[:1].lower() + message[1:], column)


def _wrong_types(raw: str) -> str:
    """The first mismatch that would fail whatever the values are. Comparing unlike values for equality is allowed, and
    so is choosing between them."""
    for found in _OVERLOAD.finditer(raw):
        function, types = found[1], re.split(r",\s*", found[2])
        is_choice = function == "_?_:_" and types[0] in ("bool", "dyn")
        is_order = function in _ORDER and set(types) <= {"int", "uint", "double"}
        if function not in ("_==_", "_!=_", "@in") and not is_choice and not is_order and "*error*" not in types:
            return _explain_types(function, found[2])
    return ""


def _explain_name(name: str, text: str, names: frozenset[str]) -> str:
    parts = name.split(".")
    steps = sorted(known.removeprefix("steps.") for known in names if known.startswith("steps."))
    if name == "steps":
        return "a step is named with a dot, such as steps.search.output"
    if parts[0] == "steps":
        return f"no step called {quoted(parts[1])}{did_you_mean(parts[1], steps)}"
    if len(parts) == 1 and re.search(rf"\b{re.escape(name)}\s*\(", text):
        functions = [*FUNCTIONS, *METHODS]
        meant = did_you_mean(name, functions) or f"; there are: {', '.join(functions)}"
        return f"no function called {quoted(name)}{meant}"
    others = sorted(known for known in names if not known.startswith("steps."))
    nearest = did_you_mean(parts[0], others)
    known = ", ".join([*others, *(f"steps.{step}" for step in steps[:5]), *(["…"] if len(steps) > 5 else [])])
    return f"no variable called {quoted(parts[0])} here{nearest or f'; there are: {known}'}"


def _explain_evaluation(raw: str) -> str:
    message = re.sub(r"^[A-Z_]+: ", "", raw.strip())
    message = re.sub(r" \[[A-Z_]+\]$", "", message)
    overload = _NO_OVERLOAD.search(message)
    if overload:
        return _explain_types(overload[1], overload[2] or "")
    if message.startswith("Key not found in map"):
        return "there is no field " + message.partition(" : ")[2]
    if message.startswith("Index error"):
        return "there is no such item in the list: " + message.removeprefix("Index error: ")
    if "SELECT to non-message" in message:
        return "a field is read from a value that is not a map"
    if "Iteration budget" in message:
        return "it takes too many iterations; do this work in a tool"
    if message.startswith("No value with name"):
        return re.sub(r'No value with name "([^"]*)".*', r"\1 has no value yet", message)
    return message[:1].lower() + message[1:]


def _explain_types(function: str, types: str) -> str:
    names = [{"int64": "int", "uint64": "uint"}.get(name, name) for name in re.split(r",\s*", types) if name]
    operator = function.strip("_@").replace("_", "") or function
    if operator in ("<jump", "<jumpcondition>") or "jump" in function:
        return "the condition before ? is not true or false"
    if len(names) == 2 and {"int", "double"} == set(names):
        return f"{operator} cannot mix whole numbers and decimals; convert with double(…) or int(…)"
    joined = " and ".join(names)
    return f"{operator} does not work with {joined}" if joined else f"{operator} does not work with this type of value"


def _no_field(name: str, fields: list[str]) -> str:
    shown = ", ".join([*map(_shortened, fields[:FIELDS_SHOWN]), *(["…"] if len(fields) > FIELDS_SHOWN else [])])
    return f"there is no field {quoted(name)}{did_you_mean(name, fields) or (shown and f'; there are: {shown}')}"


def _shortened(name: str) -> str:
    return name if len(name) <= FIELD_CHARS_SHOWN else f"{name[:FIELD_CHARS_SHOWN]}…"


def _failed(text: str, what: str) -> InvalidCall:
    return InvalidCall(f"${{{{ {text} }}}}: {what}")


# ---- results as JSON -------------------------------------------------------------------------------------------


def _json(value: Any, text: str) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise _failed(text, f"the result is {value}, which JSON cannot hold")
            return value
        case list():
            return [_json(item, text) for item in cast("list[Any]", value)]
        case dict():
            items = cast("dict[Any, Any]", value)
            pairs = sorted(((_key(key), item) for key, item in items.items()), key=lambda pair: pair[0])
            return {key: _json(item, text) for key, item in pairs}
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case _:
            raise _failed(text, f"the result is {_called(value)}, which JSON cannot hold")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _called(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return "bytes"
    names = {"str": "a string", "bool": "a truth value", "int": "a number", "float": "a number"}
    names |= {"list": "a list", "dict": "a map", "NoneType": "null"}
    return names.get(type(value).__name__, "a type")
