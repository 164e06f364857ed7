"""What a file carries besides its content: its own attributes and its access list outlive a change and its undoing."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from holdfast.tools.files.xattrs import ACCESS_LIST, ATTRIBUTES_BYTES_MAX
from kits.files import Desk

NOBODY = 0xFFFFFFFF
OWNER, PERSON, GROUP, MASK, OTHERS = 1, 2, 4, 16, 32
READ, WRITE = 4, 2


def access_list(person: int) -> bytes:
    """As the kernel wants it: the owner and one person may write, the group and others may do nothing."""
    entries = [(OWNER, READ | WRITE, NOBODY), (PERSON, READ | WRITE, person), (GROUP, 0, NOBODY)]
    entries += [(MASK, READ | WRITE, NOBODY), (OTHERS, 0, NOBODY)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    try:
        os.setxattr(tmp_path, "user.test", b"1")
        os.setxattr(tmp_path, ACCESS_LIST, access_list(4321))
    except (AttributeError, OSError):
        pytest.skip("there are no attributes or access lists here")
    return Desk(tmp_path)


def dressed(file: Path) -> dict[str, bytes]:
    return {name: os.getxattr(file, name) for name in os.listxattr(file) if not name.startswith("security.")}


def make(desk: Desk) -> tuple[Path, dict[str, bytes]]:
    file = desk.folder / "f"
    file.write_text("old")
    os.setxattr(file, "user.note", b"\x00 mine")
    os.setxattr(file, ACCESS_LIST, access_list(1234))
    return file, dressed(file)


async def test_a_rewritten_file_keeps_its_attributes_and_its_access_list(desk: Desk) -> None:
    file, before = make(desk)
    await desk.do("write", path="f", text="new")
    assert dressed(file) == before
    await desk.do("edit", path="f", old="new", new="newer")
    assert dressed(file) == before
    assert file.stat().st_mode & 0o777 == 0o660


async def test_undoing_brings_them_back(desk: Desk) -> None:
    file, before = make(desk)
    await desk.do("write", "1", path="f", text="new")
    os.setxattr(file, "user.note", b"changed")
    os.removexattr(file, ACCESS_LIST)
    await desk.do("delete", "2", path="f")
    desk.family.rollback(desk.call(), None).apply()
    assert file.read_text() == "old"
    assert dressed(file) == before


async def test_a_file_without_an_access_list_is_given_none_by_its_folder(desk: Desk) -> None:
    file = desk.folder / "f"
    file.write_text("old")
    os.setxattr(desk.folder, "system.posix_acl_default", access_list(1234))
    await desk.do("write", path="f", text="new")
    assert dressed(file) == {}
    await desk.do("write", path="g", text="a new one gets it, as everybody's")
    assert ACCESS_LIST in dressed(desk.folder / "g")


async def test_a_right_to_act_as_somebody_else_is_not_carried_over(desk: Desk) -> None:
    file = desk.folder / "f"
    file.write_text("old")
    try:
        os.setxattr(file, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))
    except OSError:
        pytest.skip("only root may give capabilities")
    await desk.do("write", path="f", text="new")
    assert "security.capability" not in os.listxattr(file)


async def test_of_more_than_fits_the_access_list_is_kept(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.tools.files import xattrs

    assert ATTRIBUTES_BYTES_MAX > 100
    file, before = make(desk)
    os.setxattr(file, "user.large", b"x" * 200)
    monkeypatch.setattr(xattrs, "ATTRIBUTES_BYTES_MAX", 150)
    await desk.do("write", path="f", text="new")
    assert dressed(file) == before
