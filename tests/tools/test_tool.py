"""A tool checks what it is called with and what it returns, and says what it needs."""

from __future__ import annotations

import asyncio
import enum
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from holdfast.core.errors import InvalidCall, Trouble, UsageError
from holdfast.core.failure import describe
from holdfast.core.policy import Approval, Retry
from holdfast.tools.call import Call, DidNotHappen, Happened, current_call
from holdfast.tools.hooks import OutputInvalid
from holdfast.tools.json_values import NotJson
from holdfast.tools.tool import Tool, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Torn:
    """Unions in its fields are for msgspec, which cannot read this one."""

    either: Path | str


class Options(TypedDict, total=False):
    depth: int


class Shape(msgspec.Struct):
    points: list[Point]


class Account(pydantic.BaseModel):
    name: str
    age: int


def a_call(**given: Any) -> Call:
    return Call("execution", "step", 1, "key", given.pop("folder", Path()), **given)


@tool
async def everything(  # noqa: PLR0913, PLR0917
    text: str,
    number: float = 0.0,
    colour: Colour = Colour.RED,
    point: Point | None = None,
    options: Options | None = None,
    shape: Shape | None = None,
    account: Account | None = None,
    size: Literal["small", "large"] = "small",
    where: Path | str = "",
    tags: list[str] | None = None,
    at: datetime | None = None,
    count: Annotated[int, msgspec.Meta(ge=0)] = 0,
    either: Point | Account | None = None,
) -> None: ...


@tool(effect="read")
async def fetch(url: str, tries: int = 3) -> str:
    """Fetch a page.

    With care.
    """
    return f"{url} {tries}"


def test_a_tool_without_options_is_once_and_still_a_function() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert (add.name, add.effect, add.in_doubt, add.version) == ("add", "once", "ask", "1")
    assert (add.timeout_s, add.retry, add.approval, add.cache_s, add.is_async) == (None, None, None, None, False)
    assert add(2) == 3
    assert add.__doc__ is None
    assert repr(add).startswith("<tool add (once) at ")


async def test_an_async_tool_can_be_awaited_directly() -> None:
    assert await fetch("u") == "u 3"
    assert fetch.is_async
    assert fetch.description == "Fetch a page.\n\nWith care."


def test_shorthands_are_read_when_the_tool_is_declared() -> None:
    made = tool(
        name="x.y",
        effect="read",
        timeout="2m",
        retry=5,
        approval="really?",
        cache="1h",
        version="2",
        requires=["git"],
        description="d",
    )(lambda: None)
    assert (made.name, made.timeout_s, made.cache_s, made.version) == ("x.y", 120.0, 3600.0, "2")
    assert made.retry == Retry(max=5)
    assert made.approval == Approval(message="really?")
    assert (made.requires, made.description) == (("git",), "d")
    assert tool(approval=True, timeout=1.5)(lambda: None).approval == Approval()
    assert tool(approval=False)(lambda: None).approval is None


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"effect": "sometimes"}, "effect: expected one of"),
        ({"timeout": "soon"}, 'expected a duration such as "250ms"'),
        ({"timeout": 0}, "a duration of 0 leaves no time at all; leave it out for the default"),
        ({"cache": 10}, 'only what has no effect can be cached; declare effect="read" or drop cache'),
        ({"colour": "red"}, "no such option: colour"),
        (
            {"cost": 0},
            "cost: expected an amount in US dollars, more than 0 and at most 1,000,000, such as 0.50, got the",
        ),
        ({"cost": "cheap"}, 'such as 0.50, got the string "cheap"'),
    ],
)
def test_a_wrong_declaration_names_the_tool_its_place_and_the_mistake(declared: dict[str, Any], message: str) -> None:
    def sample() -> None: ...

    with pytest.raises(UsageError) as caught:
        tool(**declared)(sample)
    assert str(caught.value).startswith(f"tool sample at {__file__}:")
    assert message in str(caught.value)


def test_only_functions_with_named_parameters_can_be_tools() -> None:
    def stars(*urls: str) -> None: ...

    def double_stars(**options: str) -> None: ...

    def call_first(call: Call, /) -> None: ...

    with pytest.raises(
        UsageError, match=r"@tool is for functions and for classes with a method called execute, not for <class 'int'>"
    ):
        tool(int)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(UsageError, match=r"stars: \*urls: a tool's arguments need names and types; declare each one"):
        tool(stars).schema()
    with pytest.raises(UsageError, match=r"double_stars: \*\*options: a tool's arguments need names"):
        tool(double_stars).schema()
    with pytest.raises(UsageError, match=r"call_first: call: a `Call` is passed by name; move it after the `/`"):
        tool(call_first).schema()


def test_annotations_that_cannot_be_read_are_reported_on_first_use() -> None:
    def odd(a: list[Path | str]) -> None: ...

    odd.__annotations__["a"] = "NoSuchName"
    with pytest.raises(UsageError, match=r"odd: its annotations cannot be read \(name 'NoSuchName' is not defined\)"):
        tool(odd).schema()
    odd.__annotations__["a"] = list[Torn]
    with pytest.raises(UsageError, match=r"odd: a: Torn cannot be read from JSON; use builtins, a dataclass"):
        tool(odd).schema()


def test_unions_inside_lists_and_maps_are_read_and_described() -> None:
    def draw(
        marks: list[Point | Account],
        named: dict[str, Path | int | None] | None = None,
        pairs: tuple[Path | int, ...] = (),
    ) -> None: ...

    made = tool(draw)
    given = {"marks": [{"x": 1}, {"name": "a", "age": 5}], "named": {"a": "b", "c": 3, "d": None}, "pairs": [1, "p"]}
    assert made.validate(given) == {
        "marks": [Point(1), Account(name="a", age=5)],
        "named": {"a": Path("b"), "c": 3, "d": None},
        "pairs": (1, Path("p")),
    }
    properties = made.schema()["properties"]
    assert [item.get("$ref") or item["title"] for item in properties["marks"]["items"]["anyOf"]] == [
        "#/$defs/Point",
        "Account",
    ]
    assert len(properties["pairs"]["items"]["anyOf"]) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"marks": [{"x": 1}, 3]}, "marks[1]: expected a Point or a Account, got the number 3"),
        ({"marks": [], "named": {"a": 1, "b": 2.5}}, "named.b: expected a path or a whole number, got the number 2.5"),
    ],
)
def test_what_fits_no_member_of_a_union_is_named_with_its_place(given: dict[str, Any], message: str) -> None:
    def draw(marks: list[Point | Account], named: dict[str, Path | int] | None = None) -> None: ...

    with pytest.raises(InvalidCall) as caught:
        tool(draw).validate(given)
    assert message in str(caught.value)


def test_json_becomes_the_declared_types() -> None:
    given = {
        "text": "t",
        "number": 3,
        "colour": "blue",
        "point": {"x": 1},
        "options": {"depth": 2},
        "shape": {"points": [{"x": 1, "y": 2}]},
        "account": {"name": "a", "age": 5},
        "size": "large",
        "where": "some/where",
        "tags": ["a"],
        "at": "2026-01-02T00:00:00Z",
        "count": 1,
        "either": {"name": "b", "age": 6},
    }
    validated = everything.validate(given)
    assert list(validated) == list(given)
    assert validated["number"] == 3.0
    assert isinstance(validated["number"], float)
    assert validated["colour"] is Colour.BLUE
    assert validated["point"] == Point(1)
    assert validated["options"] == {"depth": 2}
    assert validated["shape"] == Shape([Point(1, 2)])
    assert validated["account"] == Account(name="a", age=5)
    assert validated["where"] == Path("some/where")
    assert validated["at"].year == 2026
    assert validated["either"] == Account(name="b", age=6)


def test_what_was_not_given_is_left_to_the_functions_own_default() -> None:
    assert fetch.validate({"url": "u"}) == {"url": "u"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": 3}, "text: expected a string, got the number 3"),
        ({"text": "t", "number": "3"}, 'number: expected a number, got the string "3"'),
        ({"text": "t", "point": {"x": "1"}}, 'point.x: expected a whole number, got the string "1"'),
        ({"text": "t", "point": {"y": 1}}, "point.x: is missing"),
        ({"text": "t", "point": 7}, "point: expected a map or null, got the number 7"),
        ({"text": "t", "tags": ["a", None]}, "tags[1]: expected a string, got null"),
        ({"text": "t", "size": "huge"}, 'size: expected one of "small", "large", got the string "huge"'),
        ({"text": "t", "colour": "green"}, 'colour: expected one of "red", "blue", got the string "green"'),
        ({"text": "t", "at": "noon"}, 'at: invalid RFC3339 encoded datetime, got the string "noon"'),
        ({"text": "t", "count": -1}, "count: expected a whole number >= 0, got the number -1"),
        ({"text": "t", "account": {"name": 1}}, "account: name: Input should be a valid string; age: Field required"),
        ({"text": "t", "where": 3}, "where: expected a path or a string, got the number 3"),
        ({"text": "t", "either": {"z": 1}}, "either: expected a Point or a Account or null, got a map"),
        ({"text": "t", "numbr": 1}, 'numbr: no such argument; did you mean "number"?'),
        ({}, "text: is missing: expected a string"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        everything.validate(given)
    assert str(caught.value) == f"everything: {message}"
    place, _, rest = message.partition(": ")
    assert everything.check(given) == [(place, rest)]


def test_a_path_argument_wants_a_string() -> None:
    @tool
    def show(path: Path) -> None: ...

    assert show.validate({"path": "a"}) == {"path": Path("a")}
    with pytest.raises(InvalidCall, match="show: path: expected a path as a string, got the number 3"):
        show.validate({"path": 3})


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(InvalidCall) as caught:
        fetch.validate({"ulr": "x", "tries": "many"})
    assert str(caught.value).splitlines() == [
        "fetch: 3 arguments are wrong",
        '  ulr: no such argument; did you mean "url"?',
        '  tries: expected a whole number, got the string "many"',
        "  url: is missing: expected a string",
    ]


def test_an_unknown_argument_far_from_any_known_one_lists_what_there_is() -> None:
    assert fetch.check({"url": "u", "zzz": 1}) == [("zzz", "no such argument; fetch takes url, tries")]

    @tool
    def nothing() -> None: ...

    assert nothing.check({"a": 1}) == [("a", "no such argument; nothing takes none")]


def test_arguments_known_only_later_are_not_checked_now() -> None:
    assert fetch.check({"url": {"unknown": "yet"}, "tries": "x"}, frozenset({"url"})) == [
        ("tries", 'expected a whole number, got the string "x"')
    ]
    assert fetch.check({}, frozenset({"url"})) == []


def test_a_python_call_is_bound_to_names() -> None:
    assert fetch.bind(("u",), {"tries": 2}) == {"url": "u", "tries": 2}
    with pytest.raises(InvalidCall, match="fetch takes 2 positional arguments, got 3; pass the others by name"):
        fetch.bind(("u", 1, 2), {})
    with pytest.raises(InvalidCall, match="fetch: url: given twice, by position and by name; give it once"):
        fetch.bind(("u",), {"url": "v"})


async def test_positional_only_and_keyword_only_parameters_are_filled_in() -> None:
    @tool
    async def mixed(a: int, b: int = 2, /, *, c: int = 3) -> list[int]:
        return [a, b, c]

    assert await mixed.invoke(mixed.validate({"a": 1, "c": 5}), a_call()) == [1, 2, 5]
    assert await mixed.invoke(mixed.validate({"b": 4, "a": 1}), a_call()) == [1, 4, 3]


def test_output_is_checked_against_the_declared_type() -> None:
    @tool
    def number() -> int: ...  # pyright: ignore[reportReturnType]

    @tool
    def anything(): ...

    @tool
    def points() -> list[Point]: ...  # pyright: ignore[reportReturnType]

    assert number.output(3) == b"3"
    assert anything.output({"a": {1}}) == b'{"a":[1]}'
    assert points.output([Point(1, 2)]) == b'[{"x":1,"y":2}]'
    with pytest.raises(OutputInvalid) as caught:
        number.output("3")
    assert str(caught.value) == (
        "number returned something else than it declares: Expected `int`, got `str`; correct the tool or its annotation"
    )
    failure = describe(caught.value)
    assert (failure.category, failure.happened) == ("logic", "known")
    with pytest.raises(OutputInvalid, match=r"Expected `int`, got `str` - at `\$\[0\].x`"):
        points.output([{"x": "1"}])
    with pytest.raises(NotJson, match=r"the output of anything: bytes cannot be journaled"):
        anything.output(b"")


variable: ContextVar[str] = ContextVar("variable", default="unset")


async def test_a_def_tool_runs_in_a_thread_with_the_callers_context() -> None:
    @tool
    def where() -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), variable.get(), current_call().path]

    variable.set("set")
    assert await where.invoke({}, a_call()) == [False, "set", "step"]


async def test_many_def_tools_run_at_the_same_time() -> None:
    meeting = threading.Barrier(5, timeout=60)

    @tool
    def meet() -> int:
        return meeting.wait()

    assert sorted(await asyncio.gather(*(meet.invoke({}, a_call()) for _ in range(5)))) == [0, 1, 2, 3, 4]


async def test_a_def_tools_exception_arrives_even_if_it_is_stop_iteration() -> None:
    @tool
    def fail(kind: str) -> None:
        raise {"key": KeyError, "stop": StopIteration}[kind]("x")

    with pytest.raises(KeyError):
        await fail.invoke({"kind": "key"}, a_call())
    with pytest.raises(RuntimeError, match="the tool raised StopIteration"):
        await fail.invoke({"kind": "stop"}, a_call())


async def test_cancelling_a_def_tool_does_not_wait_for_it() -> None:
    release = threading.Event()

    @tool
    def block() -> None:
        release.wait(10)

    task = asyncio.create_task(block.invoke({}, a_call()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not release.is_set()
    release.set()


async def test_hooks_may_be_sync_or_async() -> None:
    @tool(in_doubt="verify")
    async def pay(amount: int) -> str: ...  # pyright: ignore[reportReturnType]

    assert [pay.can_verify, pay.can_reduce, pay.can_refresh] == [False, False, False]
    refreshed: list[str] = []

    @pay.verify
    async def was_paid(call: Call, arguments: dict[str, Any]) -> Happened | DidNotHappen:
        return Happened(call.key) if arguments["amount"] > 1 else DidNotHappen()

    @pay.reduce
    def pay_less(call: Call, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"amount": arguments["amount"] // 2}

    @pay.refresh
    def log_in(call: Call, arguments: dict[str, Any]) -> None:
        refreshed.append(current_call().key)

    assert [pay.can_verify, pay.can_reduce, pay.can_refresh] == [True, True, True]
    assert await pay.run_verify({"amount": 2}, a_call()) == Happened("key")
    assert await pay.run_verify({"amount": 1}, a_call()) == DidNotHappen()
    assert await pay.run_reduce({"amount": 8}, a_call()) == {"amount": 4}
    await pay.run_refresh({"amount": 8}, a_call())
    assert refreshed == ["key"]


async def test_a_hook_that_answers_nonsense_or_is_not_there_is_an_error() -> None:
    made: Tool[..., Any] = tool(name="pay", verify=lambda c, a: True, reduce=lambda c, a: None)(lambda: None)
    with pytest.raises(
        OutputInvalid, match=r"pay: its verify hook returned True; return Happened\(output\), DidNotHapp"
    ):
        await made.run_verify({}, a_call())
    with pytest.raises(
        OutputInvalid, match="pay: its reduce hook returned None; return the smaller arguments as a dict"
    ):
        await made.run_reduce({}, a_call())
    with pytest.raises(UsageError, match=r"pay has no refresh hook; declare one with @….refresh"):
        await made.run_refresh({}, a_call())


def test_the_schema_describes_the_arguments() -> None:
    schema = everything.schema()
    assert schema["required"] == ["text"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["text"] == {"type": "string"}
    assert properties["size"] == {"enum": ["large", "small"], "default": "small"}
    assert properties["where"]["anyOf"] == [{"type": "string", "format": "path"}, {"type": "string"}]
    assert set(schema["$defs"]) >= {"Point", "Colour", "Shape", "Options"}
    assert properties["account"]["anyOf"][0]["required"] == ["name", "age"]


def test_a_call_parameter_is_no_argument() -> None:
    @tool
    def talk(word: str, call: Call) -> None: ...

    assert list(talk.schema()["properties"]) == ["word"]
    assert talk.check({"word": "x", "call": 1})[0][0] == "call"


def test_the_signature_digest_changes_with_parameters_and_version_but_not_with_prose() -> None:
    def first(a: int, b: str = "x") -> None:
        """One."""

    def same(a: int, b: str = "y") -> None:
        """Two."""

    def other(a: str, b: str = "x") -> None: ...

    base = tool(name="t")(first).signature_digest
    assert base.partition(".")[2] == "once"
    assert len(base.partition(".")[0]) == 16
    assert tool(name="t", effect="read")(first).signature_digest == base.replace("once", "read")
    assert tool(name="t")(same).signature_digest == base
    assert tool(name="t")(other).signature_digest != base
    assert tool(name="t", version="2")(first).signature_digest != base
    assert tool(name="u")(first).signature_digest != base


def test_missing_programs_and_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "1")
    monkeypatch.delenv("ABSENT", raising=False)
    made = tool(name="deploy", requires=["sh", "no-such-program", "env:GIVEN", "env:ABSENT"])(lambda: None)
    assert made.missing() == [
        Trouble('deploy needs the program "no-such-program", which is not on PATH', "install it"),
        Trouble("deploy needs the environment variable ABSENT", "set it"),
    ]
