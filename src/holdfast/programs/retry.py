"""What a retry runs in the place of a recorded task: another plan, other inputs, and all else as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import UsageError
from holdfast.programs.prepare import Preparer, Subject


def replaced(
    preparer: Preparer, created: ev.TaskCreated, program: Subject | None, inputs: Mapping[str, Any]
) -> ev.TaskCreated:
    """The task with another program, or with its own if none is given, and with `inputs` over those it had."""
    before = msgspec.json.decode(created.inputs)
    subject: Subject = program if program is not None else _subject_of(created)
    given = {"owner": created.owner, "labels": created.labels, "title": _title_given(preparer, created, before)}
    new = preparer.prepare(subject, {**before, **inputs}, **given)
    if program is None or new.budget is None:  # another plan is no reason to forget a limit
        new = msgspec.structs.replace(new, budget=created.budget)
    return msgspec.structs.replace(new, resources=created.resources, resources_total=created.resources_total)


def _title_given(preparer: Preparer, created: ev.TaskCreated, inputs: Mapping[str, Any]) -> str:
    """The title, if a person gave it; the program's own is made anew from its new inputs."""
    try:
        own = preparer.prepare(_subject_of(created), inputs).title
    except UsageError:  # a plan that has to be corrected cannot say what it would call itself
        return ""
    return "" if created.title == own else created.title


def _subject_of(created: ev.TaskCreated) -> Subject:
    if created.program.kind == "plan":
        return msgspec.json.decode(created.program.source)
    return created.program.name
