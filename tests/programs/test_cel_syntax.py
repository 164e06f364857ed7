"""Mistakes in the syntax of an expression are said in our words, with a mark below the place."""

from __future__ import annotations

import pytest

from holdfast.core.expressions import ExpressionInvalid
from holdfast.programs.cel import Cel

NAMES = frozenset({"inputs", "a", "b"})
MISTAKES = [
    ("inputs.n +", "its end is missing", 11),
    ("(a", '")" is missing at the end', 3),
    ("a)", '")" cannot stand here: the expression had ended before it; an operator may be missing', 2),
    ("a = 3", '"=" means nothing here; compare with ==', 3),
    ("a and b", 'write "and" as &&', 3),
    ("a or b", 'write "or" as ||', 3),
    ("not a", 'write "not" as !, and "a not in b" as !(a in b)', 5),
    ("a & b", '"&" means nothing here; write && for and', 3),
    ("a | trim", '"|" means nothing here; write || for or; there are no filters, but functions such as text.trim()', 3),
    ("a ? 1", 'after "?" and a value, ":" and another value are missing', 6),
    ("'abc", "the text that begins with ' has no end", 1),
    ("a b", '"b" cannot stand here: the expression had ended before it; an operator may be missing', 3),
    ("[1, 2", '"]" or "," is missing at the end', 6),
    ("a +* 2", '"*" cannot stand here; a value or a name is expected', 4),
    ("a if b else 3", 'write "if" as condition ? value : other', 3),
    ("a # b", '"#" means nothing in an expression; put text in quotes', 3),
    ("a[", "its end is missing", 3),
]


@pytest.mark.parametrize(("text", "message", "column"), MISTAKES)
def test_syntax_mistake_is_said_in_plain_words_and_shown(text: str, message: str, column: int) -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        Cel().compile(text, NAMES)
    said, shown, mark = str(caught.value).split("\n")
    assert said.startswith(message)
    assert shown == f"    {text}"
    assert mark == " " * (4 + column - 1) + "^"


def test_long_expression_is_shown_around_its_mistake() -> None:
    text = " + ".join(["a"] * 60) + " = b + " + " + ".join(["a"] * 60)
    with pytest.raises(ExpressionInvalid) as caught:
        Cel().compile(text, NAMES)
    _, shown, mark = str(caught.value).split("\n")
    assert len(shown) < 70
    assert shown[mark.index("^")] == "="
