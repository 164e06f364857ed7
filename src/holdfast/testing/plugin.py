"""The pytest plugin: one fixture, `lab`. Small on purpose, because pytest imports it before every test run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing.lab.lab import Lab


@pytest.fixture
def lab() -> Lab:
    """A lab in which plans and functions run in virtual time, with fake tools."""
    from holdfast.testing.lab.lab import Lab

    return Lab()
