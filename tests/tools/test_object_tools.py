"""The methods of an object as tools: what is taken, how it is named, and which mistakes are refused."""

from __future__ import annotations

import math

import pytest

import holdfast
from holdfast.core.errors import UsageError


class _Base:
    def ping(self) -> str:
        """Say that it is there."""
        return "pong"


class WeatherStation(_Base):
    places = ("Pier",)

    class Reading: ...

    @property
    def loud(self) -> str:
        raise AssertionError("a property is not read")

    def measure(self, place: str) -> float:
        return 1.7

    @staticmethod
    def convert(degrees: float) -> float:
        return degrees * 2


def test_every_public_method_is_a_tool_named_after_the_class_or_a_prefix() -> None:
    tools = {tool.name: tool for tool in holdfast.toolset(WeatherStation(), effect="read", timeout=5)}
    assert list(tools) == ["weather_station.ping", "weather_station.measure", "weather_station.convert"]
    assert {tool.effect for tool in tools.values()} == {"read"}
    assert {tool.timeout_s for tool in tools.values()} == {5.0}
    assert tools["weather_station.ping"].description == "Say that it is there."
    assert tools["weather_station.measure"]("Pier") == 1.7
    assert [tool.name for tool in holdfast.toolset(WeatherStation(), prefix="w", only=("ping",))] == ["w.ping"]
    assert [tool.name for tool in holdfast.toolset(WeatherStation(), prefix="", only=("ping",))] == ["ping"]


def test_without_an_effect_each_method_is_once() -> None:
    effects = {t.name: t.effect for t in holdfast.toolset(WeatherStation(), prefix="w", effect={"measure": "read"})}
    assert effects == {"w.ping": "once", "w.measure": "read", "w.convert": "once"}


@pytest.mark.parametrize(
    ("given", "said", "message"),
    [
        (WeatherStation, {}, "toolset takes an object, not <class"),
        (math, {}, "toolset takes an object, not <module"),
        (object(), {}, "it has no public method"),
        (WeatherStation(), {"only": ("measur",)}, 'no public method called measur; did you mean "measure"?'),
        (WeatherStation(), {"effect": {"pong": "read"}}, "no public method called pong"),
        (WeatherStation(), {"name": "x"}, "give a prefix instead of a name"),
        (WeatherStation(), {"effect": "sometimes"}, "effect: expected one of"),
    ],
)
def test_a_mistake_is_refused_where_it_is_made(given: object, said: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        holdfast.toolset(given, **said)  # type: ignore[arg-type]
    assert message in str(caught.value)
