"""Families of tools: set up by their table in the settings, opened and closed with the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import SettingsInvalid
from holdfast.tools.registry import Registry
from holdfast.tools.tool import Tool, tool
from holdfast.tools.toolset import Adapter, ToolsetFolders, make_adapters


class Garden(Adapter):
    class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        beds: int = 3
        seeds: tuple[str, ...] = ()

    def __init__(self, config: Config, place: ToolsetFolders) -> None:
        super().__init__(config, place)
        self.log: list[str] = []

    def water(self, litres: int) -> int:
        return litres * self.config.beds

    def tools(self) -> Sequence[Tool[..., Any]]:
        return (tool(name="garden.water", effect="read")(self.water),)

    async def open(self) -> Sequence[Tool[..., Any]]:
        self.log.append("opened")

        @tool(name="garden.found", effect="read")
        def found() -> None: ...

        return (found,)

    async def close(self) -> None:
        self.log.append("closed")


FAMILIES: dict[str, type[Adapter]] = {"garden": Garden}


async def test_a_family_is_set_up_by_its_table_and_its_methods_are_tools() -> None:
    (garden,) = make_adapters(FAMILIES, {"garden": {"beds": 5}}, ToolsetFolders())
    registry = Registry()
    registry.add_adapter(garden)
    water = registry.get("garden.water")
    assert water.validate({"litres": 2}) == {"litres": 2}
    assert water.check({"litre": 2})[0][0] == "litre"
    assert water(2) == 10


async def test_what_only_the_other_side_can_name_is_there_once_opened() -> None:
    (garden,) = make_adapters(FAMILIES, {}, ToolsetFolders())
    registry = Registry()
    registry.add_adapter(garden)
    assert "garden.found" not in registry.names()
    await registry.open()
    assert "garden.found" in registry.names()
    await registry.close()
    assert isinstance(garden, Garden)
    assert garden.log == ["opened", "closed"]


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"gardn": {}}, 'h.toml: tools.gardn: no such family of tools; did you mean "garden"?'),
        ({"garden": {"beds": "two"}}, 'h.toml: tools.garden.beds: expected a whole number, got the string "two"'),
        ({"garden": {"bed": 2}}, 'h.toml: tools.garden.bed: no such name; did you mean "beds"?'),
        ({"garden": {"seeds": ["a", 1]}}, "h.toml: tools.garden.seeds[1]: expected a string, got the number 1"),
    ],
)
def test_a_mistake_in_a_table_is_named_with_its_place(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        make_adapters(FAMILIES, tables, ToolsetFolders(Path()), "h.toml")
    assert str(refused.value) == said
