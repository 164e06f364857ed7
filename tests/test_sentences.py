"""Nothing is recognised by a sentence: sentences are for people, and whatever is decided is decided by a code.

Looks for comparisons with a sentence and for texts that are cut at one. What other software says has no codes: a file
that reads such texts says so below its docstring, `# sentences of others: libpq`. One that knows what our own older
versions have journaled says `# old sentences: …`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent
EXEMPT = re.compile(r"^# (sentences of others: \S|old sentences: )", re.MULTILINE)
CUTS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "rsplit", "find",
        "index", "count", "replace"}  # fmt: skip
MATCHES = {"match", "fullmatch", "search", "sub", "split", "findall", "compile"}
SENTENCE = re.compile(r"[A-Za-z]{2,},? [A-Za-z]{2,}")


def said(node: ast.AST, constants: dict[str, str]) -> str:
    """The text of a literal, or of a constant of the same file; "" if it is none."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(said(part, constants) or "{}" for part in parts)
        case ast.Name(id=name):
            return constants.get(name, "")
        case _:
            return ""


def is_sentence(node: ast.AST, constants: dict[str, str]) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(is_sentence(one, constants) for one in node.elts)
    return SENTENCE.search(said(node, constants)) is not None


def is_text_of_error(node: ast.AST) -> bool:
    """`str(error)`: what is in there is for people."""
    return isinstance(node, ast.Call) and ast.unparse(node) in ("str(error)", "str(problem)", "str(trouble)")


def wrongs(source: str) -> Iterator[tuple[int, str]]:
    if EXEMPT.search(source):
        return
    tree = ast.parse(source)
    constants = {
        one.targets[0].id: one.value.value
        for one in tree.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
        if isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                wrong = any(is_sentence(side, constants) or is_text_of_error(side) for side in sides)
            case ast.MatchValue():
                wrong = is_sentence(node.value, constants)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=attr), args=[pattern, *_]):
                wrong = attr in MATCHES and is_sentence(pattern, constants)
            case ast.Call(func=ast.Attribute(value=text, attr=attr), args=[at, *_]):
                is_cut = is_sentence(at, constants) or said(at, constants) == "; " or is_text_of_error(text)
                wrong = attr in CUTS and is_cut
            case _:
                wrong = False
        if wrong and isinstance(node, ast.expr | ast.MatchValue):
            yield (node.value if isinstance(node, ast.MatchValue) else node).lineno, ast.unparse(node)


def test_no_sentence_is_compared_or_cut() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {code}"
        for path in sorted(SOURCE.rglob("*.py"))
        if "store_contract" not in path.parts  # the store contract compares what it wrote
        for line, code in wrongs(path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        'outcome.reason.startswith("its tool is not there")',
        '_NO_TOOL = "its tool is not there"\noutcome.reason.startswith(_NO_TOOL)',
        'what, _, todo = sentence.partition("; ")',
        'str(error).removeprefix("to: ")',
        '"does not exist" in text',
        'head.id in str(error)',
        'head.held == "it was imported"',
        'match why:\n    case "it was imported":\n        pass',
        're.match(r"no tool called (.*)", message)',
    ],
)  # fmt: skip
def test_each_way_to_decide_by_a_sentence_is_found(code: str) -> None:
    assert len(list(wrongs(code))) == 1


def test_codes_and_separators_are_no_sentences() -> None:
    allowed = 'head.held == "imported"; a.split(" "); b.partition(": "); c == "in progress, 3"; str(error).splitlines()'
    assert list(wrongs(allowed.replace('c == "in progress, 3"; ', ""))) == []
