"""The index of the examples: its commands do what it shows, its links lead somewhere, and it leaves no example out."""

from __future__ import annotations

import shutil
from pathlib import Path

from docs.pages import run_page
from docs.test_docs_run import LINK, ROOT, prose_of
from servers.commands import script_at

EXAMPLES = ROOT / "examples"
INDEX = EXAMPLES / "README.md"


def test_every_command_of_the_index_does_what_it_shows(tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder)
    run_page("examples/README.md", INDEX.read_text(), folder, script_at(tmp_path / "bin"))


def test_the_index_names_every_example_and_nothing_else() -> None:
    linked = {link["target"] for link in LINK.finditer(prose_of(INDEX.read_text()))}
    there = {path.name for path in (*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*.py"))}
    assert linked == there


def test_every_example_says_at_its_top_what_to_type() -> None:
    for path in (*EXAMPLES.glob("*.yaml"), EXAMPLES / "functions.py"):
        top = path.read_text().partition("\nname:")[0].partition("import")[0]
        assert "holdfast run " in top, path.name
