"""`holdfast init`: a small project that works: two tools, a plan, a function, a test, and a schema for the editor.

Refuses to touch a file that is there already: either everything is written, or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import Refused, UsageError

if TYPE_CHECKING:
    from holdfast.settings import Settings

SCHEMA_FILE = "holdfast.schema.json"

FILES = {
    "holdfast.toml": """\
# Where the tools and functions of this project are. `holdfast tools` lists them.
modules = ["tools.py"]
""",
    "tools.py": '''\
"""What plans and functions of this project can call."""

from pathlib import Path

import holdfast

LEVELS_M = {"harbour": 1.7, "pier": 2.4, "beach": 0.9}


@holdfast.tool(effect="read")  # looking changes nothing, so it may simply be done again
def measure(place: str) -> float:
    """The water level at a place, in metres."""
    if place not in LEVELS_M:
        raise holdfast.InvalidCall(f"nobody measures at {place}; there are: {', '.join(LEVELS_M)}")
    return LEVELS_M[place]


@holdfast.tool(effect="idempotent")  # writing the same file twice is the same as once
def publish(call: holdfast.Call, file: str, text: str) -> str:
    """Write a report."""
    (call.folder / file).write_text(text)
    return file


@holdfast.function
async def highest(ctx: holdfast.Context, places: list[str]) -> float:
    """The highest level at some places, measured side by side."""
    return max(await ctx.gather(*(ctx.call(measure, place) for place in places)))
''',
    "report.yaml": f"""\
# yaml-language-server: $schema={SCHEMA_FILE}
name: report
title: Report on the ${{{{ inputs.place }}}}
inputs:
  place: {{type: string, default: harbour}}
steps: # a step needs the one before it unless it says otherwise
  - id: measure
    tool: measure
    with: {{place: "${{{{ inputs.place }}}}"}}
    retry: 3
  - id: publish
    tool: publish
    with:
      file: report.md
      text: "The water at the ${{{{ inputs.place }}}} stands at ${{{{ steps.measure.output }}}} m."
output: ${{{{ steps.publish.output }}}}
""",
    "test_report.py": '''\
"""The plan, tried with fake tools, and with a crash at every point where one can happen."""

from holdfast.testing import Lab
from tools import highest, measure, publish


def test_what_was_measured_is_published(lab: Lab) -> None:
    lab.fake(measure, returns=1.5)
    published = lab.fake(publish, returns="report.md")
    outcome = lab.run("report.yaml", inputs={"place": "pier"}, crash_at="everywhere")
    assert outcome.output == "report.md"
    assert "1.5 m" in published.calls[-1].arguments["text"]


def test_the_highest_of_some_places_is_found(lab: Lab) -> None:
    lab.use(measure)
    assert lab.run(highest, inputs={"places": ["harbour", "pier"]}).output == 2.4
''',
}


def write_project(folder: Path) -> list[str]:
    """The names of the files written."""
    from holdfast.settings import load_settings

    wanted = [*FILES, SCHEMA_FILE]
    written: list[Path] = []
    try:
        if there := [name for name in wanted if (folder / name).exists()]:
            raise Refused(f"{folder} already has {', '.join(there)}; nothing was written. Name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            _write_new(folder / name, text, written)
        _write_new(folder / SCHEMA_FILE, schema_text(load_settings(folder, {})), written)
    except OSError as error:
        _take_back(written)
        raise UsageError(f"{folder} cannot be written: {error.strerror}; nothing was left behind") from None
    return wanted


def schema_text(settings: Settings) -> str:
    """The schema of plans with the tools of a project."""
    from holdfast.app import registry_of
    from holdfast.core.plan.json_schema import ToolShape, plan_schema

    registry = registry_of(settings)
    registry.learn()
    tools: Mapping[str, ToolShape] = {
        name: ToolShape(registry.get(name).description, registry.get(name).schema()) for name in registry.names()
    }
    return json.dumps(plan_schema(tools), indent=2, ensure_ascii=False) + "\n"


def _write_new(path: Path, text: str, written: list[Path]) -> None:
    with path.open("x", encoding="utf-8") as file:
        written.append(path)
        file.write(text)


def _take_back(written: list[Path]) -> None:
    for path in written:
        path.unlink(missing_ok=True)
