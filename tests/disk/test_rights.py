"""Files and folders that may not be written: nothing starts, the error names them, and what is open goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from disk import stranger


@pytest.mark.parametrize(
    ("story", "says"),
    [
        ("file", "journal.db is read-only for this user; make the file and its folder writable"),
        ("folder", ".holdfast"),
        ("new", ".holdfast"),
        ("running", "journal.db is read-only for this user; make the file and its folder writable"),
    ],
)
def test_what_may_not_be_written_is_named_and_works_again_when_it_may(story: str, says: str) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:  # not pytest's, which nobody else may enter
        done = subprocess.run(
            [sys.executable, stranger.__file__, story, folder],
            env={**os.environ, "PYTHONPATH": str(Path(stranger.__file__).parents[1])},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for text in seen["texts"]:
        assert text.startswith("StoreUnavailable: ")
        assert says in text
        assert "writable" in text
    assert seen["after"] == "completed"
