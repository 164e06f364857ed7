"""What is read of this machine is in its bounds, and what cannot be read is left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.tools.runtime import machine_stats
from holdfast.tools.runtime.machine_stats import read_machine


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_figures_of_this_machine_make_sense(tmp_path: Path) -> None:
    found = read_machine(tmp_path)
    assert found.memory_free is not None
    assert 0 < found.memory_free <= 1
    assert found.own_memory is not None
    assert 0 < found.own_memory < 1
    assert found.load is not None
    assert found.load >= 0
    assert found.disk_free_bytes is not None
    assert found.disk_free_bytes >= 0
    assert found.stalled is None or 0 <= found.stalled <= 1


def test_what_cannot_be_told_is_left_out(tmp_path: Path) -> None:
    assert read_machine(tmp_path / "gone").disk_free_bytes is None


def test_a_container_has_less_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_machine(tmp_path)
    (tmp_path / "memory.max").write_text("100000000\n")
    (tmp_path / "memory.current").write_text("95000000\n")
    monkeypatch.setattr(machine_stats, "_GROUP", tmp_path)
    assert read_machine(tmp_path).memory_free == pytest.approx(0.05)
    (tmp_path / "memory.max").write_text("max\n")
    assert whole.memory_free == pytest.approx(read_machine(tmp_path).memory_free, abs=0.2)
