"""What is wrong with the syntax of an expression, in plain words. The parser's own words name its tokens."""

# sentences of others: CEL

from __future__ import annotations

import re
from typing import NamedTuple

SHOWN_CHARS = 60  # of the expression, around the mistake

_SYNTAX = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: |(?=reserved identifier))(.*)")
_INPUT = re.compile(r"(?:input|at) '(.*?)'(?: expecting (.*))?$")
_TOKEN = re.compile(r"token recognition error at: '(.*)'$", re.DOTALL)
_WORDS = {
    "and": 'write "and" as &&',
    "or": 'write "or" as ||',
    "not": 'write "not" as !, and "a not in b" as !(a in b)',
    "is": 'write "is" as ==',
    "if": 'write "if" as condition ? value : other',
    "then": 'write "if" as condition ? value : other',
    "else": 'write "if" as condition ? value : other',
    "for": "go through a list with list.map(x, …) or list.filter(x, …)",
}
_CHARACTERS = {
    "=": "compare with ==",
    "=>": "compare with ==, or with >=",
    "&": "write && for and",
    "|": 'write || for or; there are no filters, but functions such as text.trim() and list.join(", ")',
    "$": "leave it out: an expression names its variables as they are",
}


class Mistake(NamedTuple):
    message: str
    line: int
    column: int  # from 1


def syntax_mistake(raw: str, text: str) -> Mistake | None:
    """The first mistake that the parser reports, unless it is none of syntax."""
    found = _SYNTAX.search(raw)
    if found is None:
        return None
    line, column, said = int(found[1]), int(found[2]), found[3].removesuffix("[INVALID_ARGUMENT]").strip()
    return Mistake(_in_words(said, text, line, column), line, column)


def with_caret(message: str, text: str, line: int, column: int) -> str:
    """The line of the expression that is meant, and a mark below the place."""
    shown = text.split("\n")[line - 1] if 0 < line <= text.count("\n") + 1 else text
    start = max(0, column - 1 - SHOWN_CHARS // 2)
    cut = shown[start : start + SHOWN_CHARS]
    before, after = "…" if start else "", "…" if start + SHOWN_CHARS < len(shown) else ""
    return f"{message}\n    {before}{cut}{after}\n    {' ' * (len(before) + column - 1 - start)}^"


def _in_words(said: str, text: str, line: int, column: int) -> str:
    here = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
    if word := re.match(r"\w+", here[column - 1 :]):
        before = re.search(r"(\w+)\s*$", here[: column - 1])
        for one in (word[0], before[1] if before else ""):
            if one in _WORDS:
                return _WORDS[one]
    if token := _TOKEN.match(said):
        return _of_characters(token[1])
    if said.startswith("reserved identifier"):
        return f'"{said.rpartition(" ")[2]}" is a word that CEL keeps for itself'
    if said.startswith("no viable") and not here[column - 1 :].strip():
        return "its end is missing"
    at = _INPUT.search(said)
    if at is None:
        return "this cannot be read as an expression"
    return _of_input(at[1], at[2] or "", said)


def _of_characters(token: str) -> str:
    if token[:1] in ('"', "'"):
        return f"the text that begins with {token[0]} has no end, or holds a backslash that means nothing"
    known = token.strip()
    if known in _CHARACTERS:
        return f'"{known}" means nothing here; {_CHARACTERS[known]}'
    return f'"{known}" means nothing in an expression; put text in quotes'


def _of_input(found: str, expected: str, said: str) -> str:
    if missing := re.match(r"missing '(.)' at", said):
        return f'"{missing[1]}" is missing {"at the end" if found == "<EOF>" else f"before {_quoted(found)}"}'
    if found == "<EOF>":
        if expected == "':'":
            return 'after "?" and a value, ":" and another value are missing'
        return (
            '"]" or "," is missing at the end'
            if "']'" in expected and "IDENT" not in expected
            else "its end is missing"
        )
    if expected == "<EOF>":
        return f"{_quoted(found)} cannot stand here: the expression had ended before it; an operator may be missing"
    return f"{_quoted(found)} cannot stand here; a value or a name is expected"


def _quoted(found: str) -> str:
    return f'"{found}"' if '"' not in found else found
