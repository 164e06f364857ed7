"""The registry knows tools by name, finds them in the user's modules, and never guesses between two."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import NotFound, SettingsInvalid, UsageError
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.registry import Registry
from holdfast.tools.tool import tool

MODULE = """
from holdfast.tools.tool import tool

@tool(effect="read")
def greet(name: str) -> str:
    return f"hello {name}"

class Function:
    __holdfast_function__ = True
    name = "research"

program = Function()
"""


@pytest.fixture(autouse=True)
def _same_modules_afterwards() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_tools_are_found_by_name_and_suggested_when_mistyped() -> None:
    registry = Registry()
    with pytest.raises(NotFound, match=r'no tool called "x"; none is known: name your modules in holdfast.toml'):
        registry.get("x")
    for known in builtin_tools():
        registry.add(known)
        registry.add(known)
    assert {"shell.run", "files.read", "http.get", "time.sleep"} <= set(registry.names())
    assert registry.get("shell.run").effect == "once"
    with pytest.raises(NotFound, match=r'no tool called "file.write"; did you mean "files.write"\?'):
        registry.get("file.write")
    with pytest.raises(NotFound, match=r'no tool called "zzzz"; known are browser.'):
        registry.get("zzzz")


def test_a_call_is_checked_against_the_tool() -> None:
    registry = Registry()
    for known in builtin_tools():
        registry.add(known)
    assert registry.check("time.sleep", {"seconds": 1}, frozenset()) == []
    assert registry.check("shell.run", {"command": 3, "cwdd": "x"}, frozenset()) == [
        ("command", "expected a string or a list, got the number 3"),
        ("cwdd", 'no such argument; did you mean "cwd"?'),
    ]
    assert registry.check("shell.run", {}, frozenset({"command"})) == []


def test_two_tools_of_one_name_are_an_error_that_names_both_places() -> None:
    registry = Registry()
    first, second = tool(name="t")(lambda: 1), tool(name="t")(lambda: 2)
    registry.add(first)
    with pytest.raises(SettingsInvalid) as caught:
        registry.add(second)
    assert str(caught.value).startswith(f'two tools are called "t": one at {first.place}, one at {second.place}; give')
    assert registry.get("t") is first


def test_a_tool_that_promises_a_check_must_have_one() -> None:
    registry = Registry()
    pay = tool(name="pay", in_doubt="verify")(lambda: None)
    with pytest.raises(SettingsInvalid, match=r'in_doubt="verify" needs a check; declare one with @….verify'):
        registry.add(pay)
    pay.verify(lambda call, arguments: None)
    registry.add(pay)


def test_a_file_is_loaded_once_and_gives_its_tools_and_functions(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(MODULE)
    registry, other = Registry(), Registry()
    module = registry.load_module("my_tools.py", tmp_path)
    assert registry.load_module("my_tools.py", tmp_path) is module
    assert other.load_module("my_tools", tmp_path) is module
    assert other.get("greet") is registry.get("greet")
    assert registry.function("research") is module.program
    assert list(registry.function_names()) == ["research"]
    with pytest.raises(NotFound, match=r'no function called "reserch"; did you mean "research"\?'):
        registry.function("reserch")


def test_a_file_named_like_a_known_module_does_not_replace_it(tmp_path: Path) -> None:
    import json

    (tmp_path / "json.py").write_text(MODULE)
    module = Registry().load_module("json.py", tmp_path)
    assert module is not json
    assert sys.modules["json"] is json


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "neighbour_of_tools.py").write_text(MODULE)
    (tmp_path / "sub" / "main_tools.py").write_text("from neighbour_of_tools import greet")
    registry = Registry()
    registry.load_module("sub/main_tools.py", tmp_path)
    assert list(registry.names()) == ["greet"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\ny = = 2\n", "broken_tools.py:2: SyntaxError: invalid syntax"),
        ("\n\n1 / 0\n", "broken_tools.py:3: ZeroDivisionError: division by zero"),
        ("import no_such_module_anywhere\n", "broken_tools.py:1: ModuleNotFoundError: No module named 'no_such_mod"),
        ("import sys\nsys.exit()\n", "broken_tools.py:2: SystemExit"),
        ("from holdfast.tools.tool import tool\n@tool(effect='x')\ndef f(): ...\n", "UsageError: tool f at "),
    ],
)
@pytest.mark.parametrize("spec", ["broken_tools.py", "broken_tools"])
def test_a_module_that_cannot_be_imported_is_reported_with_file_and_line(
    tmp_path: Path, source: str, message: str, spec: str
) -> None:
    (tmp_path / "broken_tools.py").write_text(source)
    with pytest.raises(SettingsInvalid) as caught:
        Registry().load_module(spec, tmp_path)
    assert str(caught.value).startswith(f'the module "{spec}" cannot be imported: ')
    assert message in str(caught.value)
    assert "broken_tools" not in sys.modules


def test_a_module_that_is_not_there_is_reported_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsInvalid, match=r'no module called "no_such.tools", looked for from .*; correct the name'
    ):
        Registry().load_module("no_such.tools", tmp_path)
    with pytest.raises(SettingsInvalid, match=r'no file called "nope.py" in .*; correct the path'):
        Registry().load_module("nope.py", tmp_path)


def test_two_functions_of_one_name_are_an_error(tmp_path: Path) -> None:
    def research() -> None: ...

    def other() -> None: ...

    other.__name__ = "research"
    registry = Registry()
    registry.add_function(research)
    registry.add_function(research)
    with pytest.raises(
        SettingsInvalid, match=r'two functions are called "research": one at .*:\d+, one at .*:\d+; ren'
    ):
        registry.add_function(other)
    with pytest.raises(UsageError, match="3 is not a function program; decorate a coroutine with @function"):
        registry.add_function(3)
