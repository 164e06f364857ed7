"""Where the lab looks for plan files: beside the test first, then in the current folder, as the command line does."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import NotFound
from holdfast.programs.plan_files import PLAN_ENDINGS
from holdfast.programs.prepare import Found, Preparer, Subject


class LabPreparer(Preparer):
    """`beside` is the folder of the test, if that is known."""

    beside: Path | None = None

    def has_program(self, name: str) -> bool:
        return super().has_program(str(self._placed(name)))

    def find(self, subject: Subject) -> Found:
        if not isinstance(subject, str | Path):
            return super().find(subject)
        placed = self._placed(subject)
        if self.beside is not None and str(placed).endswith(PLAN_ENDINGS) and not (self._folder / placed).is_file():
            raise NotFound(
                f"there is no plan file {subject}, neither beside the test (in {self.beside}) "
                f"nor in the current folder ({Path.cwd()})"
            )
        return super().find(placed)

    def _placed(self, given: str | Path) -> str | Path:
        """As short as it can be said from the current folder: it is kept with the execution."""
        if self.beside is None or not str(given).endswith(PLAN_ENDINGS):
            return given
        here, found = Path.cwd(), self.beside / given
        if not found.is_file():
            return given
        return found.relative_to(here) if found.is_relative_to(here) else found
