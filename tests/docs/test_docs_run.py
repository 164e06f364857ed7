"""The documentation tells the truth: every code block in it runs, and every relative link leads somewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from docs.pages import FENCE, blocks_of, run_page
from servers.commands import script_at

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS_NOT_RUN_MAX = 5
LINK = re.compile(r"\]\((?!#|[a-z][a-z0-9+.-]*:)(?P<target>[^)\s#]+)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose_of(markdown: str) -> str:
    """The page without its code, in which brackets mean something else."""
    kept: list[str] = []
    fence: str | None = None
    for line in markdown.splitlines():
        mark = FENCE.match(line)
        if fence is None:
            fence = mark["ticks"] if mark else None
            kept.append("" if mark else line)
        elif line.strip() == fence:
            fence = None
    return re.sub(r"`[^`]*`", "", "\n".join(kept))


@each_page
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    if (ROOT / "examples").exists():
        shutil.copytree(ROOT / "examples", folder / "examples")
    programs = script_at(tmp_path / "bin") if page.name != "README.md" else None  # which runs what is installed
    run_page(name_of(page), page.read_text(), folder, programs)


@each_page
def test_relative_links_lead_to_files_that_exist(page: Path) -> None:
    targets = [link["target"] for link in LINK.finditer(prose_of(page.read_text()))]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing, f"{name_of(page)} links to {missing}, which do not exist"


def test_few_blocks_are_left_out_and_each_says_why() -> None:
    left_out = [
        f"{block.page}:{block.line}: {block.options['no-run']}"
        for page in PAGES
        for block in blocks_of(name_of(page), page.read_text())
        if "no-run" in block.options
    ]
    assert len(left_out) <= BLOCKS_NOT_RUN_MAX, "\n".join(left_out)
