"""No tool changes what tools may do: neither the settings file, nor a file that would become one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import NotPermitted
from kits.files import Desk


@pytest.mark.parametrize("path", ["holdfast.toml", "below/HOLDFAST.toml", "alias", "pyproject.toml"])
async def test_the_settings_file_is_read_and_not_changed_unless_the_settings_allow_it(
    tmp_path: Path, path: str
) -> None:
    """Whoever could change it could allow itself everything else."""
    (tmp_path / "holdfast.toml").write_text("")
    (tmp_path / "alias").symlink_to("holdfast.toml")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "other").write_text("[secrets]")
    desk = Desk(tmp_path, settings_file=str(tmp_path / "pyproject.toml"))
    assert await desk.do("read", path="holdfast.toml") == ""
    said = r"holds settings of Holdfast, which say what tools may do; change it yourself, or set tools\.files\.settings"
    with pytest.raises(NotPermitted, match=said):
        await desk.do("write", path=path, text="[secrets]")
    with pytest.raises(NotPermitted, match=said):
        await desk.do("move", path="other", to="below/holdfast.toml")
    with pytest.raises(NotPermitted, match=said):
        await desk.do("delete", path="pyproject.toml")
    assert (tmp_path / "holdfast.toml").read_text() == (tmp_path / "pyproject.toml").read_text() == ""
    free = Desk(tmp_path, settings_file=str(tmp_path / "pyproject.toml"), settings=True)
    await free.do("write", path=path, text="[secrets]")


OURS = "[project]\nname = 'x'\n\n[tool.holdfast.tools.files]\nroots = ['/']\n"
REFUSED = r"pyproject.toml\" holds, or would hold, settings of Holdfast, .* or set tools\.files\.settings = true"


@pytest.mark.parametrize(
    "text",
    [
        OURS,
        "tool.holdfast.tools.files.roots = ['/']",
        "[tool]\nholdfast = 1",
        '["tool" . "hold\\u0066ast"]',
        "[tool.holdfast\n",  # no TOML, and every command would stop at it
    ],
)
@pytest.mark.parametrize("path", ["pyproject.toml", "below/PyProject.toml"])
async def test_no_tool_gives_itself_settings_in_a_file_of_other_programs(tmp_path: Path, path: str, text: str) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(NotPermitted, match=f"(?i){REFUSED}"):
        await desk.do("write", path=path, text=text)
    await desk.do("write", "other", path="other.toml", text=text)
    with pytest.raises(NotPermitted, match=f"(?i){REFUSED}"):
        await desk.do("move", path="other.toml", to=path)
    assert not (tmp_path / path).exists()
    free = Desk(tmp_path, settings=True)
    await free.do("move", path="other.toml", to=path)
    assert await free.do("read", path=path) == text


async def test_settings_in_a_file_of_other_programs_are_not_changed_or_taken_away(tmp_path: Path) -> None:
    """Also where they are not those in use: they are, for whoever works in that folder."""
    own = tmp_path / "below" / "pyproject.toml"
    own.parent.mkdir()
    own.write_text(OURS)
    desk = Desk(tmp_path)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("edit", {"old": "'/'", "new": "'/etc'"}),
        ("edit", {"old": "tool.holdfast", "new": "tool.other"}),
        ("write", {"text": ""}),
        ("delete", {}),
        ("move", {"to": "elsewhere"}),
    ]
    for name, arguments in calls:
        with pytest.raises(NotPermitted, match=REFUSED):
            await desk.do(name, path="below/pyproject.toml", **arguments)
    assert desk.contents() == {"below/pyproject.toml": OURS}


async def test_a_link_does_not_become_a_file_of_settings(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("later.toml")
    desk = Desk(tmp_path)
    with pytest.raises(NotPermitted, match=r"pyproject.toml\" is a link, or would be, that may lead to settings of"):
        await desk.do("move", path="link", to="pyproject.toml")
    (tmp_path / "link").rename(tmp_path / "pyproject.toml")
    with pytest.raises(NotPermitted, match=r"pyproject.toml\" is a link, or would be, that may lead to settings of"):
        await desk.do("delete", path="pyproject.toml")


async def test_a_file_of_other_programs_without_our_settings_is_an_ordinary_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.do("write", "1", path="pyproject.toml", text="[project]\nname = 'x'\n[tool.ruff]\n")
    await desk.do("edit", "2", path="pyproject.toml", old="'x'", new="'y'")
    await desk.do("move", "3", path="pyproject.toml", to="new/pyproject.toml")
    await desk.do("delete", "4", path="new/pyproject.toml")
    await desk.do("write", "5", path="pyproject.toml", text="no TOML")
    assert desk.contents() == {"pyproject.toml": "no TOML"}
