"""Whatever stands in holdfast.toml, in the environment or in a flag: it gives settings, or a refusal in words."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import SettingsInvalid, StoreUnavailable
from holdfast.settings import KEYS, Settings, ensure_data_folder, load_settings
from properties.strategies import examples, outcome, texts

_KEYS = st.sampled_from(
    [*KEYS, "limits", "stor", "limits.parkd", "tool.holdfast", "[limits]", "[tool.holdfast]", "[[limits]]"]
)
_TOML = st.sampled_from(
    ["=", " ", "\n", "1", "0x1f", "9" * 30, "1e400", "nan", "-1", "true", '"memory:"', "'a'", '"~nobody-here/x"',
     '"~/x"',
     '"postgresql://x"', '"file://x"', '"\\u0000"', "[", "]", "[1, 'a']", "{a = 1}", "2026-01-01", "'''", "#", "é",
     '""']
)  # fmt: skip
files = st.lists(_KEYS | _TOML | st.text(max_size=4), max_size=10).map("".join)
lines = st.lists(st.builds(lambda key, value: f"{key} = {value}\n", _KEYS, _TOML), max_size=4).map("".join)


def settings_or_refusal(folder: Path, environ: dict[str, str], flags: dict[str, Any]) -> Settings | None:
    settings = outcome(lambda: load_settings(folder, environ, flags), SettingsInvalid)
    if not isinstance(settings, Settings):
        assert str(settings).strip()
        return None
    assert set(settings.sources) == set(KEYS)
    return settings


@examples(300)
@given(lines | files, st.sampled_from(["holdfast.toml", "pyproject.toml"]))
def test_any_file_gives_settings_or_a_refusal(text: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        settings_or_refusal(Path(folder), {}, {})


@examples(60)
@given(
    st.binary(max_size=30).map(lambda tail: b"# tool.holdfast\n" + tail),
    st.sampled_from(["holdfast.toml", "pyproject.toml"]),
)
def test_any_bytes_give_settings_or_a_refusal(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(content)
        settings_or_refusal(Path(folder), {}, {})


_VARIABLES = [f"HOLDFAST_{key.upper().replace('.', '_')}" for key in KEYS]
_TEXTS = texts | st.sampled_from(
    ["1", "-1", "1e9", "9" * 5000, "nan", "a,b", ":", "~nobody-here/x", "~", "\x00", "memory:"]
)


@examples(200)
@given(
    st.dictionaries(st.sampled_from([*_VARIABLES, "HOLDFAST_LIMITS_X", "HOLDFAST_OTHER"]), _TEXTS, max_size=3),
    st.dictionaries(st.sampled_from(["store", "owner"]), st.none() | _TEXTS, max_size=2),
)
def test_any_environment_and_flags_give_settings_or_a_refusal(environ: dict[str, str], flags: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings_or_refusal(Path(folder), environ, flags)


@examples(60)
@given(
    st.text(min_size=1, max_size=8) | st.sampled_from(["a\x00b", "x" * 300, "é/b", "\ud800", "~", "..", "/dev/null/x"])
)
def test_any_store_gets_its_folder_or_a_refusal(store: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if store.strip("./").startswith(("tmp", "~")) or (store.startswith("/") and not store.startswith("/dev/null")):
            return  # nothing outside the test's own folder is touched
        settings = settings_or_refusal(Path(folder), {}, {"store": store.replace("..", "_")})
        if settings is not None:
            made = outcome(lambda: ensure_data_folder(settings), SettingsInvalid, StoreUnavailable)
            assert str(made).strip()


@pytest.mark.parametrize(
    "text",
    ["owner = " + "[" * 5000, "limits.parked = " + "9" * 5000, "tool = 5 # tool.holdfast", "tool.holdfast = 5"],
    ids=["deep", "long number", "tool is a number", "table is a number"],
)
@pytest.mark.parametrize("name", ["holdfast.toml", "pyproject.toml"])
def test_files_that_trip_a_parser_are_refused_in_words(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / name).write_text(f"{text} # tool.holdfast\n")
    settings_or_refusal(tmp_path, {}, {})
