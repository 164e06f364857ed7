"""Where Holdfast's settings come from, and where its data lies. This is all that other rooms need of it."""

from holdfast.settings.environment import ENVIRONMENT_PREFIX, strange_variables
from holdfast.settings.loading import load_settings, other_profiles
from holdfast.settings.measures import PressureSettings, ResourceSettings
from holdfast.settings.places import CONFIG_FILE, ensure_data_folder, ensure_folder
from holdfast.settings.values import (
    DATA_FOLDER,
    EXPECTED,
    KEYS,
    MEMORY,
    PROFILES,
    STORE_FILE,
    LimitSettings,
    NotifySettings,
    RetentionSettings,
    Settings,
)

__all__ = [
    "CONFIG_FILE",
    "DATA_FOLDER",
    "ENVIRONMENT_PREFIX",
    "EXPECTED",
    "KEYS",
    "MEMORY",
    "PROFILES",
    "STORE_FILE",
    "LimitSettings",
    "NotifySettings",
    "PressureSettings",
    "ResourceSettings",
    "RetentionSettings",
    "Settings",
    "ensure_data_folder",
    "ensure_folder",
    "load_settings",
    "other_profiles",
    "strange_variables",
]
