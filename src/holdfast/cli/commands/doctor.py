"""`holdfast doctor`: looks at everything that can be wrong here and says what each finding means and what to do.

The checks themselves are in doctor_checks.py (the folder, the store, the executions) and in here (modules and tools).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.tools import builtin_registry
from holdfast.cli.common import completions
from holdfast.cli.common.context import existing_store, liveness_of, settings_of, wait_for
from holdfast.cli.common.invocation import holdfast, pastable
from holdfast.cli.common.options import AsJson, not_empty
from holdfast.cli.output.format import json_line, paint
from holdfast.core.errors import HoldfastError, NotFound, SettingsInvalid, StoreCorrupted

if TYPE_CHECKING:
    from holdfast.cli.commands.doctor_checks import Diagnosis
    from holdfast.core.errors import Trouble
    from holdfast.settings import Settings
    from holdfast.tools.registry import Registry


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    context: typer.Context,
    release: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Let an execution that was set aside back in, if it is whole again.",
            autocompletion=completions.set_aside,
            callback=not_empty,
        ),
    ] = "",
    as_json: AsJson = False,
) -> int:
    """Find and name what is wrong: folder, disk, store, modules, tools, executions. Exit 0 when all is well.

    An execution whose journal is damaged is set aside, so that the others go on.

    \b
    Example:
      holdfast doctor
      holdfast doctor --release 01a1e4b3
    """
    settings = settings_of(context)
    if release:
        return wait_for(_release(settings, release))
    findings = wait_for(examine(settings))
    ill = any(finding.severity != "tidied" for finding in findings)
    if as_json:
        print(json_line({"ok": not ill, "findings": [finding._asdict() for finding in findings]}))
    else:
        print("\n".join(_report(settings, findings, ill)))
    return 1 if ill else 0


def _report(settings: Settings, findings: list[Diagnosis], ill: bool) -> list[str]:
    lines = [
        f"store: {settings.store_shown}",
        f"settings: {settings.config_file or 'defaults, no holdfast.toml found'}",
    ]
    colours = {"problem": "red", "warning": "yellow", "tidied": "dim"}
    for finding in findings:
        heading = paint(f"{finding.severity}: {finding.name}: ", colours[finding.severity])
        lines.append(f"{heading}{finding.what}. {finding.meaning}. {pastable(finding.todo)}.")
    return lines if ill else [*lines, "all is well"]


async def examine(settings: Settings) -> list[Diagnosis]:
    from holdfast.cli.commands import doctor_checks

    findings = [*doctor_checks.folder(settings), *doctor_checks.disk(settings)]
    registry, of_modules = load_modules(settings)
    findings += [*of_modules, *_unmet(registry), *_families(registry)]
    findings += [*_channels(settings, registry), *_secrets(settings)]
    if not doctor_checks.is_there(settings):
        return findings  # nothing was ever run here, which is no illness
    try:
        store = doctor_checks.open_store(settings)
    except HoldfastError as error:
        return [*findings, doctor_checks.store_trouble(error)]
    try:
        findings += await doctor_checks.whole_store(store, registry, liveness_of(settings, store), settings.data_folder)
    except HoldfastError as error:
        findings.append(doctor_checks.store_trouble(error))
    finally:
        await store.close()
    return findings


def load_modules(settings: Settings) -> tuple[Registry, list[Diagnosis]]:
    from holdfast.cli.commands.doctor_checks import Diagnosis

    registry, findings = builtin_registry(settings), list[Diagnosis]()
    for module in settings.modules:
        try:
            registry.load_module(module, settings.root)
        except SettingsInvalid as error:
            meaning = "Programs that use its tools or functions cannot run here"
            findings.append(
                Diagnosis("problem", "module", str(error), meaning, "Correct it, or take it out of `modules`")
            )
    return registry, findings


def _unmet(registry: Registry) -> list[Diagnosis]:
    from holdfast.cli.commands.doctor_checks import Diagnosis

    return [
        Diagnosis("warning", "tool", trouble.what, f"Plans that use {name} will not start", _todo(trouble))
        for name in sorted(registry.names())
        for trouble in registry.get(name).missing()
    ]


def _families(registry: Registry) -> list[Diagnosis]:
    """What the settings ask for and cannot be had, and fallbacks that nobody can fall back on."""
    from holdfast.cli.commands.doctor_checks import Diagnosis
    from holdfast.tools.secrets.redaction import CREDENTIAL_CHARS_MIN, too_short

    found = [
        Diagnosis("warning", "settings", trouble.what, "Steps that need it will fail", _todo(trouble))
        for family in registry.families()
        for trouble in family.troubles()
    ]
    meaning = "Plans that use the tool are refused"
    todo = "Correct `fallbacks` where the tool is declared"
    found += [Diagnosis("warning", "fallback", said, meaning, todo) for said in registry.troubles()]
    what = f"the password of the channel {{}} has less than {CREDENTIAL_CHARS_MIN} characters"
    meaning = "It is not masked where it appears, because every word that holds it would be"
    todo = "Take a longer one, or declare it under [secrets]"
    return found + [Diagnosis("warning", "secret", what.format(name), meaning, todo) for name in sorted(too_short)]


def _channels(settings: Settings, registry: Registry) -> list[Diagnosis]:
    from holdfast.app import channel_troubles
    from holdfast.cli.commands.doctor_checks import Diagnosis

    todo = "Correct `channels` under [notify]"
    return [
        Diagnosis("problem", "notices", what, "Nothing can be started or resumed", todo)
        for what in channel_troubles(settings, registry)
    ]


def _secrets(settings: Settings) -> list[Diagnosis]:
    """Which of the declared secrets cannot be had, and which others might read. Asks no command."""
    from holdfast.app import vault_of
    from holdfast.cli.commands.doctor_checks import Diagnosis

    vault = vault_of(settings)
    missing = [(name, trouble) for name in sorted(vault.names) if (trouble := vault.missing(name))]
    findings = [
        Diagnosis("warning", "secret", lack.what, f"Plans that use {name} will not start", _todo(lack, "Put it there"))
        for name, lack in missing
    ]
    for warning in vault.warnings():
        findings.append(
            Diagnosis("warning", "secret", warning.what, "All who can read it have the secret", _todo(warning))
        )
    return findings


def _todo(trouble: Trouble, otherwise: str = "Correct the settings") -> str:
    """As a sentence of its own."""
    return f"{trouble.todo[:1].upper()}{trouble.todo[1:]}" or otherwise


async def _release(settings: Settings, fragment: str) -> int:
    from holdfast.cli.commands import doctor_checks
    from holdfast.journal.inspection import verify_execution
    from holdfast.journal.store import Quarantine

    existing_store(settings)
    store = doctor_checks.open_store(settings)
    try:
        found = await store.find(fragment)
        if len(found) != 1:
            raise NotFound(f'"{fragment}" fits {len(found) or "no"} executions; give an id as `holdfast list` shows it')
        head = await store.head(found[0])
        if not head.quarantined:
            print(f"unchanged: execution {head.id} is not set aside")
            return 0
        try:
            await verify_execution(store, head)
        except StoreCorrupted as error:
            raise StoreCorrupted(f"execution {head.id} is still damaged: {error}; it stays set aside") from error
        await store.commit([Quarantine(execution_id=head.id, why="")])
        print(f"execution {head.id} is whole again and was let back in; go on with: {holdfast()} resume {head.id}")
        return 0
    finally:
        await store.close()
