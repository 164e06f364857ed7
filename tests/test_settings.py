"""Settings: found upwards, overridden by environment and flags, and every mistake named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import SettingsInvalid, StoreUnavailable
from holdfast.settings import ensure_data_folder, load_settings


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refusal(folder: Path, environ: dict[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(folder, environ or {}, flags)
    return str(caught.value)


def test_without_any_file_the_started_folder_is_the_root(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    assert settings.root == tmp_path
    assert settings.config_file is None
    assert settings.store_file == tmp_path / ".holdfast" / "journal.db"
    assert settings.modules == ()
    assert settings.limits.executions == 100
    assert set(settings.sources.values()) == {"default"}


def test_the_file_is_found_upwards_and_its_paths_start_there(tmp_path: Path) -> None:
    file = write(tmp_path / "holdfast.toml", 'modules = ["tools.py", "my.functions"]\nstore = "data/journal.db"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    settings = load_settings(below, {})
    assert settings.root == tmp_path
    assert settings.config_file == file
    assert settings.modules == ("tools.py", "my.functions")
    assert settings.store_file == tmp_path / "data" / "journal.db"
    assert settings.data_folder == tmp_path / "data"


def test_pyproject_counts_only_with_a_table_of_ours(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[tool.holdfast]\nowner = "ada"\n')
    write(tmp_path / "inner" / "pyproject.toml", "[project]\nname = 'other'\n")
    settings = load_settings(tmp_path / "inner", {})
    assert settings.root == tmp_path
    assert settings.owner == "ada"


def test_a_broken_pyproject_of_somebody_else_is_none_of_our_business(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "this is not toml")
    assert load_settings(tmp_path, {}).config_file is None


def test_the_nearest_file_wins_and_ends_the_search(tmp_path: Path) -> None:
    write(tmp_path / "holdfast.toml", 'owner = "far"\nmodules = ["far"]\n')
    write(tmp_path / "inner" / "holdfast.toml", 'owner = "near"\n')
    settings = load_settings(tmp_path / "inner", {})
    assert (settings.owner, settings.modules) == ("near", ())


def test_environment_overrides_the_file_and_flags_override_both(tmp_path: Path) -> None:
    file = write(tmp_path / "holdfast.toml", 'owner = "file"\nmodules = ["m"]\n[limits]\nexecutions = 5\ndrain_s = 2\n')
    environ = {"HOLDFAST_OWNER": "environment", "HOLDFAST_LIMITS_EXECUTIONS": "7", "HOLDFAST_STORE": "env.db"}
    settings = load_settings(tmp_path, environ, {"store": "flag.db", "owner": None})
    assert settings.owner == "environment"
    assert (settings.limits.executions, settings.limits.drain_s) == (7, 2.0)
    assert settings.store_file == tmp_path / "flag.db"
    assert settings.sources["owner"] == "HOLDFAST_OWNER"
    assert settings.sources["limits.executions"] == "HOLDFAST_LIMITS_EXECUTIONS"
    assert settings.sources["limits.drain_s"] == str(file)
    assert settings.sources["store"] == "--store"
    assert settings.sources["limits.parked"] == "default"


@pytest.mark.parametrize("text", ["a,b.py", "a:b.py", " a , b.py ,"])
def test_modules_in_the_environment_are_separated_by_commas_or_colons(tmp_path: Path, text: str) -> None:
    assert load_settings(tmp_path, {"HOLDFAST_MODULES": text}).modules == ("a", "b.py")


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {"HOLDFAST_OWNER": ""}).sources["owner"] == "default"


def test_memory_store_has_no_file(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, {"store": "memory:"})
    assert settings.store_file is None
    ensure_data_folder(settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('stoer = "x"', 'stoer: no such setting; did you mean "store"?'),
        ("colour = 1", "colour: no such setting; there are: store, modules, owner, limits.executions"),
        ("[limits]\nexecution = 3", 'limits.execution: no such setting; did you mean "limits.executions"?'),
        ("limits = 3", "limits: expected a table, got the number 3"),
        ("store = 3", 'store: expected a path, "memory:" or "postgresql://…", got the number 3'),
        ('modules = "tools.py"', 'modules: expected a list of module names or .py files, got the string "tools.py"'),
        ("modules = [1]", "modules: expected a list of module names or .py files, got a list"),
        ("owner = true", "owner: expected a text, got true"),
        ("[limits]\nexecutions = 0", "limits.executions: expected a whole number from 1 to 1000000, got the number 0"),
        ("[limits]\nparked = true", "limits.parked: expected a whole number from 1 to 1000000, got true"),
        ("[limits]\ndrain_s = nan", "limits.drain_s: expected a number of seconds from 0 to 86400, got the number nan"),
        ("[limits]\ndrain_s = -1", "limits.drain_s: expected a number of seconds from 0 to 86400, got the number -1"),
        ("= nonsense", "is not valid TOML: "),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path / "holdfast.toml", text)
    said = refusal(tmp_path)
    assert said.startswith(str(file))
    assert message in said


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_bytes(b"\xff\xfe")
    assert refusal(tmp_path) == f"{tmp_path / 'holdfast.toml'} is not UTF-8 text; save it as UTF-8"


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    assert refusal(tmp_path, {"HOLDFAST_LIMITS_EXECUTIONS": "many"}) == (
        'HOLDFAST_LIMITS_EXECUTIONS: expected a whole number from 1 to 1000000, got the string "many"'
    )
    assert refusal(tmp_path, {"HOLDFAST_LIMITS_EXECUTION": "3"}) == (
        'HOLDFAST_LIMITS_EXECUTION: no such setting; did you mean "HOLDFAST_LIMITS_EXECUTIONS"?'
    )


def test_stores_of_other_kinds_are_refused_clearly(tmp_path: Path) -> None:
    assert refusal(tmp_path, store="ftp://x") == (
        '--store: expected a path, "memory:" or "postgresql://…", got the string "ftp://x"'
    )


def test_a_database_is_no_file_and_is_shown_without_its_password(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {"HOLDFAST_STORE": "postgresql://ann:geheim@db:5433/tasks?schema=team"})
    assert settings.store == "postgresql://ann:geheim@db:5433/tasks?schema=team"
    assert settings.store_shown == "postgresql://ann@db:5433/tasks?schema=team"
    assert settings.store_file is None
    assert load_settings(tmp_path, {}).store_shown == str(tmp_path / ".holdfast" / "journal.db")


def test_a_mistake_in_an_address_is_named_without_repeating_it(tmp_path: Path) -> None:
    text = refusal(tmp_path, store="postgresql://ann:ge/heim@db/tasks")
    assert text.startswith("--store: expected postgresql://user:password@host:port/database")
    assert "heim" not in text


def test_the_default_data_folder_ignores_itself_in_git(tmp_path: Path) -> None:
    folder = ensure_data_folder(load_settings(tmp_path, {}))
    assert folder == tmp_path / ".holdfast"
    assert (folder / ".gitignore").read_text() == "*\n"


def test_a_folder_the_user_named_is_created_but_not_written_into(tmp_path: Path) -> None:
    folder = ensure_data_folder(load_settings(tmp_path, {}, {"store": "data/x.db"}))
    assert list(folder.iterdir()) == []


def test_a_data_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    write(tmp_path / ".holdfast", "a file where the folder should be")
    with pytest.raises(StoreUnavailable) as caught:
        ensure_data_folder(load_settings(tmp_path, {}))
    assert str(caught.value) == (
        f"the folder {tmp_path / '.holdfast'} cannot be created or written (File exists); "
        "make it writable, or name another store with --store"
    )


def test_a_store_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        ensure_data_folder(load_settings(tmp_path, {}, {"store": str(tmp_path)}))
    assert str(caught.value) == f"store: {tmp_path} is a folder; name a file, such as {tmp_path / 'journal.db'}"
