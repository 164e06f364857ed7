"""From a place in a plan to its line in the file."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given

from holdfast.core.expressions import place_of
from holdfast.programs.yaml_lines import Lines
from properties.strategies import examples, places, plans

TEXT = """\
# a comment
name: report
inputs:
  "two words": string
steps:
  - id: search
    needs: [a,
      b]
  - {id: draft,
     with: {url: x}}
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("", 2),
        ("name", 2),
        ('inputs["two words"]', 4),
        ("steps", 5),
        ("steps[0]", 6),
        ("steps[0].needs", 7),
        ("steps[0].needs[1]", 8),
        ("steps[1].with.url", 10),
        ("steps[1].with.missing", 10),
        ("steps[7].id", 5),
        ("output", 2),
    ],
)
def test_a_place_has_the_line_on_which_it_is_named_or_the_nearest_around_it(place: str, line: int) -> None:
    assert Lines(TEXT).of(place) == line


def test_json_has_lines_too_and_a_broken_file_has_none() -> None:
    text = json.dumps({"name": "x", "steps": [{"id": "a"}]}, indent=1)
    assert Lines(text).of("steps[0].id") == 5
    assert Lines("a: [").of("steps") is None


@examples(20)
@given(plans)
def test_every_place_of_a_plan_is_on_a_line_that_holds_it(document: dict[str, Any]) -> None:
    text = yaml.safe_dump(document, default_flow_style=False)
    lines, shown = Lines(text), text.splitlines()
    for keys in places(document):
        place = ""
        for key in keys:
            place = f"{place}[{key}]" if isinstance(key, int) else place_of(place, key)
        line = lines.of(place)
        assert line is not None
        if keys and isinstance(keys[-1], str):
            assert keys[-1] in shown[line - 1]
