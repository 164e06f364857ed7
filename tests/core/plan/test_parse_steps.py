"""What one step may say."""

from __future__ import annotations

import pytest

from core.plan.plans import mistakes, plan, read, step, step_mistakes, tool
from holdfast.core.plan.model import PlanFallback
from holdfast.core.policy import APPROVAL_EXPIRES_S, Retry, StepPolicy

VALUES = {"inputs": {"n": 3, "urls": ["x"]}, "item": {"id": "i7"}, "index": 7}


def test_a_plain_tool_step_has_the_defaults():
    found = step(tool())
    assert (found.kind, found.tool, found.critical, found.optional) == ("tool", "search.web", True, False)
    assert found.policy == StepPolicy(on_error="ask")
    assert found.arguments.render({}) == {}


def test_a_step_may_set_its_policy():
    found = step(
        tool(
            timeout="30s", retry=5, cache=True, effect="idempotent", in_doubt="verify", on_error="fail", critical=False
        )
    )
    assert found.policy == StepPolicy(
        timeout_s=30.0,
        retry=Retry(max=5),
        cache_s=86400.0,
        effect="idempotent",
        in_doubt="verify",
        on_error="fail",
    )
    assert not found.critical


def test_retry_may_be_spelt_out():
    found = step(tool(retry={"max": 2, "first": "100ms", "factor": 3, "max_delay": "5s"}))
    assert found.policy.retry == Retry(max=2, first_s=0.1, factor=3.0, max_s=5.0)
    assert step(tool(retry=0)).policy.retry == Retry(max=0)


def test_cache_takes_a_duration_or_nothing():
    assert step(tool(cache="1h")).policy.cache_s == 3600.0
    assert step(tool(cache=False)).policy.cache_s is None


def test_an_optional_step_is_not_critical_unless_it_says_so():
    assert not step(tool(optional=True)).critical
    assert step(tool(optional=True, critical=True)).critical


def test_an_optional_step_may_name_a_tool_that_is_not_there():
    assert step({"id": "a", "tool": "gone.away", "optional": True, "fallback": "also.gone"}).tool == "gone.away"


def test_fallbacks_keep_their_own_arguments():
    found = step(tool(fallback=["http.get", {"tool": "files.write", "with": {"path": "${{ inputs }}"}}]))
    assert found.fallbacks[0] == PlanFallback(tool="http.get")
    arguments = found.fallbacks[1].arguments
    assert arguments is not None
    assert arguments.render({"inputs": {}}) == {"path": {}}
    assert found.policy.fallback == ()
    assert step(tool(fallback="http.get")).fallbacks == (PlanFallback(tool="http.get"),)


def test_approval_before_a_tool():
    assert step(tool(approval="required")).approval is not None
    assert step(tool(approval=False)).approval is None
    found = step(tool(approval={"message": "Publish ${{ 1 + 1 }}?", "expires": "1h"})).approval
    assert found is not None
    assert (found.message.render({}), found.expires_s) == ("Publish 2?", 3600.0)


def test_approval_as_a_step_of_its_own():
    found = step({"id": "ask", "approval": "Go on?"})
    assert found.kind == "approval"
    assert found.approval is not None
    assert (found.approval.message.render({}), found.approval.expires_s) == ("Go on?", APPROVAL_EXPIRES_S)


def test_waits_for_a_time_a_moment_or_an_event():
    assert (wait := step({"id": "w", "wait": "5m"}).wait) is not None
    assert wait.duration is not None
    assert wait.duration.source == "5m"
    assert (wait := step({"id": "w", "wait": {"for": "${{ 1 + 1 }}"}}).wait) is not None
    assert wait.duration is not None
    assert wait.duration.render({}) == 2
    assert (wait := step({"id": "w", "wait": {"until": "2026-12-01T08:00:00Z"}}).wait) is not None
    assert wait.until is not None
    assert (wait := step({"id": "w", "wait": {"event": "paid", "timeout": "1h"}}).wait) is not None
    assert wait.event is not None
    assert wait.timeout is not None
    assert (wait.event.source, wait.timeout.source) == ("paid", "1h")


def test_a_child_takes_its_inputs_from_with():
    found = step({"id": "c", "start": "child.yaml", "with": {"topic": "tides"}})
    assert (found.kind, found.start, found.arguments.source) == ("child", "child.yaml", {"topic": "tides"})


def test_for_each_sets_item_and_index():
    source = plan(
        tool(
            for_each="${{ inputs.urls }}",
            key="${{ item.id }}",
            max_parallel=3,
            title="page ${{ index }}",
            **{"with": {"url": "${{ item.id }}"}},
        ),
        inputs={"urls": "list"},
    )
    found = read(source).steps[0]
    assert found.for_each is not None
    assert found.for_each.key is not None
    assert found.for_each.items.render(VALUES) == ["x"]
    assert (found.for_each.key.render(VALUES), found.for_each.parallel) == ("i7", 3)
    assert (found.title.render(VALUES), found.arguments.render(VALUES)) == ("page 7", {"url": "i7"})


def test_when_is_an_expression_true_or_false():
    found = read(plan(tool(when="inputs.n > 2"), tool("b", when=False), inputs={"n": "number"}))
    assert [one.when.holds(VALUES) for one in found.steps if one.when is not None] == [True, False]


def test_nested_plans_see_the_steps_around_them():
    inner = tool("fetch", **{"with": {"url": "${{ steps.search.output + item }}"}})
    found = read(
        plan(
            tool(),
            {
                "id": "pages",
                "for_each": [1, 2],
                "steps": [inner, tool("store", title="${{ steps.fetch.output }}")],
                "output": "${{ steps.store.output }}",
            },
        )
    ).steps[1]
    assert (found.kind, [one.id for one in found.steps]) == ("plan", ["fetch", "store"])
    assert found.steps[1].needs == ("fetch",)
    assert found.output is not None


def test_needs_make_a_graph():
    found = read(
        plan(tool("a"), tool("b", needs=[]), tool("c", needs="a"), tool("d", needs=["b", "c", "b"]), tool("e"))
    )
    assert [one.needs for one in found.steps] == [(), (), ("a",), ("b", "c"), ("d",)]


@pytest.mark.parametrize(
    ("source", "mistake"),
    [
        ({"tool": "search.web"}, "steps[0]: missing id; add one, such as id: web"),
        ({"wait": "1s"}, "steps[0]: missing id; add one, such as id: first_step"),
        (tool("Search Web"), "steps[0].id: expected lower-case letters, digits and _ (at most 100), got the string "
         '"Search Web"; for example "search_web"'),
        ({"id": 7, "tool": "http.get"}, "steps[0].id: expected lower-case letters, digits and _ (at most 100), got the "
         "number 7"),
        (tool("in"), 'steps[0].id: "in" is a word of the expression language; choose another id'),
        ({"id": "a"}, "steps[0]: says nothing to do; give it one of: tool, steps, wait, start, approval"),
        (tool(wait="1s"), 'steps[0]: has "tool" and "wait"; a step does one thing, so make them separate steps'),
        ({"id": "a", "wait": "1s", "retry": 3}, 'steps[0].retry: goes with "tool", and this step has "wait"'),
        ({"id": "a", "wait": "1s", "with": {}}, 'steps[0].with: goes with "tool" or "start", and this step has "wait"'),
        (tool(output=1), 'steps[0].output: goes with "steps", and this step has "tool"'),
        (tool(key="${{ 1 }}"), 'steps[0].key: goes with "for_each", which this step does not have'),
        (tool(needs=3), "steps[0].needs: expected the id of a step, or a list of ids, got the number 3"),
        (tool(needs="nope"), 'steps[0].needs: no step called "nope"'),
        (tool(tool=3), "steps[0].tool: expected the name of a tool, got the number 3"),
        (tool(tool="${{ inputs }}"), "steps[0].tool: expected the name of a tool; an expression cannot choose one"),
        (tool(**{"with": [1]}), "steps[0].with: expected a map of arguments, such as {url: …}, got a list"),
        (tool(critical="no"), 'steps[0].critical: expected true or false, got the string "no"'),
        (tool(title=3), "steps[0].title: expected a text, got the number 3"),
        (tool(timeout="0s"), "steps[0].timeout: expected more than 0 seconds; leave it out for the default"),
        (tool(retry=-1), "steps[0].retry: expected a whole number from 0 to 1000, got the number -1"),
        (tool(retry={"factor": 0}), "steps[0].retry.factor: expected a number from 1 to 100, got the number 0"),
        (tool(retry={"tries": 1}), "steps[0].retry.tries: unknown key; known are: max, first, factor, max_delay"),
        (tool(effect="twice"), 'steps[0].effect: expected one of "read", "idempotent", "once", got the string "twice"'),
        (tool(fallback=[3]), "steps[0].fallback[0]: expected the name of a tool or {tool, with}, got the number 3"),
        (tool(fallback={}), "steps[0].fallback: missing tool; a fallback is the name of a tool, or {tool: …, with: …}"),
        (tool(fallback="http.gte"), 'steps[0].fallback: no tool called "http.gte"; did you mean "http.get"?'),
        (tool(fallback="files.write", **{"with": {"url": "x"}}), "steps[0].fallback.url: unknown argument"),
        (tool(fallback=["http.get"] * 11), "steps[0].fallback: at most 10 fallbacks are tried, got 11"),
        (tool(approval=3), 'steps[0].approval: expected "required", a message, or {message, expires}, got '
         "the number 3"),
        (tool(for_each="urls"), "steps[0].for_each: expected a list, or an expression that gives one such as "
         '${{ inputs.urls }}, got the string "urls"'),
        (tool(for_each=[1], key="x"), "steps[0].key: expected an expression that differs for each item, such as "
         "${{ item.id }}"),
        (tool(for_each=[1], max_parallel=0), "steps[0].max_parallel: expected a whole number from 1 to 1000, got the "
         "number 0"),
        ({"id": "a", "wait": {}}, 'steps[0].wait: expected exactly one of "for", "until" and "event", got none'),
        ({"id": "a", "wait": {"for": 1, "event": "x"}}, 'steps[0].wait: expected exactly one of "for", "until" and '
         '"event", got "for" and "event"'),
        ({"id": "a", "wait": {"for": 1, "timeout": 1}}, 'steps[0].wait.timeout: goes with "event", which this wait '
         "does not have"),
        ({"id": "a", "wait": {"event": 1}}, "steps[0].wait.event: expected the name of an event, got the number 1"),
        ({"id": "a", "start": "nope.yaml"}, 'steps[0].start: no plan file or function called "nope.yaml"'),
        ({"id": "a", "start": "${{ inputs }}"}, "steps[0].start: expected a plan file or the name of a function; an "
         "expression cannot choose one"),
        ({"id": "a", "steps": 3}, "steps[0].steps: expected a list of steps, got the number 3"),
        (tool(when="inputs.n >"), "steps[0].when: ${{ inputs.n > }}: its end is missing"),
        (tool(when="${{ item }}"), 'steps[0].when: ${{ item }}: no variable called "item" here; there are: inputs'),
    ],
)  # fmt: skip
def test_each_mistake_in_a_step_is_explained(source: object, mistake: str):
    found = step_mistakes(source)
    assert len(found) == 1
    assert found[0].startswith(mistake)


def test_ids_differ_within_a_list_and_from_the_lists_around():
    assert mistakes(plan(tool(), tool(), {"id": "more", "steps": [tool()]})) == [
        'steps[1].id: another step is already called "search"; ids must differ',
        'steps[2].steps[0].id: a step outside this list is already called "search"; ids must differ',
    ]


def test_needs_stay_within_their_list():
    source = plan(tool(), {"id": "more", "steps": [tool("a", needs="search")]})
    assert mistakes(source) == [
        'steps[1].steps[0].needs: "search" is in another list; needs may only name steps beside this one'
    ]


def test_what_may_not_have_ended_cannot_be_used():
    uses = {"url": "${{ steps.search.output }}"}
    assert mistakes(plan(tool(), tool("b"), tool("c", needs=[], **{"with": uses}))) == [
        'steps[2].with.url: uses steps.search, which may not have ended yet; add "search" to needs'
    ]
    assert mistakes(plan(tool(), tool("b"), tool("c", needs="b", **{"with": uses}))) == []


def test_a_step_uses_neither_itself_nor_what_comes_later():
    assert mistakes(plan(tool("a", **{"with": {"url": "${{ steps.b.output + steps.a.output }}"}}), tool("b"))) == [
        "steps[0].with.url: uses steps.a, which is the step itself",
        "steps[0].with.url: uses steps.b, which comes after this step",
    ]


def test_inner_steps_use_what_their_container_needs():
    def around(*needs: str) -> dict[str, object]:
        inner = tool("x", title="${{ steps.a.status + steps.box.status + steps.late.status }}")
        return plan(tool("a"), {"id": "box", "needs": list(needs), "steps": [inner]}, tool("late"))

    assert mistakes(around()) == [
        'steps[1].steps[0].title: uses steps.a, which may not have ended yet; add "a" to needs of "box"',
        "steps[1].steps[0].title: uses steps.box, which has not ended while its own steps run",
        'steps[1].steps[0].title: uses steps.late, which comes after "box"',
    ]
    assert len(mistakes(around("a"))) == 2


def test_only_declared_inputs_can_be_used():
    source = plan(tool(title="${{ inputs.topc }}", when="inputs.zzz == 1"), inputs={"topic": "string"})
    assert mistakes(source) == [
        'steps[0].title: no input called "topc"; did you mean "topic"?',
        'steps[0].when: no input called "zzz"; declare it under inputs',
    ]


def test_nesting_has_a_limit():
    inner: dict[str, object] = tool("leaf")
    for depth in range(25):
        inner = {"id": f"level{depth}", "steps": [inner]}
    assert mistakes(plan(inner))[0].endswith(": plans are nested more than 20 levels deep")
