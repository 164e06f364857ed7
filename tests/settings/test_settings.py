"""Settings: found upwards, overridden by environment and flags, and every mistake named with its place."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast.core.errors import SettingsInvalid, StoreUnavailable
from holdfast.core.plan.resources import resources_of
from holdfast.core.policy import Checkpoints
from holdfast.core.pressure import PressureLimits
from holdfast.core.resources import DEFAULTS, parse_size
from holdfast.settings import RetentionSettings, ensure_data_folder, load_settings, strange_variables


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


def test_retention_comes_from_the_file_and_the_environment(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {}).retention == RetentionSettings()
    write(tmp_path / "holdfast.toml", '[retention]\nolder_than = "30d"\nstatus = ["failed"]\n')
    assert load_settings(tmp_path, {}).retention == RetentionSettings(older_than="30d", status=("failed",))
    environ = {"HOLDFAST_RETENTION_OLDER_THAN": "2h30m", "HOLDFAST_RETENTION_STATUS": "failed,stopped"}
    retention = load_settings(tmp_path, environ).retention
    assert retention == RetentionSettings(older_than="2h30m", status=("failed", "stopped"))
    (warning,) = load_settings(tmp_path, {"HOLDFAST_RETENTION_OLD": "1d"}).warnings
    assert warning.startswith("HOLDFAST_RETENTION_OLD: no such setting")


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {"HOLDFAST_OWNER": ""}).sources["owner"] == "default"


def test_an_empty_variable_for_a_list_switches_it_off(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('modules = ["a.py"]\n[notify]\nchannels = ["chat"]\non = ["done"]\n')
    empty = {"HOLDFAST_NOTIFY_CHANNELS": "", "HOLDFAST_NOTIFY_ON": "", "HOLDFAST_MODULES": ""}
    settings = load_settings(tmp_path, empty)
    assert (settings.notify.channels, settings.notify.on, settings.modules) == ((), (), ())
    assert settings.sources["notify.channels"] == "HOLDFAST_NOTIFY_CHANNELS"


def test_memory_store_has_no_file(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, {"store": "memory:"})
    assert settings.store_file is None
    ensure_data_folder(settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limits = 3", "limits: expected a table, got the number 3"),
        ("store = 3", 'store: expected a path, "memory:" or "postgresql://…", got the number 3'),
        ('modules = "tools.py"', 'modules: expected a list of module names or .py files, got the string "tools.py"'),
        ("modules = [1]", "modules: expected a list of module names or .py files, got a list"),
        ("owner = true", "owner: expected a text, got true"),
        ("[limits]\nexecutions = 0", "limits.executions: expected a whole number from 1 to 1000000, got the number 0"),
        ("[limits]\nparked = true", "limits.parked: expected a whole number from 1 to 1000000, got true"),
        ("[limits]\ndrain_s = nan", "limits.drain_s: expected a number of seconds from 0 to 86400, got the number nan"),
        ("checkpoint = 1", "checkpoint: expected a table, got the number 1"),
        ("[checkpoint]\nevery_s = 0.5", "checkpoint.every_s: expected a number of seconds from 1 to 86400, got the"),
        ("[checkpoint]\nevery_steps = 0", "checkpoint.every_steps: expected a whole number from 1 to 1000000, got the"),
        (
            "[checkpoint]\non = ['ended']",
            'checkpoint.on: expected a list of "pause", "interrupt", "end", got "ended"; did you mean "end"?',
        ),
        ("[limits]\ndrain_s = -1", "limits.drain_s: expected a number of seconds from 0 to 86400, got the number -1"),
        ("retention = 3", "retention: expected a table, got the number 3"),
        (
            '[retention]\nolder_than = "soon"',
            'retention.older_than: expected a duration such as "30d" or "12h", got the string "soon"',
        ),
        ("[retention]\nolder_than = 30", "retention.older_than: expected a duration such as"),
        (
            '[retention]\nolder_than = "1d"\nstatus = ["running"]',
            'retention.status: expected a list of completed, failed and stopped, got "running"',
        ),
        ('[retention]\nolder_than = "1d"\nstatus = []', "retention.status: expected a list of completed"),
        (
            '[retention]\nstatus = ["failed"]',
            'retention.status: say how long they are kept, with older_than = "30d"',
        ),
        (
            '[resources]\nmemory = "lots"',
            'resources.memory: expected a size such as "512MB", "1.5GB" or "64KiB", or a number of bytes, got',
        ),
        ("[resources]\nmemory = 1000", "resources.memory: expected at least 1 MiB, got the number 1000"),
        ("[resources]\ncpu = 0", "resources.cpu: expected at least 0.1 s of CPU time, got the number 0"),
        ("[resources]\nopen_files = 3", "resources.open_files: expected a whole number from 16 to 1000000, got the"),
        ("[pressure]\nmemory_tight = 10", "pressure.memory_tight: expected a share from 0 to 1, such as 0.1, got the"),
        (
            "[pressure]\nload_severe = 0",
            "pressure.load_severe: expected a load per core, more than 0 and at most 10000",
        ),
        ("[pressure]\ndisk_tight = -1", "pressure.disk_tight: expected a size of more than 0 and at most 1024 TiB"),
        (
            "[pressure]\nmemory_severe = 0.3",
            "pressure.memory_severe: expected less than pressure.memory_tight, which is 0.1, got 0.3",
        ),
        (
            "[pressure]\nload_severe = 2",
            "pressure.load_severe: expected more than pressure.load_tight, which is 10.0, got 2.0",
        ),
        (
            '[pressure]\ndisk_severe = "2GB"',
            "pressure.disk_severe: expected less than pressure.disk_tight, which is 1GB, got 2GB",
        ),
        ("= nonsense", "is not valid TOML: "),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path / "holdfast.toml", text)
    said = refusal(tmp_path)
    assert said.startswith(str(file))
    assert message in said


def test_when_tasks_save_themselves_comes_from_file_and_environment(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {}).checkpoint is None
    write(tmp_path / "holdfast.toml", '[checkpoint]\nevery_s = 90\non = ["end", "pause"]\n')
    settings = load_settings(tmp_path, {"HOLDFAST_CHECKPOINT_EVERY_STEPS": "5"})
    assert settings.checkpoint == Checkpoints(every_steps=5, every_s=90.0, on=("pause", "end"))
    said = load_settings(tmp_path, {"HOLDFAST_CHECKPOINT_ON": "interrupt,end"}).checkpoint
    assert said == Checkpoints(every_s=90.0, on=("interrupt", "end"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('stoer = "x"', 'stoer: no such setting; did you mean "store"?'),
        ("colour = 1", "colour: no such setting; there are: store, modules, owner, "),
        ("[limits]\nexecution = 3", 'limits.execution: no such setting; did you mean "limits.executions"?'),
        ("[retention]\nolder = 3", 'retention.older: no such setting; did you mean "retention.older_than"?'),
        ("[checkpoint]\nwhen = 1", "checkpoint.when: no such setting"),
        ("[profile.ci]\nowner = 'x'", 'profile: no such setting; did you mean "profiles"?'),
        ("[retenion]\nolder_than = '3d'", 'retenion: no such setting; did you mean "retention"?'),
        ("drain_s = 3", 'drain_s: no such setting; did you mean "limits.drain_s"?'),
    ],
)
def test_an_unknown_name_in_the_file_is_a_warning_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path / "holdfast.toml", f"{text}\n")
    settings = load_settings(tmp_path, {})
    [warning] = settings.warnings
    assert warning.startswith(f"{file}: {message}")
    assert settings.sources["owner"] == "default"


def test_only_the_names_that_could_stand_there_are_listed(tmp_path: Path) -> None:
    write(tmp_path / "holdfast.toml", "zzz = 1\n[checkpoint]\nxyz = 1\n")
    top, inside = load_settings(tmp_path, {}).warnings
    assert "limits, retention" in top
    assert "limits." not in top
    assert inside.endswith("; there are: checkpoint.every_steps, checkpoint.every_s, checkpoint.on")


def test_unknown_variables_are_warned_of_when_they_can_only_be_meant_for_us(tmp_path: Path) -> None:
    environ = {
        "HOLDFAST_LIMITS_EXECUTION": "3", "HOLDFAST_STOER": "x", "HOLDFAST_SOMETHING_ELSE": "y", "HOLDFAST_LIMTS": "1",
        "HOLDFAST_SECRETS": "x", "HOLDFAST_RETENTION": "3d", "HOLDFAST_PROCESS": "1", "HOLDFAST_SERVICE_HOST": "::1",
    }  # fmt: skip
    assert [text.partition(":")[0] for text in strange_variables(environ)] == [
        "HOLDFAST_SOMETHING_ELSE",
        "HOLDFAST_SERVICE_HOST",
    ]
    assert load_settings(tmp_path, environ).warnings == (
        'HOLDFAST_LIMITS_EXECUTION: no such setting; did you mean "HOLDFAST_LIMITS_EXECUTIONS"?',
        'HOLDFAST_STOER: no such setting; did you mean "HOLDFAST_STORE"?',
        'HOLDFAST_LIMTS: no such setting; did you mean "HOLDFAST_LIMITS_…"?',
        "HOLDFAST_SECRETS: secrets is a table, and can only stand in the settings file",
        "HOLDFAST_RETENTION: no such setting; there are: HOLDFAST_RETENTION_OLDER_THAN, HOLDFAST_RETENTION_STATUS",
    )


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("No", False), ("false", False)])
def test_a_switch_in_the_environment_is_written_as_people_write_it(tmp_path: Path, text: str, value: bool) -> None:
    assert load_settings(tmp_path, {"HOLDFAST_WORKTREES_SHARE": text}).worktrees_share is value


def test_a_switch_that_is_neither_is_refused(tmp_path: Path) -> None:
    expected = 'HOLDFAST_WORKTREES_SHARE: expected true or false, got the string "perhaps"'
    assert refusal(tmp_path, {"HOLDFAST_WORKTREES_SHARE": "perhaps"}) == expected
    file = write(tmp_path / "holdfast.toml", "worktrees_share = 1\n")
    assert refusal(tmp_path) == f"{file}: worktrees_share: expected true or false, got the number 1"


def test_a_value_is_found_by_the_name_it_has_in_the_file(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {"HOLDFAST_STORE": "postgresql://ann:geheim@db/tasks"})
    assert settings.value("store") == "postgresql://ann@db/tasks"
    assert settings.value("limits.drain_s") == 10.0
    assert settings.value("modules") == ()


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_bytes(b"\xff\xfe")
    assert refusal(tmp_path) == f"{tmp_path / 'holdfast.toml'} is not UTF-8 text; save it as UTF-8"


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    assert refusal(tmp_path, {"HOLDFAST_LIMITS_EXECUTIONS": "many"}) == (
        'HOLDFAST_LIMITS_EXECUTIONS: expected a whole number from 1 to 1000000, got the string "many"'
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
    folder = ensure_data_folder(load_settings(tmp_path, {}, {"store": "conf.d/journal.db"}))
    assert folder == tmp_path / "conf.d"
    assert list(folder.iterdir()) == []


def test_a_store_of_another_name_has_a_folder_to_itself_that_git_ignores(tmp_path: Path) -> None:
    one, other = (ensure_data_folder(load_settings(tmp_path, {}, {"store": f"data/{name}.db"})) for name in "xy")
    assert (one, other) == (tmp_path / "data" / "x.db.d", tmp_path / "data" / "y.db.d")
    assert (one / ".gitignore").read_text() == "*\n"
    assert sorted((tmp_path / "data").iterdir()) == [one, other]


@pytest.mark.parametrize(("kept", "warns"), [("0s", True), ("59s", True), ("1m", False)])
def test_a_retention_that_keeps_nothing_is_warned_of(tmp_path: Path, kept: str, warns: bool) -> None:
    file = write(tmp_path / "holdfast.toml", f'[retention]\nolder_than = "{kept}"\n')
    said = f'{file}: retention.older_than: with "{kept}" whatever ends is deleted before anybody can look at it; '
    assert [text.startswith(said) for text in load_settings(tmp_path, {}).warnings] == [True] * warns


def test_a_link_to_a_store_shares_the_folder_of_the_store(tmp_path: Path) -> None:
    """Locks in two places would be none."""
    for name in ("x.db", "journal.db"):
        (tmp_path / f"to-{name}").symlink_to(f"data/{name}")
    linked, plain = (load_settings(tmp_path, {}, {"store": f"to-{name}"}) for name in ("x.db", "journal.db"))
    assert (linked.data_folder, plain.data_folder) == (tmp_path / "data" / "x.db.d", tmp_path / "data")
    assert (linked.owns_data_folder, plain.owns_data_folder) == (True, False)


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


def test_each_family_of_tools_has_a_table(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[tools.files]\nanything = 1\n")
    assert load_settings(tmp_path, {}).tools == {"files": {"anything": 1}}
    (tmp_path / "holdfast.toml").write_text("tools = {files = 3}\n")
    with pytest.raises(SettingsInvalid, match=r"tools: expected a table for each family of tools, such as \[tools"):
        load_settings(tmp_path, {})


def test_resources_and_pressure_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    write(tmp_path / "holdfast.toml", '[resources]\nmemory = "512MB"\nprocesses = 9\n[pressure]\nload_tight = 3\n')
    environ = {"HOLDFAST_RESOURCES_CPU": "90s", "HOLDFAST_RESOURCES_PROCESSES": "8", "HOLDFAST_PRESSURE_WATCH": "no"}
    settings = load_settings(tmp_path, environ)
    assert (settings.resources.memory, settings.resources.cpu, settings.resources.processes) == ("512MB", "90s", 8)
    assert (settings.pressure.load_tight, settings.pressure.watch) == (3.0, False)


def test_the_defaults_of_the_settings_are_those_of_the_rules(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    assert resources_of(asdict(settings.resources)) == DEFAULTS
    said = asdict(settings.pressure)
    rules = asdict(PressureLimits())
    assert said.pop("watch") is True
    assert {f"{name}_bytes": parse_size(said.pop(name)) for name in ("disk_tight", "disk_severe")} == {
        name: rules.pop(name) for name in ("disk_tight_bytes", "disk_severe_bytes")
    }
    assert said == rules
