"""Listing and searching: sorted, bounded in every direction, and no expression can hang the engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidCall, Misconfigured, ToolError
from holdfast.tools.files import search, walk
from holdfast.tools.files.walk import GlobPattern
from holdfast.tools.processes import regex_child
from kits.files import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    for name in ("src/deep/er", "docs"):
        (tmp_path / name).mkdir(parents=True)
    files = {
        "b.txt": "beta\n",
        "a.txt": "alpha\nBeta\n",
        "src/m.py": "import os\n",
        "src/deep/n.py": "import re\nbeta = 1\n",
        "src/deep/er/o.py": "# beta\n",
        "docs/p.md": "beta\r\ngamma\r\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return Desk(tmp_path)


async def paths(desk: Desk, **arguments: Any) -> list[str]:
    return [entry["path"] for entry in (await desk.do("list", **arguments))["entries"]]


async def lines(desk: Desk, text: str, **arguments: Any) -> list[str]:
    found = await desk.do("search", text=text, **arguments)
    return [f"{match['path']}:{match['line']}:{match['text']}" for match in found["matches"]]


# ---- list ------------------------------------------------------------------------------------------------------------


async def test_a_folder_is_listed_sorted_and_as_deep_as_asked(desk: Desk) -> None:
    (desk.folder / "link").symlink_to("src")
    listed = await desk.do("list")
    assert listed == {
        "entries": [
            {"path": "a.txt", "kind": "file", "bytes": 11},
            {"path": "b.txt", "kind": "file", "bytes": 5},
            {"path": "docs", "kind": "folder"},
            {"path": "link", "kind": "link"},
            {"path": "src", "kind": "folder"},
        ],
        "truncated": False,
    }
    assert await paths(desk, path="src", depth=2) == ["deep", "deep/er", "deep/n.py", "m.py"]
    assert await paths(desk, path="link") == ["deep", "m.py"]
    assert await paths(desk, path="src/m.py") == ["m.py"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["src/deep/er/o.py", "src/deep/n.py", "src/m.py"]),
        ("src/*.py", ["src/m.py"]),
        ("src/**/*.py", ["src/deep/er/o.py", "src/deep/n.py", "src/m.py"]),
        ("**/er/*", ["src/deep/er/o.py"]),
        ("src/**", ["src", "src/deep", "src/deep/er", "src/deep/er/o.py", "src/deep/n.py", "src/m.py"]),
        ("[ab].t?t", ["a.txt", "b.txt"]),
        ("./a.txt", ["a.txt"]),
        ("nothing", []),
    ],
)
async def test_names_are_chosen_by_a_pattern(desk: Desk, pattern: str, found: list[str]) -> None:
    assert await paths(desk, pattern=pattern, depth=9) == found


def test_a_pattern_of_nothing_but_wildcards_is_matched_at_once() -> None:
    """One that tried every way would take longer than the universe has."""
    assert not GlobPattern("/".join(["**", "*a*a*a*a*"] * 20 + ["b"])).fits(("a" * 30,) * 60)
    with pytest.raises(InvalidCall, match=r"pattern: it has 1001 characters, at most 1000 are allowed"):
        GlobPattern("x" * 1001)


async def test_a_long_list_is_cut_and_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = await desk.do("list", max_entries=2)
    assert (len(cut["entries"]), cut["truncated"]) == (2, True)
    assert not (await desk.do("list", max_entries=4))["truncated"]
    monkeypatch.setattr(walk, "LOOKED_AT_MAX", 3)
    assert (await desk.do("list", depth=9))["truncated"]
    with pytest.raises(InvalidCall, match=r"depth: expected .* <= 100"):
        await desk.do("list", depth=101)


async def test_a_name_that_is_not_text_is_shown_all_the_same(desk: Desk) -> None:
    (desk.folder / os.fsdecode(b"docs/\xff.md")).write_text("beta")
    assert await paths(desk, path="docs") == ["p.md", "\\xff.md"]
    assert "\\xff.md:1:beta" in await lines(desk, "beta", path="docs")


async def test_what_is_not_there_cannot_be_listed_or_searched(desk: Desk) -> None:
    with pytest.raises(Misconfigured, match=r"no folder at .*/gone; correct the path"):
        await desk.do("list", path="gone")
    with pytest.raises(Misconfigured, match=r"no file or folder at .*/gone; correct the path"):
        await desk.do("search", path="gone", text="x")


# ---- search ----------------------------------------------------------------------------------------------------------


async def test_lines_that_hold_a_text_are_found(desk: Desk) -> None:
    assert await lines(desk, "beta") == [
        "b.txt:1:beta",
        "docs/p.md:1:beta",
        "src/deep/er/o.py:1:# beta",
        "src/deep/n.py:2:beta = 1",
    ]
    assert await lines(desk, "BETA", pattern="*.txt", ignore_case=True) == ["a.txt:2:Beta", "b.txt:1:beta"]
    assert await lines(desk, "b.t", path="b.txt") == []
    assert await lines(desk, "gamma", path="docs/p.md") == ["p.md:2:gamma"]


async def test_lines_that_fit_an_expression_are_found(desk: Desk) -> None:
    assert await lines(desk, r"^import (os|re)$", regex=True) == [
        "src/deep/n.py:1:import re",
        "src/m.py:1:import os",
    ]
    assert await lines(desk, r"^b\w+$", regex=True, ignore_case=True, path="a.txt") == ["a.txt:2:Beta"]
    assert await lines(desk, "a$", regex=True, path="docs") == ["p.md:1:beta", "p.md:2:gamma"]


@pytest.mark.parametrize("regex", [False, True])
async def test_a_search_is_cut_at_its_limits_and_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, regex: bool
) -> None:
    found = await desk.do("search", text="beta", regex=regex, max_matches=2)
    assert (len(found["matches"]), found["truncated"]) == (2, True)
    found = await desk.do("search", text="beta", regex=regex, max_matches=4)
    assert (len(found["matches"]), found["files"], found["skipped"], found["truncated"]) == (4, 6, 0, False)
    (desk.folder / "long").write_text("x" * 5000 + "beta\n" + "beta" * 200)
    (match,) = (await desk.do("search", text="beta", regex=regex, path="long"))["matches"]
    assert (match["line"], len(match["text"])) == (2, 300)
    monkeypatch.setattr(search, "BATCH_BYTES", 1)
    assert len((await desk.do("search", text="beta", regex=regex))["matches"]) == 5
    monkeypatch.setattr(search, "SEARCHED_BYTES_MAX", 10)
    assert (await desk.do("search", text="beta", regex=regex))["truncated"]


async def test_binary_and_large_files_are_left_out_and_counted(tmp_path: Path) -> None:
    desk = Desk(tmp_path, max_bytes=100)
    (tmp_path / "binary").write_bytes(b"beta\0beta")
    (tmp_path / "large").write_text("beta" * 30)
    (tmp_path / "latin").write_bytes(b"beta \xe9t\xe9")
    found = await desk.do("search", text="beta")
    assert ([match["text"] for match in found["matches"]], found["files"], found["skipped"]) == (["beta �t�"], 1, 2)


async def test_an_expression_that_never_ends_is_ended(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEARCH_S", 0.5)
    (desk.folder / "trap").write_text("a" * 60 + "!")
    with pytest.raises(InvalidCall, match=r"text: the expression '\(a\+\)\+\$' took longer than 0.5 s; simplify it"):
        await desk.do("search", text="(a+)+$", regex=True)


async def test_a_search_whose_child_was_killed_fails_instead_of_finding_nothing(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies.py").write_text("")
    monkeypatch.setattr(regex_child, "__file__", str(tmp_path / "dies.py"))
    with pytest.raises(ToolError, match=r"text: the process that searched for .* 'beta' ended before it had answered"):
        await desk.do("search", text="beta", regex=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(", r"text: '\(' is not a regular expression: missing \), unterminated subpattern at position 0"),
        ("a{99999999999}", r"is not a regular expression: the repetition number is too large"),
        ("", r"text: expected 1 to 1000 characters, got 0"),
        ("x" * 1001, r"text: expected 1 to 1000 characters, got 1001"),
    ],
)
async def test_an_expression_that_is_none_says_where(desk: Desk, text: str, said: str) -> None:
    with pytest.raises(InvalidCall, match=said):
        await desk.do("search", text=text, regex=True)
