"""Secrets in the lab: nothing real is fetched; every secret has a value that a test can recognise."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.tools.secrets.redaction import masks
from holdfast.tools.secrets.vault import Vault


class LabVault(Vault):
    """`TOKEN` is `lab-secret-TOKEN`. It is masked as a real one is, so that a test sees what a program would see."""

    async def fetch(self, names: Iterable[str]) -> dict[str, str]:
        values = {name: f"lab-secret-{name}" for name in names}
        for name, value in values.items():
            masks.add(name, value)
        return values
