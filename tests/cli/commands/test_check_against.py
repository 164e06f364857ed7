"""`holdfast check --against`, and a resume that is refused: a real project, real processes, changed code."""

from __future__ import annotations

import json

from cli.workshop import Workshop

OLD = """
import holdfast

@holdfast.tool(effect="once")
async def charge(amount: int) -> str:
    return "charged"

@holdfast.tool(effect="once")
async def bill(amount: int) -> str:
    return "billed"

@holdfast.function
async def selling(ctx):
    await ctx.call(charge, 3)
    return await ctx.ask("paid?", name="paid")
"""
NEW = OLD.replace("ctx.call(charge, 3)", "ctx.call(bill, 3)")
PATCHED = OLD.replace("ctx.call(charge, 3)", 'ctx.call(bill if ctx.patched("bill") else charge, 3)')


def with_code(shop: Workshop, code: str) -> None:
    (shop.folder / "selling.py").write_text(code)
    (shop.folder / "holdfast.toml").write_text('modules = ["selling.py"]\n')


def paused(shop: Workshop) -> str:
    with_code(shop, OLD)
    shop.run("run", "selling", "--no-ask", code=3)
    shop.run("pause", "@last")
    return shop.newest()["id"]


def test_check_against_says_whether_an_execution_would_go_on(shop: Workshop) -> None:
    execution_id = paused(shop)
    before = shop.run("events", "@last", "--json").out
    told = shop.run("check", "--against", "@last").out
    assert told == f"{execution_id} selling goes on with paid\n1 execution checked, 0 would not go on\n"
    with_code(shop, NEW)
    told = shop.run("check", "--against", "unfinished", code=1).out
    assert told == (
        f"{execution_id} selling would not go on:\n"
        "  step charge was begun, and the code does not ask for it any more; nothing was changed\n"
        '    recorded:  charge {"amount":3}\n'
        '    attempted: bill {"amount":3}\n'
        '  put the code back, keep both versions with `if ctx.patched("…")`, or start a new execution\n'
        "1 execution checked, 1 would not go on\n"
    )
    found = json.loads(shop.run("check", "--against", "@last", "--json", code=1).out)
    assert found["ok"] is False
    assert [one["id"] for one in found["executions"]] == [execution_id]
    with_code(shop, PATCHED)
    assert "goes on with paid" in shop.run("check", "--against", "@last").out
    assert shop.run("events", "@last", "--json").out == before


def test_check_against_goes_without_plans(shop: Workshop) -> None:
    with_code(shop, OLD)
    said = shop.run("check", "a.yaml", "--against", "@last", code=2).err
    assert "--against checks executions; say it without plans and without --strict" in said


def test_resume_with_changed_code_is_refused_and_changes_nothing(shop: Workshop) -> None:
    paused(shop)
    before = shop.run("events", "@last", "--json").out
    with_code(shop, NEW)
    said = shop.run("resume", "@last", code=2).err
    assert "step charge was begun, and the code does not ask for it any more; nothing was changed" in said
    assert shop.run("events", "@last", "--json").out == before
    assert shop.newest()["status"] == "paused"


def test_resume_of_a_completed_execution_says_so_and_exits_with_0(shop: Workshop) -> None:
    with_code(shop, OLD)
    shop.run("run", "selling", "--no-ask", code=3)
    shop.run("answer", "@last", "paid", "7")
    shop.run("resume", "@last")
    execution_id = shop.newest()["id"]
    assert shop.run("resume", "@last").out == f"{execution_id}: it is completed already\n"
    assert json.loads(shop.run("resume", "@last", "--json").out) == {
        "id": execution_id, "status": "completed", "text": "it is completed already",
    }  # fmt: skip
