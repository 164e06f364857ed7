# pyright: reportUnnecessaryTypeIgnoreComment=true
"""Plans written in Python: what a YAML file would hold, the same mistakes, and misuse that a type checker sees."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import holdfast
from core.plan.plans import read
from holdfast.core.errors import PlanInvalid
from holdfast.programs.plan_builder import Ref
from holdfast.programs.plan_files import parse_document
from holdfast.testing import Lab


@holdfast.tool(effect="read")
def look(place: str) -> dict[str, float]:
    return {"level": float(len(place))}


@holdfast.tool(name="look.again", effect="read")
def look_again(place: str) -> dict[str, float]:
    return {"level": 1.0}


@holdfast.function
async def double(ctx: holdfast.Context, number: float) -> float:
    return 2 * number


def whole() -> holdfast.Plan:
    plan = holdfast.Plan(
        "report",
        inputs={"place": "string", "count": {"type": "integer", "default": 3}},
        title="Report",
        labels={"team": "sea"},
        concurrency={"key": "reports", "limit": 2},
        pause_timeout="7d",
        on_pause_timeout="resume",
    )
    search = plan.step(
        "search",
        "search.web",
        {"url": plan.inputs["place"]},
        retry=holdfast.Retry(max=2, first_s=0.5),
        fallback=["http.get", holdfast.Fallback(tool="files.write", arguments={"path": "x", "text": "y"})],
        timeout="5s",
        cache=True,
        in_doubt="ask",
        on_error="fail",
        approval=holdfast.Approval(message="Search?", expires_s=60),
    )
    rest = plan.wait("rest", "1s", needs=[])
    plan.wait_until("day", "2030-01-01T08:00:00Z")
    news = plan.wait_event("news", "news", timeout="1h", critical=False)
    agree = plan.approval("agree", "Shall we?", expires="1d", needs=[search, rest, "news"])
    plan.approval("plainly", needs=agree)
    many = plan.step(
        "many",
        "http.get",
        {"url": f"{plan.item['url']} of {search.output['results'][0]['two words']}"},
        for_each=search.output["results"],
        key=plan.item["id"],
        max_parallel=2,
        when=f"{news.status.text} == 'completed'",
        needs=[search, news],
        title="Many",
    )
    inner = plan.nested("inner", needs=many)
    left = inner.step("left", "http.get", {"url": "x"}, needs=[])
    inner.result = {"left": left.output}
    plan.child("child", "child.yaml", {"topic": inner.output})
    plan.on_failure.step("tell", "files.write", {"path": "x", "text": plan.failure["message"]})
    plan.finally_.step("tidy", "http.get", {"url": "x"}, optional=True)
    plan.output = {"found": search.output, "error": news.error}
    return plan


def test_a_plan_in_python_is_the_document_a_file_would_hold_and_the_reader_accepts_it() -> None:
    document = whole().to_document()
    read(document)
    steps = {step["id"]: step for step in document["steps"]}
    assert steps["search"] == {
        "id": "search",
        "tool": "search.web",
        "with": {"url": "${{ inputs.place }}"},
        "retry": {"max": 2, "first": 0.5, "factor": 2.0, "max_delay": 60.0},
        "fallback": ["http.get", {"tool": "files.write", "with": {"path": "x", "text": "y"}}],
        "timeout": "5s",
        "cache": True,
        "in_doubt": "ask",
        "on_error": "fail",
        "approval": {"message": "Search?", "expires": 60},
    }
    assert steps["agree"]["needs"] == ["search", "rest", "news"]
    assert steps["agree"]["approval"] == {"message": "Shall we?", "expires": "1d"}
    assert steps["plainly"] == {"id": "plainly", "approval": "required", "needs": "agree"}
    assert steps["many"]["with"]["url"] == '${{ item.url }} of ${{ steps.search.output.results[0]["two words"] }}'
    assert steps["many"]["when"] == "steps.news.status == 'completed'"
    assert steps["inner"]["output"] == {"left": "${{ steps.left.output }}"}
    assert document["finally"][0]["optional"] is True


def test_what_it_writes_as_yaml_reads_back_the_same() -> None:
    plan = whole()
    assert parse_document(plan.to_yaml(), Path("report.yaml")) == plan.to_document()
    assert yaml.safe_load(plan.to_yaml()) == plan.to_document()


def test_mistakes_are_the_readers_own_with_their_places() -> None:
    plan = holdfast.Plan("report", inputs={"place": "string"})
    plan.step("look", "http.get", {"url": plan.inputs["palce"]})
    plan.step("look", "http.got", {"url": "x"}, needs=["nowhere"])
    with pytest.raises(PlanInvalid) as caught:
        read(plan.to_document())
    assert [str(problem) for problem in caught.value.problems] == [
        'steps[0].with.url: no input called "palce"; did you mean "place"?',
        'steps[1].id: another step is already called "look"; ids must differ',
        'steps[1].tool: no tool called "http.got"; did you mean "http.get"?',
        'steps[1].needs[0]: no step called "nowhere"',
    ]


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        (Ref("a")["b"], "a.b"),
        (Ref("a")[3], "a[3]"),
        (Ref("a")["in"], 'a["in"]'),
        (Ref("a")["two words"], 'a["two words"]'),
        (Ref("a")['"'], r'a["\""]'),
    ],
)
def test_a_reference_follows_any_key(ref: Ref, text: str) -> None:
    assert ref.text == text
    assert f"{ref}" == f"${{{{ {text} }}}}"


def test_a_reference_is_not_looped_over_by_mistake() -> None:
    with pytest.raises(TypeError):
        list(Ref("inputs"))  # pyright: ignore[reportArgumentType]


async def test_the_engine_runs_it_with_the_tools_and_functions_it_was_given(tmp_path: Path) -> None:
    plan = holdfast.Plan("report", inputs={"places": "list"})
    found = plan.step("found", look, {"place": plan.item}, for_each=plan.inputs["places"], fallback=[look_again])
    twice = plan.child("twice", double, {"number": found.output[0]["level"]})
    plan.output = twice.output
    async with holdfast.Engine("memory:", folder=tmp_path) as engine:
        run = await engine.start(plan, inputs={"places": ["pier", "harbour"]})
        assert await run.result() == 8
        wrong = holdfast.Plan("wrong")
        wrong.step("found", look, {"plaec": "x"})
        with pytest.raises(PlanInvalid, match=r'steps\[0\].with.plaec: no such argument; did you mean "place"'):
            await engine.start(wrong)


def test_it_runs_in_the_lab(lab: Lab) -> None:
    plan = holdfast.Plan("report")
    plan.step("found", look, {"place": "pier"})
    lab.use(look)
    assert lab.run(plan).output == {"level": 4.0}


def misuse(plan: holdfast.Plan) -> None:
    """Never called: each line is a mistake that a type checker must see."""
    plan.step("a", look, effect="twice")  # pyright: ignore[reportArgumentType]
    plan.step("a", look, timeot="1s")  # pyright: ignore[reportCallIssue]
    plan.step("a", 3)  # pyright: ignore[reportArgumentType]
    plan.step("a", look, retry="often")  # pyright: ignore[reportArgumentType]
    plan.wait("a", "1s", approval=True)  # pyright: ignore[reportCallIssue]
    plan.approval("a", 3)  # pyright: ignore[reportArgumentType]
    holdfast.Plan("a", inputs={"b": "text"})  # pyright: ignore[reportArgumentType]
    holdfast.Plan("a", on_pause_timeout="explode")  # pyright: ignore[reportArgumentType]
