"""Every example: in order, fit for an editor, and drawn as it is remembered.

What the drawings should be is kept in `drawn/`; `REDRAW=1` writes them anew.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cli.workshop import Workshop
from docs.pages import blocks_of
from docs.test_docs_run import PAGES, ROOT, name_of
from examples.test_index import EXAMPLES
from holdfast.app import preparer_of
from holdfast.cli.commands.graph import mermaid_lines, tree_lines
from holdfast.cli.commands.init import schema_text
from holdfast.core.errors import PlanInvalid
from holdfast.core.plan.fields import Problems, plain_json
from holdfast.core.plan.model import Plan
from holdfast.programs.plan_files import named, parse_document, read_document
from holdfast.settings import load_settings

DRAWN = Path(__file__).parent / "drawn"
PLANS = sorted(path.name for path in EXAMPLES.glob("*.yaml"))
PREPARER = preparer_of(load_settings(EXAMPLES, {}))
SCHEMA = Draft202012Validator(json.loads(schema_text(load_settings(EXAMPLES, {}))))

each_plan = pytest.mark.parametrize("name", PLANS)


def plan_of(name: str) -> Plan:
    path = EXAMPLES / name
    return PREPARER.read(named(read_document(path), path.stem), check_tools=True)


def test_the_examples_are_in_order(shop: Workshop) -> None:
    assert shop.run("-C", str(EXAMPLES), "check", "--strict").out == f"{len(PLANS)} plans: 0 mistakes, 0 warnings\n"


@each_plan
def test_an_example_fits_the_schema_of_its_tools(name: str) -> None:
    SCHEMA.validate(read_document(EXAMPLES / name))


@each_plan
def test_an_example_is_drawn_as_it_is_remembered(name: str) -> None:
    tree, chart = ("\n".join(draw(plan_of(name))) + "\n" for draw in (tree_lines, mermaid_lines))
    remembered = DRAWN / f"{name}.txt"
    if os.environ.get("REDRAW"):
        remembered.write_text(f"{tree}---\n{chart}")
    assert remembered.read_text() == f"{tree}---\n{chart}"


NODE = r"s_[a-z0-9_.]+"
LABEL = r'"[^"]*"'
STATEMENT = re.compile(
    rf"\s*(?:subgraph (?:{NODE}|on_failure|finally)\[{LABEL}\]|end|{NODE} -->(?:\|{LABEL}\|)? {NODE}"
    rf"|{NODE}(?:\[{LABEL}\]|\[\[{LABEL}\]\]|\(\[{LABEL}\]\)|\{{\{{{LABEL}\}}\}}))"
)


@each_plan
def test_a_mermaid_drawing_is_made_of_known_statements_about_nodes_that_are_there(name: str) -> None:
    """A parser of Mermaid needs a browser; this holds what is written to the few forms that one was seen to accept."""
    head, *lines = mermaid_lines(plan_of(name))
    assert head == "flowchart TD"
    assert all(STATEMENT.fullmatch(line) for line in lines), lines
    declared = set(re.findall(rf"(?:^\s*|subgraph )({NODE})(?=[\[({{])", "\n".join(lines), re.MULTILINE))
    arrows = re.findall(rf"({NODE}) -->(?:\|{LABEL}\|)? ({NODE})", "\n".join(lines))
    assert {node for arrow in arrows for node in arrow} <= declared
    assert sum("subgraph" in line for line in lines) == sum(line.strip() == "end" for line in lines)


def test_every_plan_of_the_documentation_that_the_reader_accepts_fits_the_schema() -> None:
    seen = 0
    for page in PAGES:
        for block in blocks_of(name_of(page), page.read_text()):
            if not block.options.get("file", "").endswith(".yaml"):
                continue
            document = parse_document(block.text, Path(block.options["file"]))
            try:
                PREPARER.read(named(document, "page"), check_tools=True)
            except PlanInvalid:
                continue  # shown for its mistakes, or written for tools of its page
            SCHEMA.validate(plain_json(document, Problems()))
            seen += 1
    assert seen > 10
    assert ROOT / "docs" / "guides" / "plans.md" in PAGES
