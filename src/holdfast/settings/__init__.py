"""Where Holdfast's settings come from, and where its data lies. This is all that other rooms need of it."""

from holdfast.settings.discovery import CONFIG_FILE, ensure_data_folder, ensure_folder
from holdfast.settings.environment import ENVIRONMENT_PREFIX, strange_variables
from holdfast.settings.load import load_settings, other_profiles
from holdfast.settings.resource_settings import PressureSettings, ResourceSettings
from holdfast.settings.schema import (
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
