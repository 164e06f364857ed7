"""The public face is small, and a change of it is a decision: this list has to change with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.core.errors import InputInvalid

FACE = [
    "Approval",
    "Breaker",
    "Call",
    "Cancelled",
    "Context",
    "DidNotHappen",
    "Engine",
    "ExecutionFailed",
    "ExecutionStopped",
    "Fallback",
    "Happened",
    "HoldfastError",
    "InvalidCall",
    "Lenient",
    "Limits",
    "Misconfigured",
    "NotPermitted",
    "Plan",
    "Query",
    "RateLimited",
    "Refused",
    "ResourceShort",
    "Retry",
    "Run",
    "StepFailed",
    "StepPolicy",
    "ToolError",
    "Transient",
    "Unknown",
    "__version__",
    "current_call",
    "function",
    "tool",
    "toolset",
]


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(holdfast.__all__) == sorted(FACE)


@pytest.mark.parametrize("name", FACE)
def test_every_public_name_is_there_and_bears_it(name: str) -> None:
    found = getattr(holdfast, name)
    if isinstance(found, type):
        assert found.__name__ == name


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Workflow'"):
        _ = holdfast.Workflow


def test_every_public_error_says_what_it_is_when_it_is_raised_without_words() -> None:
    for name in (
        "HoldfastError",
        "InvalidCall",
        "Misconfigured",
        "NotPermitted",
        "RateLimited",
        "Refused",
        "Transient",
    ):
        error = getattr(holdfast, name)
        assert str(error()) == error.__doc__.strip()


def test_importing_the_package_loads_nothing_of_it() -> None:
    script = "import sys, holdfast; print(sorted(name for name in sys.modules if name.startswith('holdfast')))"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "['holdfast', 'holdfast.version']"


def test_a_store_that_is_neither_a_path_nor_an_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputInvalid, match=r'^store: expected a path, "memory:" or "postgresql://…", got int'):
        holdfast.Engine(5)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
