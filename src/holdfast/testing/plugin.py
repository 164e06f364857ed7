"""The pytest plugin: one fixture, `lab`. Small on purpose, because pytest imports it before every test run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing.lab.lab import Lab


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Lab:
    """A lab in which plans and functions run in virtual time, with fake tools. It finds plan files beside the test."""
    from holdfast.testing.lab.lab import Lab

    return Lab(folder=request.path.parent)
