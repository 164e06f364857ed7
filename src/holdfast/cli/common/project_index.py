"""What a project's own files offer by name: its functions, its tools, and what a program wants to be given.

Read off the text of modules and plans. Running a module may take long, or do something, and nobody has asked for that
who only presses a key.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from holdfast.settings import Settings

MODULE_BYTES_MAX = 1024 * 1024
PLAN_BYTES_MAX = 256 * 1024
_SEAMS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # of a class's name, which its tool bears in small letters


class Offered(NamedTuple):
    name: str
    doc: str
    wants: tuple[str, ...]  # the names of its parameters


def functions_of(settings: Settings) -> Iterator[Offered]:
    yield from _decorated(settings, "function", (ast.AsyncFunctionDef,), own_first="ctx")


def tools_of(settings: Settings) -> Iterator[Offered]:
    """Those of the project's modules."""
    yield from _decorated(settings, "tool", (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def inputs_of(settings: Settings, program: str) -> Iterator[tuple[str, str]]:
    """What a plan file or a function can be given, each with a word about it."""
    from holdfast.programs.plan_files import PLAN_ENDINGS, parse_document

    if not program.endswith(PLAN_ENDINGS):
        for function in functions_of(settings):
            yield from ((name, "an input") for name in function.wants if function.name == program)
        return
    file = Path(program)
    if file.stat().st_size > PLAN_BYTES_MAX:
        return
    declared: Any = parse_document(file.read_text("utf-8"), file)["inputs"]
    for name, said in declared.items():
        about = cast("dict[str, Any]", said).get("type") if isinstance(said, dict) else said
        yield str(name), str(about or "an input")


def _decorated(
    settings: Settings, decorator: str, kinds: tuple[type[ast.stmt], ...], own_first: str = ""
) -> Iterator[Offered]:
    for module in settings.modules:
        file = settings.root / (module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
        try:
            body = ast.parse(file.read_bytes()[:MODULE_BYTES_MAX]).body
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
        for made in body:
            if not isinstance(made, kinds):
                continue
            node: Any = made
            doc = (ast.get_docstring(node) or "").partition("\n")[0]
            own = _SEAMS.sub("_", node.name).lower() if isinstance(made, ast.ClassDef) else node.name
            for name in filter(None, (_name_by(one, own, decorator) for one in node.decorator_list)):
                yield Offered(name, doc, _parameters(node, own_first))


def _parameters(made: Any, own_first: str) -> tuple[str, ...]:
    """Without the first one where that is Holdfast's own, such as a function's `ctx`."""
    arguments = getattr(made, "args", None)
    if arguments is None:
        return ()
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return tuple(names[1:] if own_first else names)


def _name_by(decorator: Any, own: str, wanted: str) -> str:
    """What `@holdfast.tool`, `@tool` or `@tool(name="…")` makes of a definition; "" for other decorators."""
    called = getattr(decorator, "func", decorator)
    if getattr(called, "attr", getattr(called, "id", "")) != wanted:
        return ""
    named = [keyword.value.value for keyword in getattr(decorator, "keywords", ()) if keyword.arg == "name"]
    return str(named[0]) if named else own
