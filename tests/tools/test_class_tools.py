"""Tools as classes, the hooks that they and functions may have, and parameters that take what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import holdfast
from engine.kit import engine_at, events, plan, result, seen, settled, step, step_of
from holdfast.core import events as ev
from holdfast.core.errors import InvalidCall, UsageError


@holdfast.tool(effect="once", in_doubt="verify", version="2")
class TideTable:
    """When the water is high."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def execute(self, port: str, days: int = 1) -> list[str]:
        self.asked.append(port)
        return [f"{port}+{day}" for day in range(days)]

    def validate(self, arguments: dict[str, Any]) -> None:
        if arguments.get("days", 1) > 30:
            raise ValueError("nobody knows the tides of more than 30 days")

    def estimate(self, arguments: dict[str, Any]) -> float:
        return 0.5 * arguments.get("days", 1)

    async def health(self) -> None:
        raise holdfast.Transient("the gauge is dry")

    async def verify(self, call: holdfast.Call, arguments: dict[str, Any]) -> holdfast.Happened:
        return holdfast.Happened(["verified"])

    def reduce(self, call: holdfast.Call, arguments: dict[str, Any]) -> dict[str, Any]:
        return {**arguments, "days": 1}

    def refresh(self, call: holdfast.Call, arguments: dict[str, Any]) -> None: ...

    def undo(self, call: holdfast.Call, arguments: dict[str, Any], output: Any) -> None: ...


def test_a_class_is_the_same_thing_as_a_function_with_hooks() -> None:
    assert (TideTable.name, TideTable.effect, TideTable.version) == ("tide_table", "once", "2")
    assert TideTable.description == "When the water is high."
    assert TideTable.can_verify
    assert TideTable.can_reduce
    assert TideTable.can_refresh
    assert TideTable.can_undo
    assert TideTable.has_health
    assert list(TideTable.schema()["properties"]) == ["port", "days"]
    assert "test_class_tools.py" in TideTable.place


async def test_a_class_runs_as_a_step_of_plans_and_functions() -> None:
    @holdfast.function
    async def ask(ctx: holdfast.Context) -> list[str]:
        return await ctx.call(TideTable, "cuxhaven")

    async with engine_at("memory:", TideTable, functions=[ask]) as engine:
        run = await engine.start(plan(step("a", "tide_table", **{"with": {"port": "husum", "days": 2}})))
        assert await result(run) == ["husum+0", "husum+1"]
        assert await result(await engine.start(ask)) == ["cuxhaven+0"]


async def test_an_object_with_settings_of_its_own_is_a_tool_too() -> None:
    class Scaled:
        def __init__(self, factor: int) -> None:
            self._factor = factor

        def execute(self, value: int) -> int:
            return value * self._factor

    twice, thrice = holdfast.tool(name="twice", effect="read")(Scaled(2)), holdfast.tool(name="thrice")(Scaled(3))
    assert (twice(2), thrice(2)) == (4, 6)
    async with engine_at("memory:", twice, thrice) as engine:
        assert await result(await engine.start(plan(step("a", "thrice", **{"with": {"value": 5}})))) == 15


def test_classes_are_found_in_the_modules_that_the_settings_name(tmp_path: Path) -> None:
    (tmp_path / "mytools.py").write_text(
        "import holdfast\n\n@holdfast.tool(effect='read')\nclass Half:\n"
        "    def execute(self, value: int) -> float:\n        return value / 2\n"
    )
    from holdfast.tools.registry import Registry

    registry = Registry()
    registry.load_module("mytools.py", tmp_path)
    assert "half" in registry.names()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"run": lambda self: None}, "for classes with a method called execute"),
        ({"execute": lambda self: None, "verfy": lambda self: None}, 'no such hook: verfy; did you mean "verify"'),
        (
            {"execute": lambda self: None, "helper": lambda self: None},
            "only for itself begins with an underscore",
        ),
        ({"execute": lambda self: None, "__init__": lambda self, key: None}, "cannot be made without arguments"),
    ],
)
def test_a_class_that_is_no_tool_is_refused_in_words(body: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        holdfast.tool(type("Broken", (), body))


# ---- hooks -----------------------------------------------------------------------------------------------------


async def test_a_tool_may_check_arguments_that_are_right_one_by_one() -> None:
    with pytest.raises(InvalidCall, match=r"^tide_table: nobody knows the tides of more than 30 days$"):
        TideTable.validate({"port": "husum", "days": 31})
    async with engine_at("memory:", TideTable) as engine:
        with pytest.raises(holdfast.HoldfastError, match=r"steps\[0\]\.with: nobody knows the tides"):
            await engine.start(plan(step("a", "tide_table", **{"with": {"port": "husum", "days": 31}})))


async def test_what_only_shows_when_the_step_is_due_is_refused_then() -> None:
    told = plan(
        step("a", "tide_table", **{"with": {"port": "husum", "days": "${{ inputs.days }}"}}, on_error="fail"),
        inputs={"days": "integer"},
    )
    async with engine_at("memory:", TideTable) as engine:
        run = await engine.start(told, inputs={"days": 40})
        assert await settled(run) == "failed"
        failure = (await step_of(run, "a")).failure
        assert failure is not None
        assert failure.message == "tide_table: nobody knows the tides of more than 30 days"


async def test_a_tool_says_how_long_it_takes_and_how_it_is() -> None:
    assert await TideTable.run_estimate({"port": "husum", "days": 4}) == 2.0
    with pytest.raises(holdfast.Transient, match="the gauge is dry"):
        await TideTable.run_health()


@pytest.mark.parametrize("answer", [-1, "soon", float("inf")])
async def test_an_estimate_that_is_none_is_refused(answer: Any) -> None:
    @holdfast.tool(estimate=lambda arguments: answer)
    def slow() -> None: ...

    with pytest.raises(holdfast.ToolError, match=r"its estimate hook returned .*; return seconds, or None"):
        await slow.run_estimate({})


async def test_functions_declare_the_same_hooks_with_decorators_and_options() -> None:
    checked: list[Any] = []

    @holdfast.tool(effect="read", validate=checked.append)
    def fetch(url: str) -> None: ...

    @fetch.health
    def ill() -> None:
        raise holdfast.Transient("no cable")

    @fetch.estimate
    async def seconds(arguments: dict[str, Any]) -> float:
        return 3

    assert await fetch.run_estimate({}) == 3.0
    fetch.validate({"url": "x"})
    assert checked == [{"url": "x"}]
    with pytest.raises(holdfast.Transient, match="no cable"):
        await fetch.run_health()


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(UsageError, match="f: health: expected a function, got 3"):
        holdfast.tool(name="f", health=3)(lambda: None)  # type: ignore[call-overload]


# ---- what was meant --------------------------------------------------------------------------------------------


@holdfast.tool(effect="read")
async def lenient(
    count: Annotated[int, holdfast.Lenient],
    share: Annotated[float, holdfast.Lenient] = 0.5,
    loud: Annotated[bool, holdfast.Lenient] = False,
    text: Annotated[str, holdfast.Lenient] = "",
    strict: int = 0,
) -> list[Any]:
    return [count, share, loud, text, strict]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"count": "3"}, {"count": 3}),
        ({"count": " 3 "}, {"count": 3}),
        ({"count": 3, "share": "0.25"}, {"count": 3, "share": 0.25}),
        ({"count": 3, "loud": "true"}, {"count": 3, "loud": True}),
        ({"count": 3, "text": 12}, {"count": 3, "text": "12"}),
        ({"count": 3, "text": 1.5}, {"count": 3, "text": "1.5"}),
    ],
)
def test_a_lenient_parameter_takes_what_can_only_mean_one_thing(said: dict[str, Any], meant: dict[str, Any]) -> None:
    assert lenient.validate(said) == meant
    assert lenient.check(said) == []
    assert msgspec.json.decode(lenient.coerce_lenient(msgspec.json.encode(said))) == meant


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"count": "three"}, "count: expected"),
        ({"count": "3.5"}, "count: expected"),
        ({"count": 3.5}, "count: expected"),
        ({"count": 3, "strict": "3"}, "strict: expected"),
        ({"count": 3, "loud": "perhaps"}, "loud: expected"),
        ({"count": [3]}, "count: expected"),
    ],
)
def test_nothing_is_guessed(said: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidCall, match=text):
        lenient.validate(said)


async def test_what_is_journaled_asked_for_and_called_is_what_was_meant() -> None:
    told = plan(step("a", "lenient", **{"with": {"count": "3", "strict": 1}}, approval=True))
    async with engine_at("memory:", lenient) as engine:
        run = await engine.start(told)
        await seen(run, "approval:requested")
        request = next(iter((await run.state()).requests.values())).request
        assert msgspec.json.decode(request.arguments) == {"count": 3, "strict": 1}
        await run.approve("a", arguments={"count": "4"})
        assert await result(run) == [4, 0.5, False, "", 1]
        started = next(event for event in await events(run) if isinstance(event, ev.StepStarted))
        assert msgspec.json.decode(started.arguments) == {"count": 4, "strict": 1}
