"""A workshop for every test of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.workshop import Workshop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    shop = Workshop(tmp_path)
    yield shop
    shop.kill_all()
