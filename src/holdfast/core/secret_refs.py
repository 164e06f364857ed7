"""Secrets as far as they can be told: where they are declared to be, and references that are journaled in their place.

A program only ever holds a reference. In the arguments of a step it stands as `${{ secrets.NAME }}` inside a text, and
data that happens to look so is escaped, so that nobody can smuggle a reference in through the output of a tool. Pure:
where values come from is holdfast.tools.secrets.vault, how they are hidden holdfast.core.masking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn, cast

import msgspec

from holdfast.core.error_text import describe_value, did_you_mean
from holdfast.core.errors import InputInvalid, InvalidCall, UsageError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
SECRET_CHARS_MIN = 4  # masking less would black out half of every text, and hide nothing
SECRET_BYTES_MAX = 64 * 1024  # a key or a certificate; more is a file, and is passed as a path

_MARK = re.compile(r"\$(\\*)\{\{ secrets\.([A-Za-z_][A-Za-z0-9_]*) \}\}")
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_LOOKS_SO = "{{ secrets."

SourceKind = Literal["env", "file", "command"]


class SecretSource(msgspec.Struct, frozen=True):
    """Where a value comes from: the name of a variable, the path of a file, or a command and its arguments."""

    kind: SourceKind
    where: tuple[str, ...]


# ---- declarations ----------------------------------------------------------------------------------------------


def read_sources(table: Mapping[str, Any]) -> dict[str, SecretSource]:
    """What `[secrets]` says. Raises InputInvalid that begins with the name in question."""
    return {name: _read_source(name, value) for name, value in table.items()}


def _read_source(name: str, value: Any) -> SecretSource:
    if not NAME.fullmatch(name):
        raise InputInvalid(f"{name}: expected a name of letters, digits and _, so that expressions can use it")
    expected = 'one of {env = "NAME"}, {file = "PATH"} and {command = ["PROGRAM", …]}'
    if not isinstance(value, dict) or len(cast("dict[str, Any]", value)) != 1:
        raise InputInvalid(f"{name}: expected {expected}, got {_kind_of(value)}")
    [(kind, where)] = cast("dict[str, Any]", value).items()
    match kind, where:
        case (("env" | "file"), str()) if where.strip() and "\0" not in where:
            return SecretSource(kind, (where,))
        case "command", list() if where and all(
            isinstance(part, str) and "\0" not in part for part in cast("list[Any]", where)
        ):
            return SecretSource(kind, tuple(cast("list[str]", where)))
        case (("env" | "file" | "command"), _):
            wanted = "a list of a program and its arguments" if kind == "command" else "a text"
            raise InputInvalid(f"{name}.{kind}: expected {wanted}, got {_kind_of(where)}")
        case _:
            hint = did_you_mean(kind, ("env", "file", "command"))
            raise InputInvalid(f"{name}: expected {expected}, got {describe_value(kind)}{hint}")


def _kind_of(value: Any) -> str:
    """What a wrong value is, and not which: it may be the secret itself, written where its place belongs."""
    if isinstance(value, str):
        return "a text (the value itself does not belong here: move it to a variable, a file or a password manager)"
    return "a number" if isinstance(value, int | float) and not isinstance(value, bool) else describe_value(value)


def not_declared(name: str, declared: Iterable[str]) -> str:
    """The sentence about a secret that nobody has declared."""
    known = list(declared)
    hint = did_you_mean(name, known) or (f"; there are: {', '.join(known)}" if known else "")
    return f'no secret called "{name}" is declared under [secrets] in the settings{hint}'


# ---- references ------------------------------------------------------------------------------------------------


class SecretText:
    """A text with secrets in it that are not known here: `"Bearer " + ctx.secret("TOKEN")`."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[str | SecretReference, ...]) -> None:
        self.parts = parts

    @property
    def names(self) -> frozenset[str]:
        return frozenset(part.name for part in self.parts if isinstance(part, SecretReference))

    def mark(self) -> str:
        """As it stands in journaled arguments: the references written out, everything else escaped."""
        merged: list[str] = []
        data = ""
        for part in self.parts:
            if isinstance(part, SecretReference):
                merged += [escaped(data), str(part)]
                data = ""
            else:
                data += part  # escaped together: two pieces may only make a reference of each other
        return "".join([*merged, escaped(data)])

    def __add__(self, other: object) -> SecretText:
        return SecretText((*self.parts, *_parts_of(other)))

    def __radd__(self, other: object) -> SecretText:
        return SecretText((*_parts_of(other), *self.parts))

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def __repr__(self) -> str:
        return f"<secret {', '.join(sorted(self.names))}>"

    def __format__(self, spec: str) -> NoReturn:
        raise UsageError(
            "a secret cannot be put into an f-string, because its value is not known here; "
            'add it to a text instead: "Bearer " + ctx.secret("TOKEN")'
        )


class SecretReference(msgspec.Struct, frozen=True):
    name: str

    def __str__(self) -> str:
        return f"${{{{ secrets.{self.name} }}}}"


def secret(name: str) -> SecretText:
    return SecretText((SecretReference(name),))


def _parts_of(other: object) -> tuple[str | SecretReference, ...]:
    if isinstance(other, SecretText):
        return other.parts
    if isinstance(other, str):
        return (other,)
    raise UsageError(f"only texts can be put together with a secret, not {describe_value(other)}")


def reference_in(expression: str) -> str:
    """The secret that an expression consists of; "" if it is anything else."""
    kind, _, name = expression.strip().partition(".")
    return name if kind == "secrets" and NAME.fullmatch(name) else ""


def escaped(text: str) -> str:
    """Data that looks like a reference, so written that it is none."""
    return _MARK.sub(lambda mark: f"$\\{mark[0][1:]}", text) if _LOOKS_SO in text else text


def marked(value: Any, names: set[str]) -> Any:
    """The same value as JSON can hold it, its secrets as references. Adds to `names` which ones there are."""
    match value:
        case SecretText():
            names |= value.names
            return value.mark()
        case str():
            return escaped(value)
        case dict():
            return {key: marked(item, names) for key, item in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [marked(item, names) for item in cast("list[Any]", value)]
        case _:
            return value


def typed_references(value: Any) -> tuple[Any, set[str]]:
    """What a person typed, its references as put_in reads them, and their names. Other expressions are refused."""
    names: set[str] = set()

    def read(expression: re.Match[str]) -> str:
        name = reference_in(expression[1])
        if not name:
            raise InputInvalid(f"{expression[0]}: there is no plan here, so only ${{{{ secrets.NAME }}}} has a meaning")
        names.add(name)
        return str(SecretReference(name))

    return _mapped(value, lambda text: _EXPRESSION.sub(read, text)), names


def put_in(value: Any, secrets: Mapping[str, str]) -> Any:
    """Journaled arguments as the tool gets them. A reference to a secret that the step does not use is refused."""

    def filled(mark: re.Match[str]) -> str:
        if mark[1]:
            return f"${mark[1][1:]}{mark[0][1 + len(mark[1]) :]}"
        if mark[2] not in secrets:
            raise InvalidCall(f"the step does not use the secret {mark[2]}; its plan must name it")
        return secrets[mark[2]]

    return _mapped(value, lambda text: _MARK.sub(filled, text) if _LOOKS_SO in text else text)


def taken_out(value: Any, secrets: Mapping[str, str]) -> Any:
    """The same with references where the values themselves stood; the reverse of `put_in`. Expects escaped data."""
    if not secrets:
        return value
    names = {text: name for name, text in secrets.items()}
    values = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))

    def change(text: str) -> str:
        end, parts = 0, list[str]()
        for mark in [*_MARK.finditer(text), None]:  # a value may be a part of how references are written
            data = text[end : mark.start() if mark else None]
            parts += [values.sub(lambda found: str(SecretReference(names[found[0]])), data), mark[0] if mark else ""]
            end = mark.end() if mark else 0
        return "".join(parts)

    return _mapped(value, change)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _mapped(item, change) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_mapped(item, change) for item in cast("list[Any]", value)]
        case _:
            return value
