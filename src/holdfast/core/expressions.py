"""Expressions in plans: the port through which the core is handed an evaluator, and values with `${{ … }}` in them.

The core knows no expression language. It finds where an expression begins and ends, which variables it names, and puts
results into place; `programs/cel.py` does the rest. Everything is compiled once, before anything starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, cast

from holdfast.core.error_text import describe_value
from holdfast.core.errors import InvalidCall, Problem, ToolError, UsageError
from holdfast.core.secret_refs import SecretText, reference_in, secret

Render = Callable[[Mapping[str, Any]], Any]

# String literals may hold braces and dots that mean nothing to us, so they are stepped over as a whole. Raw literals
# come first: in them a backslash escapes nothing.
_RAW = r"""(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"]*"|'[^']*')"""
_COOKED = r"""(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_TOKEN = re.compile(rf"(?P<literal>{_RAW}|{_COOKED})|(?P<open>\{{)|(?P<close>\}})", re.DOTALL)
_CHAIN = re.compile(
    rf"(?:{_RAW}|{_COOKED})|(?<![\w.])(?P<chain>[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*)", re.DOTALL | re.ASCII
)
_FOLLOWED = re.compile(
    rf"(?<![\w.\])])(?P<path>[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*|\[\d{{1,9}}\]|\[\"[^\"\\]*\"\]|\['[^'\\]*'\])*)"
    rf"|(?:{_RAW}|{_COOKED})",
    re.DOTALL | re.ASCII,
)
_SELECTED = re.compile(r"""(?P<field>[A-Za-z_]\w*)|\[(?P<index>\d+)\]|\[["'](?P<key>[^"']*)["']\]""", re.ASCII)
_TESTED = re.compile(r"\bhas\(\s*$")
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_TWO_PART = ("inputs", "steps", "secrets")  # of these, the second part says which one is meant


class ExpressionInvalid(UsageError):
    """The expression cannot be compiled. `column` counts from 1; 0 means that it is not known. `is_shown`: the message
    shows the place by itself."""

    def __init__(self, message: str, column: int = 0, *, is_shown: bool = False) -> None:
        self.column = column
        self.is_shown = is_shown
        super().__init__(message)


class Expression(Protocol):
    """One compiled expression."""

    @property
    def text(self) -> str: ...

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """A JSON value. Raises `InvalidCall` that names the expression when it cannot be worked out."""
        ...


class Expressions(Protocol):
    """What the core asks of an expression language."""

    def compile(self, text: str, names: frozenset[str]) -> Expression:
        """Raises `ExpressionInvalid`. `names` are dotted variables such as `inputs`, `item`, `steps.search`."""
        ...


def chains(text: str) -> Iterator[str]:
    """Every dotted name in an expression, outside its string literals: `steps.search.output`."""
    for match in _CHAIN.finditer(text):
        if match["chain"]:
            yield re.sub(r"\s+", "", match["chain"])


class PathUsed(NamedTuple):
    """Where an expression follows a path from a variable: `steps.search.output.results[0].url`."""

    text: str
    parts: tuple[str | int, ...]
    is_tested: bool  # inside has(…), where its last part may be missing


def paths_of(text: str) -> Iterator[PathUsed]:
    """Every path in an expression, outside its string literals; a function at its end is none of its parts."""
    for match in _FOLLOWED.finditer(text):
        if not match["path"]:
            continue
        found = [_part(selector) for selector in _SELECTED.finditer(match["path"])]
        is_call = text[match.end() :].lstrip().startswith("(")
        is_tested = bool(_TESTED.search(text[: match.start()]))
        parts = tuple(found[:-1] if is_call or is_tested else found)
        if parts:
            yield PathUsed(match["path"], parts, is_tested)


def _part(selector: re.Match[str]) -> str | int:
    return int(selector["index"]) if selector["index"] else selector["field"] or selector["key"]


def references(text: str) -> frozenset[str]:
    """The variables an expression may use: `inputs.topic`, `steps.search`, `item`. Too many rather than too few."""
    found: set[str] = set()
    for chain in chains(text):
        parts = chain.split(".")
        found.add(".".join(parts[:2]) if parts[0] in _TWO_PART else parts[0])
    return frozenset(found)


class Template:
    """A JSON value whose strings may hold expressions. Without any, it renders to the very same value."""

    __slots__ = ("_parts", "_render", "dynamic", "dynamic_keys", "source", "uses")

    def __init__(self, source: Any, render: Render | None = None, uses: tuple[tuple[str, str], ...] = ()) -> None:
        self.source = source
        self.uses = uses  # (place, variable) pairs, so that a mistake found later still has its place
        self.dynamic = render is not None
        self.dynamic_keys: frozenset[str] = frozenset()
        self._render = render
        self._parts: Mapping[str, Render] = {}

    @classmethod
    def compile(
        cls, value: Any, expressions: Expressions, names: frozenset[str], place: str, problems: list[Problem]
    ) -> Template:
        """Mistakes go to `problems`, and the template is then not to be rendered."""
        compiler = _Compiler(expressions, names, problems)
        render = compiler.value(value, place)
        template = cls(value, render, tuple(compiler.uses))
        if render is not None and isinstance(value, dict):
            template._parts = compiler.parts
            template.dynamic_keys = frozenset(compiler.parts)
        return template

    @property
    def references(self) -> frozenset[str]:
        return frozenset(name for _, name in self.uses)

    @property
    def secrets(self) -> frozenset[str]:
        """What it renders then holds `SecretText`s, which `secrets.marked` turns into JSON."""
        return frozenset(name.removeprefix("secrets.") for _, name in self.uses if name.startswith("secrets."))

    def render(self, values: Mapping[str, Any]) -> Any:
        return self.source if self._render is None else self._render(values)

    def render_known(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, ToolError]]:
        """Of a map: the values that can be worked out, and why the others cannot."""
        known: dict[str, Any] = {}
        unknown: dict[str, ToolError] = {}
        source: Any = self.source
        for key, value in cast("dict[str, Any]", source).items() if isinstance(source, dict) else ():
            try:
                known[key] = self._parts[key](values) if key in self._parts else value
            except ToolError as error:
                unknown[key] = error
        return known, unknown

    def __repr__(self) -> str:
        return f"Template({self.source!r})"


class Condition:
    """What decides whether a step runs: an expression that must come out as true or false."""

    __slots__ = ("_expression", "_fixed", "text", "uses")

    def __init__(self, text: str, expression: Expression | None, uses: tuple[tuple[str, str], ...] = ()) -> None:
        self.text = text
        self.uses = uses
        self._expression = expression
        self._fixed = text == "true"

    @classmethod
    def compile(
        cls, value: Any, expressions: Expressions, names: frozenset[str], place: str, problems: list[Problem]
    ) -> Condition | None:
        """`${{ expression }}`, a bare expression, true or false."""
        if isinstance(value, bool):
            return cls("true" if value else "false", None)
        if not isinstance(value, str):
            problems.append(Problem(place, f"expected true, false or an expression, got {describe_value(value)}"))
            return None
        text = _only_expression(value)
        if text is None and "${{" in value:
            message = "expected one expression and nothing around it, such as ${{ inputs.count > 3 }}"
            problems.append(Problem(place, message))
            return None
        compiler = _Compiler(expressions, names, problems)
        expression = compiler.expression(value if text is None else text, place)
        return None if expression is None else cls(expression.text, expression, tuple(compiler.uses))

    @property
    def references(self) -> frozenset[str]:
        return frozenset(name for _, name in self.uses)

    def holds(self, values: Mapping[str, Any]) -> bool:
        if self._expression is None:
            return self._fixed
        outcome = self._expression.evaluate(values)
        if not isinstance(outcome, bool):
            raise InvalidCall(f"${{{{ {self.text} }}}}: expected true or false, got {describe_value(outcome)}")
        return outcome


class _Compiler:
    """One walk through a value. Each method returns how to render what it saw, or None when it is constant."""

    def __init__(self, expressions: Expressions, names: frozenset[str], problems: list[Problem]) -> None:
        self._expressions = expressions
        self._names = names
        self._problems = problems
        self.uses: list[tuple[str, str]] = []
        self.parts: dict[str, Render] = {}  # of the outermost map, as it is the last to be done

    def value(self, value: Any, place: str) -> Render | None:
        match value:
            case str() if "${{" in value:
                return self._string(value, place)
            case dict():
                return self._map(cast("dict[str, Any]", value), place)
            case list():
                return self._list(cast("list[Any]", value), place)
            case _:
                return None

    def _map(self, value: dict[str, Any], place: str) -> Render | None:
        parts: dict[str, Render] = {}
        for key, item in value.items():
            if "${{" in key:
                self._problems.append(Problem(place, f"expressions belong in values, not in the name {key!r}"))
            render = self.value(item, place_of(place, key))
            if render is not None:
                parts[key] = render
        self.parts = parts
        if not parts:
            return None
        return lambda values: {key: parts[key](values) if key in parts else item for key, item in value.items()}

    def _list(self, value: list[Any], place: str) -> Render | None:
        parts = [self.value(item, f"{place}[{index}]") for index, item in enumerate(value)]
        if not any(parts):
            return None
        pairs = list(zip(parts, value, strict=True))
        return lambda values: [item if render is None else render(values) for render, item in pairs]

    def _string(self, value: str, place: str) -> Render | None:
        pieces = split_template(value)
        if isinstance(pieces, str):
            self._problems.append(Problem(place, pieces))
            return lambda values: None
        compiled = [(text, self.expression(text, place) if is_expression else None) for is_expression, text in pieces]
        if len(compiled) == 1 and compiled[0][1] is not None:
            return compiled[0][1].evaluate
        if any(isinstance(part, _Secret) for _, part in compiled):
            return lambda values: _with_secrets(compiled, values)
        return lambda values: "".join(
            text if part is None else as_text(part.evaluate(values)) for text, part in compiled
        )

    def expression(self, text: str, place: str) -> Expression | None:
        text = text.strip()
        if not text:
            self._problems.append(Problem(place, "the expression is empty"))
            return None
        if name := reference_in(text):
            self.uses.append((place, f"secrets.{name}"))
            return _Secret(name)
        if any(name.partition(".")[0] == "secrets" for name in references(text)):
            message = (
                'a secret can only be put in as it is, since nothing is known of it: "Bearer ${{ secrets.TOKEN }}"'
            )
            self._problems.append(Problem(place, f"${{{{ {text} }}}}: {message}"))
            return None
        try:
            expression = self._expressions.compile(text, self._names)
        except ExpressionInvalid as error:
            is_told = error.column and not error.is_shown
            where = f" (column {error.column} of the expression)" if is_told else ""
            self._problems.append(Problem(place, f"${{{{ {text} }}}}: {error}{where}"))
            return None
        self.uses.extend((place, name) for name in sorted(references(text)))
        return expression


class _Secret:
    """Stands for a value that no expression may see."""

    def __init__(self, name: str) -> None:
        self.text = f"secrets.{name}"
        self._name = name

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        return secret(self._name)


def _with_secrets(pieces: list[tuple[str, Expression | None]], values: Mapping[str, Any]) -> SecretText:
    whole = SecretText(())
    for text, part in pieces:
        found = text if part is None else part.evaluate(values)
        whole += found if isinstance(found, SecretText) else as_text(found)
    return whole


def fill(value: Any, expressions: Expressions, values: Mapping[str, Any]) -> Any:
    """A value with every expression worked out that needs nothing but `values`; the others stay as they are written.

    Raises `InvalidCall` for one that cannot be worked out though everything it needs is there.
    """
    match value:
        case str() if "${{" in value:
            return _filled(value, expressions, values)
        case dict():
            return {key: fill(item, expressions, values) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [fill(item, expressions, values) for item in cast("list[Any]", value)]
        case _:
            return value


def _filled(text: str, expressions: Expressions, values: Mapping[str, Any]) -> Any:
    pieces = split_template(text)
    assert not isinstance(pieces, str)  # the reader has seen this text
    names = frozenset(values)
    filled: list[Any] = []
    for is_expression, piece in pieces:
        try:
            filled.append(expressions.compile(piece.strip(), names).evaluate(values) if is_expression else piece)
        except ExpressionInvalid:
            filled.append(f"${{{{{piece}}}}}")
    return filled[0] if len(filled) == 1 else "".join(map(as_text, filled))


def place_of(place: str, key: str) -> str:
    """`steps[2].with` and `url` make `steps[2].with.url`; a name that is not a plain word is put in brackets."""
    if _WORD.fullmatch(key):
        return f"{place}.{key}" if place else key
    return f"{place}[{json.dumps(key, ensure_ascii=False)}]"


def split_template(text: str) -> list[tuple[bool, str]] | str:
    """`(is_expression, text)` pieces, or a sentence about what is wrong."""
    pieces: list[tuple[bool, str]] = []
    position = 0
    while (start := text.find("${{", position)) >= 0:
        if start > position:
            pieces.append((False, text[position:start]))
        end = _end_of_expression(text, start + 3)
        if end < 0:
            return 'an expression begins with "${{" but its closing "}}" is missing'
        pieces.append((True, text[start + 3 : end]))
        position = end + 2
    if position < len(text):
        pieces.append((False, text[position:]))
    return pieces


def _only_expression(text: str) -> str | None:
    stripped = text.strip()
    if not stripped.startswith("${{"):
        return None
    end = _end_of_expression(stripped, 3)
    return stripped[3:end] if end == len(stripped) - 2 else None


def _end_of_expression(text: str, start: int) -> int:
    """Where the closing braces are; map literals and strings inside the expression may have braces of their own."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token["open"]:
            depth += 1
        elif token["close"]:
            if depth == 0:
                return token.start() if text.startswith("}}", token.start()) else -1
            depth -= 1
    return -1


def as_text(value: Any) -> str:
    """A value in the middle of a sentence."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return json.dumps(value, ensure_ascii=False)
