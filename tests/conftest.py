"""What every test gets without asking: nothing of the machine's own settings and state, no secret that another test has
taught this process, and the same examples."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from holdfast.tools.secrets.redaction import masks

pytest_plugins = ["servers.postgres", "costs"]

# The same examples in every run, and a busy machine does not fail them for being slow.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
# Under nohup, or in a CI that ignores it, the processes that tests start would not hear a closed terminal either.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, state_folder: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(state_folder))
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_PRESSURE_WATCH", "no")  # a busy machine must not change what tests see


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests() -> None:
    """One set of masks serves the whole process: the same value under another test's name would be told by that."""
    masks.forget()
