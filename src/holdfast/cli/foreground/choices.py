"""What a person can type at a prompt: the word, its first letter where that is free, or the number before it.

Also the details of a request, as text: what is approved is read as it will be written, and not as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from holdfast.cli.output.format import distance, strip_control_chars

_MORE = (("details", "d"), ("later", "l"))


class Choice(NamedTuple):
    """`word` is what it means; `shown` how the prompt lists it."""

    word: str
    names: tuple[str, ...]
    shown: str


def choices_at_prompt(request: Mapping[str, Any]) -> list[Choice]:
    """Numbered from 1. A budget is answered with a number of dollars, so its words have none."""
    match request["kind"]:
        case "approval":
            words = [("yes", "y", "approve"), ("no", "n", "deny"), *_MORE]
        case "question":
            return _of_question(request["schema"] or {})
        case _:
            words = [*((remedy,) for remedy in request["remedies"]), *_MORE]
    numbered = request["kind"] != "budget"
    found: list[Choice] = []
    for number, (word, *names) in enumerate(words, 1):
        text = f"[{word[0]}]{word[1:]}" if word[0] in names else word
        if word == "done" and request.get("wants_output"):
            text = "done OUTPUT"
        own = (str(number),) if numbered else ()
        found.append(Choice(word, (word, *names, *own), f"{number} {text}" if numbered else text))
    return found


def _of_question(schema: Mapping[str, Any]) -> list[Choice]:
    """The choices of a question. A number that is itself a choice means that choice."""
    choices = cast("list[Any]", schema.get("choices") or []) if schema.get("type") != "list" else []
    texts = [choice if isinstance(choice, str) else msgspec.json.encode(choice).decode() for choice in choices]
    return [
        Choice(text, (text,) if str(number) in texts else (text, str(number)), strip_control_chars(f"{number} {text}"))
        for number, text in enumerate(texts, 1)
    ]


def chosen(choices: Sequence[Choice], typed: str) -> str:
    """The word that was meant, with what was typed behind it; what is no choice stays as it is."""
    first, _, rest = typed.partition(" ")
    for choice in choices:
        if typed in choice.names or typed.lower() in choice.names:
            return choice.word
        if choice.word == "done" and first.lower() in choice.names and rest.strip():
            return f"done {rest.strip()}"
    return typed


def details_lines(request: Mapping[str, Any]) -> list[str]:
    """All that is known of a request. A text stands below its name, line by line, whole."""
    shown = strip_control_chars(dict(request))
    lines = [f"  tool: {shown['tool']}"] if shown["tool"] else []
    arguments: Any = shown["arguments"]
    if isinstance(arguments, dict):
        for name, given in cast("dict[str, Any]", arguments).items():
            lines += _argument(str(name), given)
    failure: dict[str, Any] = shown.get("failure") or {}
    if failure:
        lines += _argument("what happened", failure["message"])
    affected: list[str] = shown.get("affects") or failure.get("affects") or []
    lines += [f"  what depends on it: {', '.join(affected)}"] if affected else []
    lines += [f"  expires {distance(shown['expires_at'])}"] if shown["expires_at"] else []
    return lines or ["  nothing more is known"]


def _argument(name: str, given: Any) -> list[str]:
    if isinstance(given, str):
        if "\n" not in given:
            return [f"  {name}: {given}"]
        return [f"  {name}:", *(f"    {line}" for line in given.splitlines())]
    if isinstance(given, dict | list) and given:
        text = msgspec.json.format(msgspec.json.encode(given), indent=2).decode()
        return [f"  {name}:", *(f"    {line}" for line in text.splitlines())]
    return [f"  {name}: {msgspec.json.encode(given).decode()}"]
