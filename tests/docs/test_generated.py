"""The reference is what the code says: the generated pages are fresh, and nothing that has a name lacks a heading."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from holdfast.core import errors
from holdfast.core.events import AnyEvent, AnyFrame
from holdfast.core.plan.parse import PLAN_KEYS
from holdfast.core.plan.parse_steps import STEP_KEYS
from holdfast.settings import KEYS

DOCS = Path(__file__).parent.parent.parent / "docs"


def headings(page: str) -> set[str]:
    return {line.lstrip("#").strip() for line in (DOCS / page).read_text().splitlines() if line.startswith("#")}


def test_the_generated_pages_are_what_the_code_says() -> None:
    command = [sys.executable, str(DOCS / "generate.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_event_and_frame_has_a_heading() -> None:
    names = {str(kind.__struct_config__.tag) for union in (AnyEvent, AnyFrame) for kind in get_args(union)}
    assert names <= headings("reference/events.md")


def test_every_error_has_a_heading() -> None:
    kinds = inspect.getmembers(errors, lambda thing: inspect.isclass(thing) and issubclass(thing, BaseException))
    assert {name for name, _ in kinds} <= headings("reference/errors.md")


def test_every_command_has_a_heading() -> None:
    def shown(*words: str) -> list[str]:
        command = [sys.executable, "-m", "holdfast.cli", *words, "--help"]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        return re.findall(r"^  (\w+) ", text.partition("Commands:")[2], re.MULTILINE)

    names = [*shown(), *(f"service {name}" for name in shown("service"))]
    assert "service install" in names
    assert {f"holdfast {name}" for name in names} <= headings("cli.md")


def test_every_setting_has_a_heading() -> None:
    assert set(KEYS) <= headings("reference/settings.md")


def test_every_key_of_a_plan_is_in_the_guide() -> None:
    guide = (DOCS / "guides" / "plans.md").read_text()
    missing = [key for key in (*PLAN_KEYS, *STEP_KEYS) if f"`{key}`" not in guide and f"{key}:" not in guide]
    assert not missing, f"docs/guides/plans.md does not mention {missing}"
