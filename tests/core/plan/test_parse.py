"""Reading plans: what they may say, and every mistake with its place."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from core.plan.plans import CEL, extend, mistakes, plan, read, tool
from holdfast.core.budget import Budget
from holdfast.core.errors import PlanInvalid
from holdfast.core.inputs import InputSpec
from holdfast.core.plan.model import Plan
from holdfast.core.plan.parse import read_plan

FULL: dict[str, Any] = {
    "name": "report",
    "title": "Report on ${{ inputs.topic }}",
    "labels": {"team": "sea", "topic": "${{ inputs.topic }}", "level": 3},
    "inputs": {"topic": "string", "pages": {"type": "integer", "default": 3, "description": "how many"}},
    "steps": [
        tool(),
        {"id": "write", "tool": "files.write", "with": {"path": "a", "text": "${{ steps.search.output }}"}},
    ],
    "on_failure": [{"id": "tell", "tool": "http.get", "with": {"url": "${{ failure.message + steps.write.status }}"}}],
    "finally": [{"id": "tidy", "tool": "http.get"}, {"id": "close", "wait": "1s"}],
    "output": "${{ steps.write.output }}",
    "concurrency": {"key": "reports-${{ inputs.topic }}", "limit": 2},
    "pause_timeout": "2d",
    "on_pause_timeout": "resume",
}


def test_a_full_plan_is_read_whole():
    found = read(FULL)
    values = {"inputs": {"topic": "tides", "pages": 3}}
    assert (found.name, found.title.render(values)) == ("report", "Report on tides")
    assert {key: label.render(values) for key, label in found.labels.items()} == {
        "team": "sea",
        "topic": "tides",
        "level": 3,
    }
    assert found.inputs["pages"] == InputSpec(type="integer", required=False, default=3, description="how many")
    assert [step.needs for step in found.steps] == [(), ("search",)]
    assert [step.id for step in found.on_failure] == ["tell"]
    assert [step.needs for step in found.finally_] == [(), ("tidy",)]
    assert found.concurrency is not None
    assert (found.concurrency.key.render(values), found.concurrency.limit) == ("reports-tides", 2)
    assert (found.pause_timeout_s, found.on_pause_timeout) == (172800.0, "resume")
    assert found.output is not None
    assert found.output.render({"steps.write": {"output": 7}}) == 7


def test_a_budget_is_an_amount_or_a_map() -> None:
    short = read(plan(tool(), budget=0.5)).budget
    assert short == Budget(limit_micros=500_000, warn_at=0.8)
    long = read(plan(tool(), budget={"usd": "0.000001", "warn_at": 1})).budget
    assert long == Budget(limit_micros=1, warn_at=1.0)
    assert read(plan(tool())).budget is None


def test_every_mistake_is_reported_at_once_with_its_place():
    source = plan(
        tool(),
        {"id": "pages", "tool": "http.gte", "with": {"url": "x"}},
        {"id": "draft", "tool": "files.write", "needs": ["serach", 3], "with": {"path": 7, "txt": "x"}, "retries": 3},
        colour="red",
    )
    assert mistakes(source) == [
        "colour: unknown key; known are: name, title, labels, inputs, steps, on_failure, finally, output, concurrency, "
        "pause_timeout, on_pause_timeout, budget, checkpoint, resources, max_parallel, defaults",
        'steps[1].tool: no tool called "http.gte"; did you mean "http.get"?',
        'steps[2].retries: unknown key; did you mean "retry"?',
        "steps[2].with.txt: unknown argument",
        "steps[2].with.path: expected a string",
        'steps[2].needs[0]: no step called "serach"; did you mean "search"?',
        "steps[2].needs[1]: expected the id of a step, got the number 3",
    ]


def test_the_message_counts_the_mistakes_and_names_the_plan():
    with pytest.raises(PlanInvalid) as caught:
        read(plan({"id": "a", "tool": "nope.x"}, stepps=[]), name="report.yaml")
    assert str(caught.value) == (
        "report.yaml has 2 mistakes; nothing was started\n"
        '  stepps: unknown key; did you mean "steps"?\n'
        '  steps[0].tool: no tool called "nope.x"'
    )


@pytest.mark.parametrize(
    ("source", "mistake"),
    [
        (None, "expected a map with a name and steps, got null"),
        ("steps", 'expected a map with a name and steps, got the string "steps"'),
        ({"name": "x"}, "steps: missing; a plan is a list of steps"),
        ({"name": "x", "steps": "search"}, 'steps: expected a list of steps, got the string "search"'),
        ({"name": "x", "steps": []}, "steps: expected a list of steps, got an empty list"),
        ({"steps": [tool()]}, "name: missing; say what the plan is called"),
        (plan("search"), 'steps[0]: expected a step, which is a map with an id, got the string "search"'),
        (plan(tool(), name=5), "name: expected a text, got the number 5"),
        (plan(tool(), name="x" * 201), "name: expected at most 200 characters, got 201"),
        (plan(tool(), title=[]), "title: expected a text, got an empty list"),
        (plan(tool(), title="${{ steps.search.output }}"), "title: ${{ steps.search.output }}: no step called"),
        (plan(tool(), labels=3), "labels: expected a map of at most 100 names and values, got the number 3"),
        (plan(tool(), labels={"a": []}), "labels.a: expected a text, got an empty list"),
        (plan(tool(), concurrency=3), "concurrency: expected a map such as {key: reports, limit: 2}, got the number 3"),
        (plan(tool(), concurrency={}), "concurrency.key: missing; executions with the same key share the limit"),
        (
            plan(tool(), concurrency={"key": "a", "limit": 0}),
            "concurrency.limit: expected a whole number from 1 to 100000, got the number 0",
        ),
        (plan(tool(), pause_timeout="soon"), 'pause_timeout: expected a duration such as "250ms"'),
        (
            plan(tool(), on_pause_timeout="stopp"),
            'on_pause_timeout: expected one of "stop", "resume", got the string "stopp"; did you mean "stop"?',
        ),
        (
            plan(tool(), budget=0),
            "budget: expected an amount in US dollars, more than 0 and at most 1,000,000, such as",
        ),
        (
            plan(tool(), budget="lots"),
            "budget: expected an amount in US dollars, more than 0 and at most 1,000,000, such",
        ),
        (plan(tool(), budget={}), "budget.usd: missing; say how many US dollars may be spent, such as 0.50"),
        (plan(tool(), budget={"usd": -1}), "budget.usd: expected an amount in US dollars, more than 0"),
        (plan(tool(), budget={"usd": 1, "minutes": 3}), "budget.minutes: unknown key; known are: usd, warn_at"),
        (
            plan(tool(), budget={"usd": 1, "warn_at": 80}),
            "budget.warn_at: expected a share of the limit, more than 0 and at most 1, such as 0.8, got the number 80",
        ),
        (plan(tool(), output="${{ steps.serach.output }}"), "output: ${{ steps.serach.output }}: no step called"),
        (
            plan(tool(), inputs=3),
            "inputs: expected a map of names and types, such as {topic: string}, got the number 3",
        ),
        (plan(tool(), inputs={"a": "strng"}), 'inputs.a: expected one of "string", "number", "integer"'),
        (plan(tool(), inputs={"a b": "any"}), 'inputs["a b"]: expected a name of letters, digits and _'),
        (
            plan(tool(), inputs={"a": {"type": "number", "default": "x"}}),
            'inputs.a.default: expected a number, got the string "x"',
        ),
        (
            plan(tool(), inputs={"a": {"default": 1, "required": True}}),
            "inputs.a.required: an input with a default is not required; leave one of them out",
        ),
        (plan(tool(), on_failure={}), "on_failure: expected a list of steps, got an empty map"),
        (plan(tool(), **{"finally": [tool()]}), 'finally[0].id: a step outside this list is already called "search"'),
        (
            plan(tool(), on_failure=[tool("a")], **{"finally": [tool("a")]}),
            'finally[0].id: another step is already called "a"; ids must differ',
        ),
        (plan(tool(), output={1, 2}), "output: expected a value that JSON can hold, got a value of the type set"),
        (plan(tool(), output=float("inf")), "output: expected a number that JSON can hold, got inf"),
        (plan(tool(), output=2**70), "output: expected a number of at most 64 bits; put larger ones in quotes"),
        (plan(tool(), output="\ud800"), "output: the text holds half of a surrogate pair, which cannot be stored"),
        (plan(tool(), output={True: 1}), "output: expected a name in quotes, got true as a name"),
    ],
)
def test_each_mistake_says_where_and_what_was_expected(source: object, mistake: str):
    found = mistakes(source)
    assert len(found) == 1
    assert found[0].startswith(mistake)


def test_the_name_may_come_from_the_file():
    assert read({"steps": [tool()]}, name="tides").name == "tides"


def test_empty_ending_lists_are_fine():
    assert read(plan(tool(), on_failure=[], **{"finally": []})).finally_ == ()


def test_unquoted_yaml_times_are_read_as_text():
    found = read(plan({"id": "rest", "wait": {"until": datetime(2026, 12, 1, 8, tzinfo=UTC)}}, output=date(2026, 1, 2)))
    assert found.steps[0].wait is not None
    assert found.steps[0].wait.until is not None
    assert found.steps[0].wait.until.source == "2026-12-01T08:00:00+00:00"
    assert found.output is not None
    assert found.output.source == "2026-01-02"


def test_cycles_are_drawn():
    source = plan(tool("a", needs="c"), tool("b"), tool("c"), tool("d", needs="d"), tool("e", needs=["d"]))
    assert mistakes(source) == [
        "steps: cycle: a → c → b → a (each needs the next)",
        "steps: cycle: d → d (each needs the next)",
    ]


def test_a_document_that_holds_itself_is_refused():
    loop: list[Any] = []
    loop.append(loop)
    assert mistakes(plan(tool(), output=loop))[0].endswith("nested more than 100 levels deep")


def test_a_small_file_that_expands_without_end_is_refused():
    value: Any = ["x"] * 10
    for _ in range(8):
        value = [value] * 10
    assert mistakes(plan(tool(), output=value)) == ["the plan has more than 1000000 values; keep large data in files"]


def test_a_flood_of_mistakes_is_cut_off():
    found = mistakes(plan(*[{"id": f"s{n}", "tool": "nope.x"} for n in range(500)]))
    assert len(found) == 201
    assert found[-1] == "there are more mistakes; correct these first"


def test_too_many_steps_in_a_list_are_refused():
    assert mistakes(plan(*[tool()] * 10_001)) == [
        "steps: a list holds at most 10000 steps; use for_each for more of the same"
    ]


def test_without_a_catalog_tools_are_not_checked():
    assert read_plan(plan({"id": "a", "tool": "gone.away"}), expressions=CEL).steps[0].tool == "gone.away"


# ---- extensions ----------------------------------------------------------------------------------------------------


def extension_mistakes(before: Plan, *steps: object) -> list[str]:
    with pytest.raises(PlanInvalid) as caught:
        extend(before, *steps)
    return str(caught.value).split("\n")


def test_an_extension_goes_on_after_the_last_step_and_may_use_all():
    added = extend(read(FULL), tool("more", **{"with": {"url": "${{ steps.search.output.url }}"}}), tool("last"))
    assert [(step.id, step.needs) for step in added] == [("more", ("write",)), ("last", ("more",))]


def test_an_extension_may_branch_off_anywhere():
    assert extend(read(FULL), tool("more", needs=["search"]))[0].needs == ("search",)


def test_an_extension_needs_new_ids_and_known_inputs():
    assert extension_mistakes(read(FULL), tool(), tool("tidy"), tool("c", title="${{ inputs.topc }}")) == [
        "the extension of report has 3 mistakes; nothing was started",
        '  steps[0].id: another step is already called "search"; ids must differ',
        '  steps[1].id: another step is already called "tidy"; ids must differ',
        '  steps[2].title: no input called "topc"; did you mean "topic"?',
    ]
    assert extension_mistakes(read(FULL))[1] == "  steps: expected a list of steps, got an empty list"


def test_a_flood_of_mistakes_in_an_extension_is_cut_off_too():
    assert len(extension_mistakes(read(FULL), *[{"id": f"s{n}"} for n in range(300)])) == 202


# ---- anything at all -----------------------------------------------------------------------------------------------
