"""Random programs: plans with graphs, items, retries, approvals, timers, events and children; and functions that
interpret a random script, so that one registered function stands for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, cast

from holdfast.core.errors import StepFailed
from holdfast.core.policy import Retry, StepPolicy
from holdfast.programs.context import Context
from holdfast.programs.function import Function, function_of

EVENTS = ("tide", "wind")
TOOLS = (
    "look", "look", "put", "put", "pay", "pay", "pay", "pay_checked", "pay_checked", "pay_bravely", "pay_or_fail",
    "thrifty",
)  # fmt: skip
TIME_LIMIT_S = 4  # every tool may hang, so every step has a limit
LIMITED = StepPolicy(timeout_s=TIME_LIMIT_S)
DEPLOYED_S = 8.0  # from then on every process has the new code
See = Callable[[str, str, Any], None]
Script = list[list[Any]]


# ---- plans -----------------------------------------------------------------------------------------------------


def random_plan(rng: Random, name: str) -> dict[str, Any]:
    plan: dict[str, Any] = {"name": name, "steps": _steps(rng, rng.randint(1, 6), "s")}
    if rng.random() < 0.2:
        plan["finally"] = [{"id": "tidy", "tool": "put", "timeout": TIME_LIMIT_S}]
    if rng.random() < 0.2:
        plan["on_failure"] = [{"id": "mourn", "tool": "look", "timeout": TIME_LIMIT_S, "critical": False}]
    if rng.random() < 0.3:
        plan["concurrency"] = {"key": "narrow", "limit": 1}
    if rng.random() < 0.15:
        plan["pause_timeout"] = 8
        plan["on_pause_timeout"] = rng.choice(("stop", "resume"))
        if plan["on_pause_timeout"] == "stop":  # so that there is something to be run before the end
            plan.setdefault("finally", [{"id": "tidy", "tool": "put", "timeout": TIME_LIMIT_S}])
    if budget := random_budget(plan):
        plan["budget"] = budget
    return plan


def random_budget(program: Any) -> dict[str, Any] | None:
    """What a program may spend, if anything limits it; drawn from the program, so that other draws stay the same."""
    rng = Random(f"budget of {program}")
    return {"usd": rng.choice((0.03, 0.1, 0.4)), "warn_at": rng.choice((0.5, 0.8))} if rng.random() < 0.4 else None


def _steps(rng: Random, count: int, prefix: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for number in range(count):
        step_id = f"{prefix}{number}"
        step = {"id": step_id, **_kind(rng, step_id)}
        if "for_each" in step and rng.random() < 0.4:
            listing = {"id": f"{step_id}l", "tool": "listing", "timeout": TIME_LIMIT_S}
            steps.append(listing)
            step |= {"for_each": f"${{{{ steps.{listing['id']}.output }}}}", "needs": [listing["id"]]}
        elif rng.random() < 0.5 and steps:
            step["needs"] = sorted({rng.choice(steps)["id"] for _ in range(rng.randint(1, 2))})
        elif rng.random() < 0.3:
            step["needs"] = []
        if rng.random() < 0.2:
            step["critical"] = False
        steps.append(step)
    return steps


def _kind(rng: Random, step_id: str) -> dict[str, Any]:
    depth = step_id.count("_")
    kind = rng.choices(
        ("tool", "each", "timer", "event", "approval", "milestone", "child"),
        (50, 10, 10, 8, 6, 8 if depth < 2 else 0, 8),
    )[0]
    match kind:
        case "each":
            items: Any = rng.choice(([1, 2, 3], [], list(range(6))))
            return {**_tool(rng), "for_each": items, "max_parallel": rng.randint(1, 3)}
        case "timer":
            return {"wait": rng.choice((0.002, 0.5, 3, 7))}
        case "event":
            limit = {"timeout": rng.choice((2, 6))} if rng.random() < 0.6 else {}
            return {"wait": {"event": rng.choice(EVENTS), **limit}}
        case "approval":
            return {"approval": {"message": "go on?", "expires": rng.choice((5, 1000))}}
        case "milestone":
            return {"steps": _steps(rng, rng.randint(1, 3), f"{step_id}_")}
        case "child":
            return {"start": "play", "with": {"script": random_script(rng, depth + 1)}}
        case _:
            return _tool(rng)


def _tool(rng: Random) -> dict[str, Any]:
    step: dict[str, Any] = {"tool": rng.choice(TOOLS), "timeout": TIME_LIMIT_S}
    if rng.random() < 0.3:
        step["with"] = {"value": rng.randint(0, 9)}
    if rng.random() < 0.1:
        step["tool"] = "ask_first"
    if rng.random() < 0.3:
        step["retry"] = {"max": rng.randint(1, 3), "first": rng.choice((0.01, 0.5)), "max_delay": 2}
    if rng.random() < 0.5:
        step["fallback"] = [{"tool": rng.choice(TOOLS)} for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.6:
        step["on_error"] = rng.choice(("ask", "ask", "fail"))
    if rng.random() < 0.1:
        step["approval"] = {"message": "really?", "expires": rng.choice((4, 1000))}
    if step["tool"] == "look" and rng.random() < 0.2:
        step["cache"] = 30
    return step


def varied(program: Any) -> Any:
    """The same program; but some of its tools cost nothing, and some fallbacks have an input of their own, or want a
    yes to it. Drawn from it, as budgets are.
    """
    return _varied(Random(f"variety of {program}"), program)


def _varied(rng: Random, part: Any) -> Any:
    match part:
        case {"fallback": fallbacks, **others}:
            return {**_varied(rng, others), "fallback": [_fallback(rng, _varied(rng, one)) for one in fallbacks]}
        case {"tool": "put", **others} if rng.random() < 0.4:
            return {**_varied(rng, others), "tool": "jot"}
        case ["call" | "behind" as how, "put", *others] if rng.random() < 0.4:
            return [how, "jot", *others]
        case dict():
            return {name: _varied(rng, value) for name, value in cast("dict[str, Any]", part).items()}
        case list():
            return [_varied(rng, value) for value in cast("list[Any]", part)]
        case _:
            return part


def _fallback(rng: Random, fallback: dict[str, Any]) -> dict[str, Any]:
    if rng.random() < 0.3:
        return fallback
    tool = "ask_first" if rng.random() < 0.5 else fallback["tool"]
    return {"tool": tool, "with": {"value": rng.randint(10, 19)}}


# ---- functions -------------------------------------------------------------------------------------------------


def random_script(rng: Random, depth: int = 0) -> Script:
    return [_operation(rng, depth) for _ in range(rng.randint(1, 5))]


def _operation(rng: Random, depth: int) -> list[Any]:
    kinds = ("call", "sleep", "wait", "ask", "now", "random", "gather", "child", "try", "plan")
    weights = (50, 8, 5, 5, 5, 5, 8 * (depth < 2), 5 * (depth < 2), 8 * (depth < 3), 3 * (depth < 1))
    kind = rng.choices(kinds, weights)[0]
    match kind:
        case "call":
            return [kind, rng.choice(TOOLS), rng.randint(0, 2), rng.choice(("ask", "fail"))]
        case "sleep":
            return [kind, rng.choice((0.002, 1, 5))]
        case "wait":
            return [kind, rng.choice(EVENTS), rng.choice((1, 5))]
        case "gather":
            return [kind, *(random_script(rng, depth + 1) for _ in range(rng.randint(2, 3)))]
        case "child" | "try":
            return [kind, random_script(rng, depth + 1)]
        case "plan":
            return [kind, random_plan(rng, "child-plan")]
        case _:
            return [kind]


def random_child(rng: Random) -> Script:
    """Something short that takes a while and leaves a trace."""
    begin = ["sleep", rng.choice((0.002, 0.5, 2, 4))]
    return [begin, ["call", rng.choice(TOOLS), 1, "fail"], ["call", rng.choice(TOOLS), 0, "fail"]]


def with_steps_left_behind(script: Script) -> Script:
    """The same script, but now and then it does not wait for what it begins; drawn from it, as budgets are."""
    rng = Random(f"left behind of {script}")
    calls = [place for place, operation in enumerate(script) if operation[0] == "call"]
    if not calls or rng.random() > 0.35:
        return script
    place = rng.choice(calls)
    return [*script[:place], ["behind", *script[place][1:]], *script[place + 1 :]]


def random_race(rng: Random) -> Script:
    """A wait and a timer, an event and a call, or whatever comes: who is first decides how it goes on; and beside it a
    handler whose work the main routine sees.
    """
    runners = [
        ["wait", rng.choice(EVENTS), rng.choice((1, 3, 5))],
        ["sleep", rng.choice((0.5, 1, 3))],
        ["call", rng.choice(TOOLS), 1, "fail"],
    ]
    rng.shuffle(runners)
    after = [["sleep", rng.choice((0.5, 2))], ["call", rng.choice(TOOLS), 0, "fail"]]
    changing = ["changing", rng.choice(("jot", "put")), rng.choice(("jot", "put"))]
    race = ["race", *runners[: rng.choice((2, 3))]]
    failing = ["try", [["gather", [["call", "pay_or_fail", 0, "fail"]], [["wait", EVENTS[0], 5]], [["sleep", 4]]]]]
    return [race, changing, failing, *after[: rng.randint(1, 2)], ["beside", [*after, ["random"]]]]


def player(see: See) -> Function[..., Any]:
    """The function `play`, as one process has it; `see` is told every outcome the program was given."""

    async def play(ctx: Context, script: list[Any]) -> list[Any]:
        return await _play(ctx, script, see)

    return function_of(play, "play")


async def _play(ctx: Context, script: Script, see: See) -> list[Any]:
    outputs: list[Any] = []
    for number, (kind, *rest) in enumerate(script):
        outputs.append(await _perform(ctx, f"{kind}{number}", kind, rest, see))
    return outputs


async def _perform(ctx: Context, name: str, kind: str, rest: list[Any], see: See) -> Any:
    match kind:
        case "behind":
            task = asyncio.ensure_future(_perform(ctx, name, "call", rest, see))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody asks for its outcome
            return None
        case "call":
            retry = Retry(max=rest[1], first_s=0.05) if rest[1] else None
            policy = StepPolicy(timeout_s=TIME_LIMIT_S, retry=retry, on_error=rest[2])
            output = await ctx.call(rest[0], name=name, policy=policy)
            see(ctx.id, f"{ctx._scope}{name}", output)  # pyright: ignore[reportPrivateUsage] -- the path, as recorded
            return output
        case "sleep":
            return await ctx.sleep(rest[0], name=name)
        case "wait":
            return await ctx.wait_for(rest[0], timeout=rest[1], name=name)
        case "ask":
            return await ctx.ask("what now?", name=name)
        case "now" | "random":
            output = round(ctx.now().timestamp() * 1e6) if kind == "now" else ctx.random()
            see(ctx.id, _numbered(ctx, kind), output)
            return output
        case "gather":
            return await ctx.gather(*(_branch(script, see) for script in rest))
        case "race" | "beside" | "changing":
            return await _SEVERAL_TASKS[kind](ctx, name, rest, see)
        case "try":
            try:
                return await _play(ctx.branch(name), rest[0], see)
            except StepFailed as error:
                return f"caught {error.path}"
        case _:
            child = await ctx.start("play" if kind == "child" else rest[0], _inputs(kind, rest), name=name)
            return await child.result()


async def _race(ctx: Context, name: str, runners: list[Any], see: See) -> list[Any]:
    """The first one wins, and what follows is named after it: another winner on a replay would be another program."""
    inner = ctx.branch(name)
    tasks = [
        asyncio.ensure_future(_perform(inner, f"{kind}{number}", kind, rest, see))
        for number, (kind, *rest) in enumerate(runners)
    ]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await asyncio.wait(tasks)
    winners = [number for number, task in enumerate(tasks) if task in done]
    for task in done:
        task.exception()
    await inner.call("jot", value=winners, name=f"won{winners[0]}", policy=LIMITED)
    return winners


async def _changing(ctx: Context, name: str, tools: list[str], see: See) -> Any:
    """The new code calls another tool under another name, where the old one has not been called."""
    is_deployed = asyncio.get_running_loop().time() > DEPLOYED_S
    version = "new" if is_deployed and ctx.patched(name) else "old"
    return await ctx.call(tools[version == "new"], name=f"{name}{version}", policy=LIMITED)


async def _beside(ctx: Context, name: str, rest: list[Any], see: See) -> list[int]:
    """A handler beside the main routine, which tells after each of its own steps how far the handler has come."""
    inner, came = ctx.branch(name), list[str]()

    async def handle() -> None:
        for number, (kind, *more) in enumerate(rest[0]):
            with suppress(StepFailed):
                await _perform(inner.branch(f"handler{number}"), f"{kind}0", kind, more, see)
            came.append(kind)

    handler = asyncio.create_task(handle())
    told: list[int] = []
    for number in range(3):
        await inner.call("jot", value=len(came), name=f"told{number}", policy=LIMITED)
        told.append(len(came))
        await inner.sleep(1, name=f"rest{number}")
    await handler
    return told


_SEVERAL_TASKS = {"race": _race, "beside": _beside, "changing": _changing}


def _numbered(ctx: Context, name: str) -> str:
    """The path of the step that was just asked for without a name."""
    path = f"{ctx._scope}{name}"  # pyright: ignore[reportPrivateUsage] -- the path, as recorded
    count = ctx._seen.get(name, 1)  # pyright: ignore[reportPrivateUsage]
    return path if count == 1 else f"{path}~{count}"


def _inputs(kind: str, rest: list[Any]) -> dict[str, Any]:
    return {"script": rest[0]} if kind == "child" else {}


def _branch(script: Script, see: See) -> Callable[[Context], Awaitable[Any]]:
    async def branch(inner: Context) -> list[Any]:
        return await _play(inner, script, see)

    return branch
