"""Resources as people write them: units, bounds, who wins; and what was used, added up."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InputInvalid, PlanInvalid
from holdfast.core.plan.parse import read_plan
from holdfast.core.plan.resources import resources_of, task_resources_of
from holdfast.core.resources import Resources, Usage, parse_size, say_size
from holdfast.programs.cel import Cel


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (1, 1), ("1B", 1), ("64KiB", 65536), ("1.5 GB", 1_500_000_000), (" 512mb ", 512_000_000), ("2TiB", 2 << 40),
        ("0.5KB", 500),
    ],
)  # fmt: skip
def test_sizes_are_read_as_people_write_them(written: Any, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "12", "5 bananas", "-1MB", True, None, 1.5, [], "1e3MB", "MB", "1KBB", "٣MB"])
def test_what_is_no_size_says_what_one_is(written: Any) -> None:
    with pytest.raises(InputInvalid, match=r'expected a size such as "512MB", "1\.5GB" or "64KiB", or a number of'):
        parse_size(written)


@pytest.mark.parametrize("written", [0, -5, "0MB", 10**30, "999999999999TB"])
def test_sizes_have_bounds(written: Any) -> None:
    with pytest.raises(InputInvalid, match=r"expected a size of more than 0 and at most 1024 TiB, got "):
        parse_size(written)


@pytest.mark.parametrize(
    ("size", "said"), [(3, "3 bytes"), (1500, "1.5 KB"), (512_000_000, "512 MB"), (2**40, "1.1 TB")]
)
def test_sizes_are_said_as_people_read_them(size: int, said: str) -> None:
    assert say_size(size) == said


def test_every_mistake_is_named_with_its_place() -> None:
    with pytest.raises(InputInvalid) as caught:
        resources_of({"memory": "lots", "cpu": 0, "procesess": 3, "open_files": 1, "disk": "1KB", "output": 0})
    assert str(caught.value).splitlines() == [
        'resources.procesess: unknown key; did you mean "processes"?',
        'resources.memory: expected a size such as "512MB", "1.5GB" or "64KiB", or a number of bytes, '
        'got the string "lots"',
        "resources.cpu: expected at least 0.1 s of CPU time, got the number 0",
        "resources.open_files: expected a whole number from 16 to 1000000, got the number 1",
        "resources.output: expected a size of more than 0 and at most 1024 TiB, got the number 0",
    ]


def plan(**others: Any) -> dict[str, Any]:
    return {"name": "p", "steps": [{"id": "one", "tool": "t"}], **others}


def test_a_plan_and_its_steps_say_it_each_for_themselves() -> None:
    source = plan(
        resources={"memory": "1GB", "cpu": "2m"},
        steps=[{"id": "small", "tool": "t", "resources": {"memory": "64MB"}}, {"id": "plain", "tool": "t"}],
    )
    read = read_plan(source, expressions=Cel())
    assert read.resources == Resources(memory_bytes=10**9, cpu_s=120.0)
    assert [step.policy.resources for step in read.steps] == [Resources(memory_bytes=64 * 10**6), None]


def test_without_a_word_nothing_is_said() -> None:
    assert read_plan(plan(), expressions=Cel()).steps[0].policy.resources is None


def test_mistakes_in_a_plan_are_named_with_their_place() -> None:
    source = plan(
        resources="lots",
        steps=[
            {"id": "one", "tool": "t", "resources": {"memory": 5}},
            {"id": "two", "wait": "1s", "resources": {"cpu": "1s"}},
        ],
    )
    with pytest.raises(PlanInvalid) as caught:
        read_plan(source, expressions=Cel())
    assert [str(problem) for problem in caught.value.problems] == [
        "resources: expected a map such as {memory: 512MB, cpu: 60s, processes: 64, open_files: 256, disk: 100MB, "
        'output: 1MB}, got the string "lots"',
        "steps[0].resources.memory: expected at least 1 MiB, got the number 5",
        'steps[1].resources: goes with "tool", and this step has "wait"',
    ]


def test_what_was_used_up_is_added_and_what_was_held_is_the_most() -> None:
    one = Usage(cpu_s=1.0, memory_bytes=10, processes=2, output_bytes=5)
    other = Usage(cpu_s=0.5, memory_bytes=7, disk_bytes=3)
    assert one.plus(other) == Usage(cpu_s=1.5, memory_bytes=10, processes=2, disk_bytes=3, output_bytes=5)
    assert Usage().plus(Usage()) == Usage()  # unknown stays unknown


def test_a_plan_says_apart_what_each_step_and_what_all_together_may_use() -> None:
    source = plan(resources={"memory": "1GB", "total": {"memory": "3GB", "cpu": "5m", "processes": 40}})
    read = read_plan(source, expressions=Cel())
    assert read.resources == Resources(memory_bytes=10**9)
    assert read.resources_total == Resources(memory_bytes=3 * 10**9, cpu_s=300.0, processes=40)
    only = read_plan(plan(resources={"total": {"open_files": 99}}), expressions=Cel())
    assert only.resources is None
    assert only.resources_total == Resources(open_files=99)


def test_cores_are_a_number() -> None:
    assert resources_of({"cores": 0.5}) == Resources(cores=0.5)
    assert resources_of({"cores": 2}) == Resources(cores=2.0)
    for wrong in (0, 0.01, True, "half", 5000):
        with pytest.raises(
            InputInvalid, match=r"resources\.cores: expected a number of cores from 0\.05 to 1024, such"
        ):
            resources_of({"cores": wrong})


def test_a_total_belongs_to_a_plan_and_not_to_a_step_or_to_what_is_printed() -> None:
    source = plan(
        resources={"total": {"output": "1MB", "memory": "lots"}},
        steps=[{"id": "one", "tool": "t", "resources": {"total": {"memory": "1GB"}}}],
    )
    with pytest.raises(PlanInvalid) as caught:
        read_plan(source, expressions=Cel())
    assert [str(problem).partition(";")[0].partition(",")[0] for problem in caught.value.problems] == [
        "resources.total.output: unknown key",
        'resources.total.memory: expected a size such as "512MB"',
        "steps[0].resources.total: is about all steps together",
    ]
    assert str(caught.value.problems[-1]).endswith("so it belongs under `resources` at the top of the plan")


@pytest.mark.parametrize("few", [-1, -0.5, 0, "50ms"])
def test_cpu_time_below_the_least_is_told_what_that_is(few: object) -> None:
    for wrong in ({"cpu": few}, {"total": {"cpu": few}}):
        with pytest.raises(InputInvalid, match=r"cpu: expected at least 0\.1 s of CPU time, got "):
            task_resources_of(wrong)


def test_resources_that_are_no_map_are_refused_in_words() -> None:
    with pytest.raises(InputInvalid, match=r"resources: expected a map such as .*, got the number 3"):
        task_resources_of(3)  # type: ignore[arg-type]
