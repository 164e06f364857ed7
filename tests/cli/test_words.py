"""How failures, counts and very many children are put into words, where no process is needed to see it."""

from __future__ import annotations

from typing import Any

from holdfast.cli.showing import _children  # pyright: ignore[reportPrivateUsage]
from holdfast.cli.story import failure_lines, request_lines
from holdfast.cli.tree import fold_items, tree


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
