"""`holdfast init`, `graph` and `schema`: what a person types who begins to write plans."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import holdfast
from cli.workshop import Workshop
from servers.commands import environment

# ---- init ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path: Path) -> Workshop:
    """A workshop whose folder is as good as empty: `work/` has nothing of it."""
    shop = Workshop(tmp_path)
    shop.folder = tmp_path / "work"
    shop.folder.mkdir()
    return shop


def test_the_new_project_is_in_order_runs_and_passes_its_own_tests(empty: Workshop) -> None:
    said = empty.run("init", "tides").out
    assert "now type:\n  cd tides\n  holdfast check\n  holdfast run report.yaml -i place=pier\n" in said
    assert said.endswith("and for its test:\n  pip install pytest\n  pytest\n")
    empty.folder /= "tides"
    assert empty.run("check", "--strict").out == "1 plan: 0 mistakes, 0 warnings\n"
    assert "output: report.md" in empty.run("run", "report.yaml", "-i", "place=pier").out
    assert (empty.folder / "report.md").read_text() == "The water at the pier stands at 2.4 m."
    assert "output: 2.4" in empty.run("run", "highest", "-i", 'places=["pier", "beach"]').out
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=empty.folder, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout


def test_the_schema_it_writes_is_that_of_its_tools_and_its_plan_names_it(empty: Workshop) -> None:
    empty.run("init")
    schema = json.loads((empty.folder / "holdfast.schema.json").read_text())
    assert {"with:measure", "with:publish"} < set(schema["$defs"])
    plan = (empty.folder / "report.yaml").read_text()
    assert plan.startswith("# yaml-language-server: $schema=holdfast.schema.json\n")
    assert empty.run("schema").out == (empty.folder / "holdfast.schema.json").read_text()


def test_files_that_are_there_are_named_and_nothing_is_written(empty: Workshop) -> None:
    empty.write("tools.py", "mine")
    empty.write("report.yaml", "mine")
    refused = empty.run("init", code=2).err
    assert refused == "holdfast: . already has tools.py, report.yaml; nothing was written. Name another folder\n"
    assert sorted(path.name for path in empty.folder.iterdir()) == ["report.yaml", "tools.py"]


def test_a_folder_that_cannot_be_written_is_said_so_and_nothing_is_left_behind(empty: Workshop) -> None:
    empty.write("tides", "a file")
    for name, why in (("tides", "File exists"), ("x" * 300, "File name too long")):
        assert f"{name} cannot be written: {why}; nothing was left behind" in empty.run("init", name, code=2).err


def test_what_was_written_before_a_failure_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.cli.commands import init
    from holdfast.core.errors import UsageError

    def full(settings: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(init, "schema_text", full)
    with pytest.raises(UsageError, match="No space left on device; nothing was left behind"):
        init.write_project(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_the_folder_option_says_where_the_command_works(empty: Workshop) -> None:
    (empty.folder / "below").mkdir()
    empty.run("-C", "below", "init")
    assert (empty.folder / "below" / "holdfast.toml").exists()


# ---- schema ----------------------------------------------------------------------------------------------------------


def test_the_schema_holds_the_tools_of_the_project_and_goes_to_a_file(shop: Workshop) -> None:
    assert shop.run("schema", "-o", "plans.schema.json").out == "wrote plans.schema.json\n"
    validator = Draft202012Validator(json.loads((shop.folder / "plans.schema.json").read_text()))
    assert validator.is_valid({"steps": [{"id": "a", "tool": "work.even", "with": {"number": 3}}]})
    assert not validator.is_valid({"steps": [{"id": "a", "tool": "work.even", "with": {"number": "x"}}]})
    assert ". is a folder; name a file in it" in shop.run("schema", "-o", ".", code=2).err
    assert "cannot be written: No such file" in shop.run("schema", "-o", "no/where.json", code=2).err


# ---- graph -----------------------------------------------------------------------------------------------------------

DRAWN = """\
name: drawn
inputs: {places: {type: list, default: []}}
steps:
  - {id: end, tool: work.do, fallback: work.gate}
  - {id: agree, approval: 'Shall "we"?', needs: []}
  - id: inner
    title: Two <things>
    needs: [end, agree]
    steps:
      - {id: left, needs: [], tool: work.do, approval: required}
      - {id: right, needs: [], wait: {until: "2030-01-01T08:00:00Z"}, critical: false}
  - {id: many, for_each: "${{ inputs.places }}", start: two.yaml, when: size(inputs.places) > 2}
  - {id: news, wait: {event: news}, optional: true}
finally:
  - {id: tidy, wait: 1s}
"""


def test_a_graph_is_told_to_programs_with_paths_needs_and_statuses(shop: Workshop) -> None:
    told = shop.run("graph", "ask.yaml", "--json").json
    assert told["name"] == "ask"
    assert [(step["path"], step["kind"], step["needs"]) for step in told["steps"]] == [
        ("draft", "tool", []),
        ("publish", "tool", ["draft"]),
    ]
    assert "status" not in told["steps"][0]
    shop.run("run", "ask.yaml", code=3)
    ran = shop.run("graph", "@last", "--json", "--mermaid").json
    assert [step["status"] for step in ran["steps"]] == ["completed", "waiting"]
    assert ran["mermaid"].startswith("flowchart")


def test_a_tree_shows_order_needs_items_conditions_people_fallbacks_and_endings(shop: Workshop) -> None:
    shop.write("drawn.yaml", DRAWN)
    assert shop.run("graph", "drawn.yaml").out.splitlines() == [
        "drawn",
        "├─ end: work.do or else work.gate",
        '├─ agree: approval  needs nothing  [asks: Shall "we"?]',
        "├─ inner: Two <things>  needs end, agree",
        "│  ├─ left: work.do  [asks a person]",
        "│  └─ right: wait until 2030-01-01T08:00:00Z  needs nothing  [not critical]",
        "├─ many: start two.yaml  [when size(inputs.places) > 2]  [for each of inputs.places]",
        "└─ news: wait for the event news  [optional]",
        "finally",
        "└─ tidy: wait 1s",
    ]
    plain = shop.run("graph", "drawn.yaml", PYTHONIOENCODING="ascii", PYTHONUTF8="0").out.splitlines()
    assert plain[1] == "|- end: work.do or else work.gate"


def test_mermaid_text_escapes_what_would_mean_something_to_it(shop: Workshop) -> None:
    shop.write("drawn.yaml", DRAWN)
    assert shop.run("graph", "drawn.yaml", "--mermaid").out.splitlines() == [
        "flowchart TD",
        '  s_end["end: work.do or else work.gate"]',
        '  s_agree{{"agree: approval<br/>asks: Shall #quot;we#quot;?"}}',
        '  subgraph s_inner["inner: Two #lt;things#gt;"]',
        '    s_inner.left{{"left: work.do<br/>asks a person"}}',
        '    s_inner.right(["right: wait until 2030-01-01T08:00:00Z<br/>not critical"])',
        "  end",
        '  s_many[["many: start two.yaml<br/>for each of inputs.places"]]',
        '  s_news(["news: wait for the event news<br/>optional"])',
        "  s_end --> s_inner",
        "  s_agree --> s_inner",
        '  s_inner -->|"size(inputs.places) #gt; 2"| s_many',
        "  s_many --> s_news",
        '  subgraph finally["finally"]',
        '    s_tidy(["tidy: wait 1s"])',
        "  end",
    ]


def test_an_execution_is_drawn_with_its_statuses_and_what_was_added_to_it(shop: Workshop) -> None:
    shop.run("run", "fail.yaml", code=1)
    assert shop.run("graph", "@last").out.splitlines() == [
        "fail",
        "├─ ✔ fine: work.do",
        "├─ ✘ broken: work.fail",
        "└─ – never: work.do",
    ]
    chart = shop.run("graph", "@last", "--mermaid").out.splitlines()
    assert "  class s_broken failed" in chart
    asyncio.run(extend(shop))
    assert shop.run("graph", "@last").out.splitlines() == [
        "event",
        "├─ · go: wait for the event start",
        "└─ · extra: work.do",
    ]
    shop.run("run", "double", "-i", "number=2")
    assert "ran the function double; `holdfast show" in shop.run("graph", "@last", code=2).err


async def extend(shop: Workshop) -> None:
    async with holdfast.Engine(folder=shop.folder, recover="none") as engine:
        run = await engine.start("event.yaml", hold=True)
        await run.extend([{"id": "extra", "tool": "work.do"}])


def test_a_plan_with_mistakes_is_not_drawn(shop: Workshop) -> None:
    shop.write("broken.yaml", "steps: [{id: a, tool: work.du}]")
    assert 'did you mean "work.do"?' in shop.run("graph", "broken.yaml", code=2).err
    assert "there is no plan file" in shop.run("graph", "nowhere.yaml", code=2).err
