"""`holdfast tools test`: one tool, called directly and outside any execution. Nothing is journaled."""

from __future__ import annotations

import json
import sys
import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.cli.common import completions
from holdfast.cli.common.context import settings_of, wait_for
from holdfast.cli.common.options import AsJson, pairs, read_inputs_file
from holdfast.cli.output.format import duration, is_terminal, json_line, strip_control_chars, value
from holdfast.core.errors import InputInvalid, InvalidCall, Misconfigured, Refused

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.tools.call import Call
    from holdfast.tools.tool import Tool

Given = Annotated[
    list[str] | None, typer.Option("--input", "-i", metavar="K=V", help="An argument of the tool. Repeatable.")
]


def try_tool(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool to call.", autocompletion=completions.tools)],
    given: Given = None,
    inputs_file: Annotated[str, typer.Option("--inputs", metavar="FILE", help="Arguments as a JSON object.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Call it without asking, though it has an effect.")] = False,
    as_json: AsJson = False,
) -> int:
    """Call one tool now, outside any execution, and show what becomes of it.

    An argument may name a secret: ${{ secrets.NAME }}.

    A tool whose effect is `once`, or that costs money, is only called after a yes. Exit codes: 0 it answered, 1 it
    failed, 2 wrong use.

    \b
    Example:
      holdfast tools test files.list -i path=.
      holdfast tools test http.get -i url=https://example.org --json
    """
    settings = settings_of(context)
    said: dict[str, Any] = {**(read_inputs_file(inputs_file) if inputs_file else {}), **pairs(given, "-i")}
    return wait_for(_test(settings, name, said, set(pairs(given, "-i")), yes=yes, as_json=as_json))


async def _test(
    settings: Settings, name: str, said: dict[str, Any], texts: set[str], *, yes: bool, as_json: bool
) -> int:
    from holdfast.app import registry_of, vault_of
    from holdfast.core.secret_refs import put_in, typed_references
    from holdfast.tools.secrets.redaction import masks

    vault = vault_of(settings)
    vault.cover()  # as an engine does: the tool may come upon a secret that nobody has given it
    registry = registry_of(settings)
    try:
        await registry.open()
        tool = registry.get(name)
        schema = tool.schema()["properties"]
        arguments = {key: _typed(schema.get(key, {}), item) if key in texts else item for key, item in said.items()}
        arguments, names = typed_references(arguments)
        try:
            filled = put_in(arguments, await vault.fetch(sorted(names)))
            validated = tool.validate(filled)
        except (InvalidCall, Misconfigured) as error:
            raise InputInvalid(masks.text(str(error))) from None  # whoever typed it is wrong, and not the tool
        shown = dict(tool.signature.soften(arguments))
        estimate, by = await _estimated(tool, validated, settings)
        if (tool.effect == "once" or tool.cost_micros) and not yes:
            _ask(tool, f"{name} with {value(shown)}")
        if not as_json:
            print(f"calls {name} with {value(shown)}")
            if estimate is not None:
                print(f"takes about {duration(estimate)}, {_BY_WHOM[by]}")
        outcome = await _call(tool, filled, validated, settings)
    finally:
        await registry.close()
    given = {"tool": name, "arguments": json.loads(_encoded(shown))}
    wired = {**given, "estimate_s": estimate, "estimate_by": by or None, **outcome}
    print(json_line(wired) if as_json else "\n".join(_lines(wired)))
    return 0 if outcome["failure"] is None else 1


_BY_WHOM = {"tool": "it says", "history": "as its calls in the newest executions did"}


async def _estimated(
    tool: Tool[..., Any], validated: dict[str, Any], settings: Settings
) -> tuple[float | None, Literal["tool", "history", ""]]:
    """How long it will take and by whose word: the tool's own, or what its calls took so far; None if nobody knows."""
    from holdfast.cli.commands.tools_status import known_of

    said = await tool.run_estimate(validated)
    if said is not None:
        return said, "tool"
    figures = (await known_of(settings)).figures.get(tool.name)
    seen = figures.quantile_s(0.5) if figures is not None else None
    return (seen, "history") if seen is not None else (None, "")


def _typed(schema: dict[str, Any], text: str) -> Any:
    """A text as what its parameter takes: as it is, or as JSON; what fits neither is for the tool to refuse."""
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _ask(tool: Tool[..., Any], meant: str) -> None:
    what = "it may have an effect that cannot be taken back" if tool.effect == "once" else "it costs money"
    if not (is_terminal(sys.stdin) and is_terminal()):
        raise Refused(f"{tool.name} was not called: {what}; add --yes if that is meant")
    print(f"{meant}: {what}. Call it? [y]es, [n]o: ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused(f"{tool.name} was not called")


async def _call(
    tool: Tool[..., Any], given: dict[str, Any], validated: dict[str, Any], settings: Settings
) -> dict[str, Any]:
    import asyncio
    import dataclasses

    from holdfast.core.failure import describe
    from holdfast.core.plan.resources import resources_of
    from holdfast.core.policy import STEP_TIMEOUT_S
    from holdfast.core.resources import Resources
    from holdfast.engine.step.invoke import LATE_S, Patience
    from holdfast.tools.call import Call
    from holdfast.tools.isolated.parent import run_isolated
    from holdfast.tools.runtime.output_capture import cover, listening
    from holdfast.tools.runtime.user_traceback import place_of_bug
    from holdfast.tools.secrets.redaction import masks

    call = Call("", "test", 1, f"test:{uuid.uuid4()}", settings.root, host=_Aloud())
    call.started_as = tool.effect  # by which it was decided whether to ask for a yes
    call.resources = (tool.resources or Resources()).over(resources_of(dataclasses.asdict(settings.resources)))
    called = run_isolated(tool, given, call) if tool.isolated else tool.invoke(validated, call)
    began = time.monotonic()
    output, failure = None, None
    try:
        with listening():
            cover()
            patience = Patience(tool.timeout_s or STEP_TIMEOUT_S, tool.idle_timeout_s)
            work = asyncio.ensure_future(called)
            if over := await patience.wait(asyncio.get_running_loop(), work, call):
                work.cancel()
                await asyncio.wait({work}, timeout=LATE_S)
                raise patience.lost(tool, over)
            output = json.loads(masks.json(tool.output(work.result())))
    except Exception as error:
        described = masks.failure(describe(error))
        failure = {
            "category": described.category,
            "message": described.message or type(error).__name__,
            "error": described.error,
            "happened": described.happened if tool.effect != "read" else "nothing",
            "place": place_of_bug(error),
        }
    return {"output": output, "failure": failure, "duration_s": time.monotonic() - began}


class _Aloud:
    """What the tool says goes to stderr, beside the answer."""

    async def note(self, call: Call, data: bytes) -> None:
        _aside(f"notes {data.decode()}")

    def say(self, call: Call, content: str, role: str, streaming: bool) -> None:
        _aside(content)

    def progress(self, call: Call, percent: float, text: str) -> None:
        _aside(f"{percent:.0f}% {text}".rstrip())

    def check_open(self, call: Call, what: str) -> None: ...

    def hear(self, call: Call, stream: str, text: str) -> None: ...


def _aside(text: str) -> None:
    from holdfast.tools.secrets.redaction import masks

    print(strip_control_chars(masks.text(text)), file=sys.stderr, flush=True)


_WORDS = {
    "nothing": "nothing happened",
    "known": "what happened is known",
    "unknown": "it may or may not have happened",
}


def _lines(wired: dict[str, Any]) -> list[str]:
    took = duration(wired["duration_s"])
    failure = wired["failure"]
    if failure is None:
        return [f"answered in {took}:", json.dumps(strip_control_chars(wired["output"]), indent=2, ensure_ascii=False)]
    happened = _WORDS[failure["happened"]]
    where = [f"where: {failure['place']}"] if failure["place"] else []
    return [
        f"failed after {took}: {strip_control_chars(failure['message'])}",
        *where,
        f"category: {failure['category']} ({happened})",
    ]


def _encoded(arguments: dict[str, Any]) -> bytes:
    from holdfast.tools.json_values import encode

    return encode(arguments, "the arguments")
