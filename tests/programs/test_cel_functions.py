"""The functions that are named to people are those that expressions have."""

from __future__ import annotations

import pytest

from holdfast.core.expressions import ExpressionInvalid
from holdfast.programs.cel import FUNCTIONS, METHODS, Cel

NAMES = frozenset({"inputs", "x"})
MACROS = {"all": "[1].all(y, y > 0)", "exists": "[1].exists(y, y > 0)", "exists_one": "[1].exists_one(y, y > 0)",
          "filter": "[1].filter(y, y > 0)", "map": "[1].map(y, y)"}  # fmt: skip
WITHOUT = ("trim", "lowerAscii", "upperAscii", "reverse", "join")
WITH_TWO = ("replace",)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_that_is_named_is_there(name: str) -> None:
    Cel().compile("has(inputs.x)" if name == "has" else f"{name}(x)", NAMES)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_is_named_is_there(name: str) -> None:
    given = "" if name in WITHOUT else "x, x" if name in WITH_TWO else "x"
    Cel().compile(MACROS.get(name, f"x.{name}({given})"), NAMES)


def test_a_function_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(ExpressionInvalid, match=r'no function called "range"; there are: size, has, int, .*, format'):
        Cel().compile("range(3)", NAMES)
    with pytest.raises(ExpressionInvalid, match=r'no function called "startswith"; did you mean "startsWith"\?'):
        Cel().compile('"a".startswith("b")', NAMES)
