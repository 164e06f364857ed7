"""The core's third-party imports, as an allow-list. Which room may import which is import-linter's to say."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CORE = Path(__file__).parent.parent / "src" / "holdfast" / "core"


def imported_packages(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_core_imports_the_standard_library_and_msgspec_only() -> None:
    allowed = {*sys.stdlib_module_names, "holdfast", "msgspec"}
    found = {
        f"{file.relative_to(CORE.parent)} imports {package}"
        for file in CORE.rglob("*.py")
        for package in imported_packages(file.read_text())
        if package not in allowed
    }
    assert not found
