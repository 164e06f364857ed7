"""Profiles: tables of the settings file that override the rest of it, chosen by flag or environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import SettingsInvalid
from holdfast.settings import load_settings

FILE = """
owner = "ada"
[limits]
executions = 5
drain_s = 2
[profiles.ci]
owner = "ci"
limits = {executions = 50}
[profiles.night]
store = "night.db"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "holdfast.toml").write_text(FILE)
    return tmp_path


def refusal(folder: Path, environ: dict[str, str] | None = None, profile: str | None = None) -> str:
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(folder, environ or {}, profile=profile)
    return str(caught.value)


def test_without_a_choice_profiles_change_nothing(project: Path) -> None:
    settings = load_settings(project, {})
    assert (settings.owner, settings.limits.executions, settings.profile) == ("ada", 5, "")
    assert settings.warnings == ()


def test_a_profile_overrides_what_it_names_and_says_so(project: Path) -> None:
    settings = load_settings(project, {}, profile="ci")
    assert (settings.owner, settings.limits.executions, settings.limits.drain_s) == ("ci", 50, 2.0)
    assert settings.profile == "ci"
    assert settings.sources["limits.executions"] == f"profile ci in {project / 'holdfast.toml'}"
    assert settings.sources["limits.drain_s"] == str(project / "holdfast.toml")


def test_the_environment_chooses_a_profile_and_a_flag_another(project: Path) -> None:
    assert load_settings(project, {"HOLDFAST_PROFILE": "ci"}).owner == "ci"
    settings = load_settings(project, {"HOLDFAST_PROFILE": "ci"}, profile="night")
    assert (settings.owner, settings.store_file) == ("ada", project / "night.db")


def test_variables_and_flags_override_the_profile(project: Path) -> None:
    settings = load_settings(project, {"HOLDFAST_OWNER": "me"}, {"store": "flag.db"}, profile="night")
    assert (settings.owner, settings.store_file) == ("me", project / "flag.db")


def test_an_unknown_profile_is_refused_with_a_suggestion(project: Path) -> None:
    file = project / "holdfast.toml"
    assert refusal(project, profile="nihgt") == f'--profile: {file} has no profile "nihgt"; did you mean "night"?'
    assert refusal(project, {"HOLDFAST_PROFILE": "x"}) == (
        f'HOLDFAST_PROFILE: {file} has no profile "x"; there are: ci, night'
    )


def test_a_profile_without_a_settings_file_is_refused(tmp_path: Path) -> None:
    expected = '--profile: there is no settings file that could hold the profile "ci"'
    assert refusal(tmp_path, profile="ci") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles = 3", "profiles: expected a table, got the number 3"),
        ("[profiles]\nci = 3", "profiles.ci: expected a table, got the number 3"),
        ("[profiles.ci]\nowner = 3", "profiles.ci.owner: expected a text, got the number 3"),
    ],
)
def test_a_mistake_in_a_profile_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    assert refusal(tmp_path, profile="ci") == f"{file}: {message}"


def test_an_unknown_name_in_the_chosen_profile_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("[profiles.ci]\nownr = 'x'\n")
    assert load_settings(tmp_path, {}, profile="ci").warnings == (
        f'{file}: ownr: no such setting; did you mean "owner"?',
    )
