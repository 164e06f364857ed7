"""Why an execution is held: codes that are stored and compared, and the sentences that people are told.

A person's own words are stored as they are. Everything that begins with `holdfast:` is a code, with its data behind it.
"""

# old sentences: those of our own that are in journals

from __future__ import annotations

_OURS = "holdfast:"
IMPORTED = "holdfast:imported"
EXPORTED = "holdfast:exported"
RESTORED = "holdfast:restored"
PERSON = "holdfast:person"
HANDED_IN = "holdfast:handed_in"  # with `hold=True`; it is not stored, the status says it

_SENTENCES = {
    IMPORTED: "it was imported, and the original may still run elsewhere",
    EXPORTED: "it was exported, and goes on elsewhere",
    RESTORED: "restored from a backup",
    PERSON: "held by a person",
    HANDED_IN: "handed in without starting it",
}

# What was stored before there were codes, word for word, as far as anything is decided by it. Never edit these.
_OLD_TEXTS = {"it was imported, and the original may still run elsewhere": IMPORTED}


def restored(made_at: str) -> str:
    """The code for what comes from a backup, with the time at which that was made."""
    return f"{RESTORED}:{made_at}"


def by_person(words: str) -> str:
    """What is stored when a person holds it; the words can never be taken for a code."""
    if not words:
        return PERSON
    return f"{PERSON}:{words}" if words.startswith(_OURS) else words


def is_imported(stored: str) -> bool:
    return _OLD_TEXTS.get(stored, stored) == IMPORTED


def why_held(stored: str) -> str:
    """The sentence for people; "" if it is not held. What is no code is a person's words, or an old text."""
    code, data = _parts(stored)
    match code:
        case "":
            return stored
        case _ if code == RESTORED and data:
            return f"{_SENTENCES[RESTORED]} made {data}"
        case _ if code == PERSON and data:
            return data
        case _:
            return _SENTENCES[code]


def _parts(stored: str) -> tuple[str, str]:
    """The code and its data; two times "" if it is none that is known."""
    if not stored.startswith(_OURS):
        return "", ""
    name, _, data = stored.removeprefix(_OURS).partition(":")
    code = _OURS + name
    return (code, data) if code in _SENTENCES else ("", "")
