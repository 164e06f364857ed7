"""How failures, counts and very many children are put into words, where no process is needed to see it."""

from __future__ import annotations

from typing import Any

from cli.workshop import Workshop
from holdfast.cli.output.event_lines import failure_lines, request_lines
from holdfast.cli.output.show_page import _children  # pyright: ignore[reportPrivateUsage]
from holdfast.cli.output.step_tree import fold_items, tree


def child(number: int, status: str) -> dict[str, Any]:
    return {"path": f"c{number}", "id": f"id-{number}", "status": status, "requests": []}


def test_several_mistakes_are_shown_one_per_line() -> None:
    message = "work.pair: 2 arguments are wrong\n  left: expected a number\n  right: expected a number"
    failure = {"message": message, "category": "logic", "affects": []}
    said = failure_lines({"id": "x", "kind": "function", "failed_step": "add", "failure": failure})
    assert said[:3] == [
        "what happened: work.pair: 2 arguments are wrong at step add (logic)",
        "  left: expected a number",
        "  right: expected a number",
    ]
    request = {
        "path": "add", "kind": "correction", "message": message, "tool": "", "expires_at": None, "remedies": ["skip"],
    }  # fmt: skip
    assert request_lines(request, "x")[:3] == [
        "add asks for a correction: work.pair: 2 arguments are wrong",
        "  left: expected a number",
        "  right: expected a number",
    ]


def test_very_many_children_are_counted_and_those_amiss_are_shown() -> None:
    children = [child(n, "completed") for n in range(20)]
    assert len(_children(children, everything=False)) == 20
    children += [child(n, "failed") for n in range(20, 32)]
    first, *others = _children(children, everything=False)
    assert first == "  … 32 children: 20 completed, 12 failed; --all shows every one"
    assert others == [f"  c{n}  id-{n}  failed" for n in range(20, 30)]
    assert len(_children(children, everything=True)) == 32


def test_only_so_many_items_that_are_amiss_are_shown() -> None:
    kinds = {"each": "for_each", **{f"each[{n}]": "tool" for n in range(40)}}
    steps = {path: {"status": "failed", "kind": kind} for path, kind in kinds.items()}
    (_, outer), (_, counted), *items = fold_items(list(tree(steps)), steps)
    assert (outer, counted) == ("each", {"failed": 40})
    assert items == [(1, f"each[{n}]") for n in range(10)]


def test_what_is_not_ours_cannot_command_the_terminal(shop: Workshop) -> None:
    shop.run("run", "two.yaml", "--title", "gone \x1b[2J\x9b1m and \x07 back")
    for words in (["list"], ["show", "@last"], ["history"]):
        page = shop.run(*words).out
        assert "gone �[2J�1m and � back" in page
        assert "\x1b" not in page
    assert shop.run("list", "--json").json[0]["title"] == "gone \x1b[2J\x9b1m and \x07 back"


def test_nothing_is_overwritten_by_a_slip_of_the_pen(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    plan = (shop.folder / "two.yaml").read_bytes()
    for words in (["export", "@last", "-o", "two.yaml"], ["schema", "-o", "two.yaml"]):
        assert "two.yaml exists; name another file, or replace it with --force" in shop.run(*words, code=2).err
    assert (shop.folder / "two.yaml").read_bytes() == plan
    shop.run("export", "@last", "-o", "there.json")
    shop.run("export", "@last", "-o", "there.json", "--force")


def test_card_of_a_request_is_the_same_in_show_and_inbox_and_says_what_hangs_on_it(shop: Workshop) -> None:
    shop.write(
        "hang.yaml",
        "name: hang\nsteps:\n  - {id: odd, tool: work.even, with: {number: 3}}\n  - {id: then, tool: work.do}\n",
    )
    shop.run("run", "hang.yaml", code=3)
    [asked] = shop.run("inbox", "--json").json
    [shown] = shop.run("show", "@last", "--json").json["requests"]
    assert asked["card"] == shown["card"]
    card = shown["card"]
    assert (card["kind"], card["step"], card["category"], card["affects"]) == ("correction", "odd", "logic", ["then"])
    assert {
        "name": "skip",
        "command": f"holdfast resolve {asked['execution_id']} odd --skip",
        "meaning": "go on without it",
    } in card["choices"]
    page = shop.run("show", "@last").out
    assert (
        "what is known: the arguments or the code are wrong; the same again would fail again; nothing was done (logic)"
        in page
    )
    assert "what hangs on it: then" in page
    shop.run("resolve", "@last", "odd", "--fail", code=None)
    shop.run("resume", "@last", code=None)
    failed = shop.run("show", "@last", "--json").json
    assert failed["card"]["choices"][0]["command"] == f"holdfast retry {failed['id']}"
    assert failed["card"]["affects"] == ["then"]
