"""One execution as one file: what it holds, that nothing of it is lost, and what is said of one that was changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import BundleInvalid, Refused, UsageError
from holdfast.core.failure import Failure
from holdfast.journal.blobs import digest_of
from holdfast.journal.bundle import read as bundle_read
from holdfast.journal.bundle import write as bundle_module
from holdfast.journal.bundle.read import read
from holdfast.journal.bundle.write import Bundle, ExportedExecution, open_rows, told_of
from holdfast.journal.codec import Row, link, make_row
from holdfast.journal.log import first_rows
from journal.bundle.bundles import (
    CHILD,
    LARGE,
    ROOT,
    bundle_of,
    created,
    family,
    file_of,
    finished,
    forged,
    reference_to,
    resealed,
)


def test_a_bundle_is_read_back_as_it_was_written() -> None:
    for bundle in (finished(), family(), bundle_of()):
        found = read(file_of(bundle))
        assert [carried.rows for carried in found.executions] == [carried.rows for carried in bundle.executions]
        assert [carried.state for carried in found.executions] == [carried.state for carried in bundle.executions]
        assert found.blobs == bundle.blobs
        assert file_of(found) == file_of(bundle)


def test_a_file_tells_people_what_it_holds() -> None:
    told = msgspec.json.decode(file_of(finished()))
    assert (told["holdfast"], told["format"], told["schema"], told["engine"], told["id"]) == (
        "bundle", 1, 1, "0.1.0", ROOT,
    )  # fmt: skip
    [execution] = told["executions"]
    assert execution["id"] == ROOT
    assert (execution["owner"], execution["status"], execution["title"]) == ("ann", "completed", "Tides")
    assert (execution["labels"], execution["program"]["name"], execution["inputs"]) == ({"sea": "north"}, "report", {})
    assert (execution["created_at"], execution["started_at"], execution["ended_at"]) == (1, 2, 5)
    assert [event["body"]["type"] for event in execution["events"]][-1] == "task:completed"
    assert told["blobs"] == {digest_of(LARGE): {"json": msgspec.json.decode(LARGE)}}
    assert len(file_of(finished()).splitlines()) == 7 + 5  # an event a line


@pytest.mark.parametrize(
    ("value", "packed"),
    [
        (b'{"a" : 1.0e5,\n"b":[12345678901234567890123]}', "json"),
        (b"a line\nand another", "text"),
        (b'"\\ud800 half of a pair', "text"),
        (b'{"a":1} ', "text"),
        (b"\xff\x00", "base64"),
        (b"", "text"),
    ],
)
def test_a_large_value_comes_back_byte_for_byte(value: bytes, packed: str) -> None:
    bundle = finished(value) if value else bundle_of()
    if not value:
        bundle = bundle_of(ev.EventReceived(at=2, name="n", data=reference_to(value)))
        bundle = Bundle(bundle.executions, {digest_of(value): value})
    data = file_of(bundle)
    assert list(msgspec.json.decode(data)["blobs"][digest_of(value)]) == [packed]
    assert read(data).blobs == {digest_of(value): value}


def test_a_value_that_only_looks_like_a_reference_is_none() -> None:
    looks = Raw(b'{"inside":{"holdfast":"blob","digest":"%b","bytes":3}}' % (b"0" * 32))
    bundle = bundle_of(ev.EventReceived(at=2, name="n", data=looks))
    assert read(file_of(bundle)).blobs == {}


def test_an_execution_that_is_too_large_for_one_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = file_of(finished())
    for module in (bundle_module, bundle_read):
        monkeypatch.setattr(module, "BUNDLE_BYTES_MAX", 5000)
    with pytest.raises(Refused, match="is larger than 0 MB with its descendants and large values"):
        file_of(finished())
    with pytest.raises(BundleInvalid, match=r"x\.json is larger than 0 MB; nothing was changed"):
        read(data, "x.json")


# ---- files that are not what was written ---------------------------------------------------------------------------


def refusal(data: bytes) -> str:
    with pytest.raises(BundleInvalid) as refused:
        read(data, "x.json")
    assert isinstance(refused.value, UsageError)
    text = str(refused.value)
    assert text.startswith("x.json ")
    assert text.endswith("; nothing was changed")
    return text.removeprefix("x.json ").removesuffix("; nothing was changed")


@pytest.mark.parametrize("data", [b"", b"hello", b"\xff\xfe", b'{"holdfast":', b"[" * 100_000])
def test_what_is_not_json_is_called_so(data: bytes) -> None:
    assert refusal(data).startswith("is not JSON: ")


@pytest.mark.parametrize("data", [b"{}", b"[1]", b'"bundle"', b'{"name":"plan","steps":[]}'])
def test_other_json_is_called_so(data: bytes) -> None:
    assert refusal(data) == "is JSON, but not an execution that Holdfast exported"


def test_a_file_cut_anywhere_is_refused() -> None:
    data = file_of(finished())
    for end in (len(data) - 3, len(data) // 2, 60):
        assert refusal(data[:end]) == (
            "is cut short, or was edited: it does not end with its digest; copy it once more"
        )


def test_a_line_that_an_editor_adds_at_the_end_does_no_harm() -> None:
    assert read(file_of(finished()) + b"\r\n").root.state.id == ROOT


def test_an_edit_anywhere_is_noticed() -> None:
    data = file_of(finished())
    for old, new in (
        (b'"Tides"', b'"tides"'),
        (b"north", b"south"),
        (b"high high", b"high  igh"),
        (b'"0.1.0"', b'"0.1.1"'),
    ):
        assert refusal(data.replace(old, new, 1)) == (
            "was edited: its digest does not match; copy it once more from where it was written"
        )


def test_a_file_that_was_formatted_is_refused() -> None:
    formatted = msgspec.json.format(file_of(finished()), indent=2)
    assert refusal(formatted) == (
        "was edited or formatted, and its digests do not fit any more; take the file as it was written"
    )


def test_a_file_of_a_newer_holdfast_asks_for_an_upgrade() -> None:
    data = file_of(finished())
    newer = data.replace(b'"format":1', b'"format":2')
    assert refusal(newer) == "has format 2, this Holdfast knows 1: upgrade Holdfast to read it"
    newer = resealed(data.replace(b'"schema":1', b'"schema":2'))
    assert refusal(newer) == "has events of schema version 2, this Holdfast knows 1: upgrade Holdfast to read it"
    sneaky = forged(data, lambda told: told["executions"][0]["events"][0].update(version=2))
    assert "event 1 was changed after it was written" in refusal(sneaky)


def change_event(number: int, **values: Any) -> Any:
    return lambda told: told["executions"][0]["events"][number].update(values)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_event(3, body={"type": "step:completed"}), "event 4 was changed after it was written: its digest"),
        (change_event(3, digest="00" * 16), "event 4 was changed after it was written: its digest"),
        (change_event(3, digest="xy"), "non-hexadecimal number"),
        (change_event(3, seq=9), "event 4 is missing (found 9)"),
        (lambda told: told["executions"][0]["events"].pop(3), "event 4 is missing (found 5)"),
        (lambda told: told["executions"][0]["events"].clear(), f"execution {ROOT} has no task:created event"),
        (lambda told: told["executions"][0].update(status="running"), "is running at event 5; its events say"),
        (lambda told: told["executions"][0].update(id="../../etc/passwd"), "from 1 to 1,000 executions, each once"),
        (lambda told: [told["executions"][0].update(id="../x"), told.update(id="../x")], "an id has letters, digits"),
        (lambda told: told.update(executions=[]), "from 1 to 1,000 executions, each once"),
        (lambda told: told["executions"].append(told["executions"][0]), "from 1 to 1,000 executions, each once"),
        (lambda told: told.pop("blobs"), "is not shaped like a bundle: Object missing required field `blobs`"),
        (lambda told: told.update(blobs={}), f"lacks the large value {digest_of(LARGE)}"),
        (lambda told: told["blobs"].update({"f" * 32: {"text": "x"}}), "that was changed: its digest does not match"),
        (lambda told: told["blobs"].update({digest_of(b"x"): {"text": "x"}}), "none of its events refers to"),
        (lambda told: told["blobs"].update({"f" * 32: {"base64": "%"}}), "that cannot be read"),
        (lambda told: told["blobs"].update({digest_of(LARGE): {"json": 1}}), "was changed: its digest does not match"),
    ],
)  # fmt: skip
def test_a_forged_file_is_refused_for_what_is_wrong_with_it(change: Any, said: str) -> None:
    assert said in refusal(forged(file_of(finished()), change))


@pytest.mark.parametrize("name", sorted(set(told_of(finished().root.state)) - {"id", "status", "seq"}))
def test_what_is_told_of_an_execution_is_what_its_events_say(name: str) -> None:
    def change(told: dict[str, Any]) -> None:
        told["executions"][0][name] = {"forged": True}

    so = msgspec.json.encode(told_of(finished().root.state)[name]).decode()
    said = refusal(forged(file_of(finished()), change))
    assert said == f'says of execution {ROOT} that its {name} is {{"forged":true}}; its events say {so}'


def test_what_an_older_or_a_newer_holdfast_tells_does_no_harm() -> None:
    def change(told: dict[str, Any]) -> None:
        del told["executions"][0]["owner"]
        told["executions"][0]["mood"] = "fine"

    assert read(forged(file_of(finished()), change)).root.state == finished().root.state


def test_a_large_value_of_another_length_than_its_event_says_is_refused() -> None:
    blob = Raw(msgspec.json.encode(ev.Blob(digest=digest_of(LARGE), bytes=3)))
    bundle = bundle_of(ev.EventReceived(at=2, name="n", data=blob), large=LARGE)
    assert "it has another length" in refusal(file_of(bundle))


def test_a_chain_that_fits_over_events_that_do_not_is_refused() -> None:
    state, rows = bundle_of().root.state, bundle_of().root.rows
    rows.append(make_row(rows[-1].digest, 2, created()))
    assert "task:created cannot follow status queued" in refusal(file_of(Bundle([ExportedExecution(rows, state)], {})))
    body = b'{"type":"step:noted","at":2}'
    rows[-1] = Row(2, 1, body, link(rows[0].digest, 1, body))
    assert "event 2 cannot be read: Object missing required field" in refusal(
        file_of(Bundle([ExportedExecution(rows, state)], {}))
    )


def test_times_and_numbers_that_cannot_be_are_refused() -> None:
    assert refusal(file_of(bundle_of(total=2**60))).endswith("that cannot be")
    for at in (10**30, -5, 0):
        assert refusal(file_of(bundle_of(at=at))) == f"holds an event task:created at a time that cannot be, {at}"
    late = [
        ev.TaskPaused(at=2, until=10**18),
        ev.StepRetrying(at=2, path="a", due_at=-7, failure=Failure(category="unknown", message="no"), attempt=1),
        ev.TaskWaiting(at=2, reasons=(ev.Reason(kind="timer", due_at=10**18),)),
        ev.RequestOpened(at=2, request=ev.Request(id="r", kind="approval", path="a", message="?", expires_at=10**18)),
    ]
    for event in late:
        said = refusal(file_of(Bundle([with_rows(event)], {})))
        assert "with a time that cannot be" in said


def with_rows(event: ev.Event) -> ExportedExecution:
    """An event that folds or does not: times are looked at before."""
    rows = [make_row(b"\0" * 16, 1, created())]
    rows.append(make_row(rows[-1].digest, 2, event))
    return ExportedExecution(rows, msgspec.structs.replace(bundle_of().root.state, seq=2))


def test_only_descendants_travel_along() -> None:
    both = family()
    stranger = Bundle([both.executions[0], bundle_of().root], {})
    assert "from 1 to 1,000 executions, each once" in refusal(file_of(stranger))
    orphan = Bundle([finished().root, both.executions[1]], {digest_of(LARGE): LARGE})
    said = f"holds execution {CHILD}, which says that {ROOT} started it at c; that one did not"
    assert refusal(file_of(orphan)) == said
    without = Bundle([both.executions[0]], {})
    assert refusal(file_of(without)) == f"lacks execution {CHILD}, a child that has not ended"
    alone = Bundle([both.executions[1], both.executions[0]], {})
    assert refusal(file_of(alone)) == f"holds execution {ROOT}, which is no descendant of the first one"


OTHER = f"{CHILD[:-1]}3"
STARTED, OVER = ev.TaskStarted(at=2, because="created"), ev.TaskCompleted(at=5, output=Raw(b"1"))
OF_ROOT = ev.Parent(id=ROOT, path="c")


def child_of(path: str, child_id: str) -> ev.ChildStarted:
    return ev.ChildStarted(at=3, path=path, child_id=child_id)


def carried(execution_id: str, *events: ev.Event) -> ExportedExecution:
    _, rows = first_rows(list(events), execution_id)
    return open_rows(execution_id, rows)


@pytest.mark.parametrize(
    ("executions", "said"),
    [
        (
            [carried(ROOT, created(parent=OF_ROOT), STARTED, OVER)],
            f"holds a family that goes in a circle: {ROOT}, the first, is a child of {ROOT}",
        ),
        (
            [
                carried(ROOT, created(parent=ev.Parent(id=CHILD, path="c")), STARTED, child_of("c", CHILD)),
                carried(CHILD, created(parent=OF_ROOT), STARTED, child_of("c", ROOT)),
            ],
            f"holds a family that goes in a circle: {ROOT}, the first, is a child of {CHILD}",
        ),
        (
            [carried(ROOT, created(), STARTED, child_of("c", ROOT))],
            f"says that execution {ROOT} is a child of {ROOT}; it says otherwise",
        ),
        (
            [
                carried(ROOT, created(), STARTED, child_of("c", CHILD), child_of("d", CHILD)),
                carried(CHILD, created(parent=OF_ROOT), STARTED),
            ],
            f"says that execution {CHILD} is a child of {ROOT}; it says otherwise",
        ),
        (
            [
                carried(ROOT, created(), STARTED, child_of("c", CHILD)),
                carried(CHILD, created(parent=OF_ROOT), STARTED),
                carried(OTHER, created(parent=OF_ROOT), STARTED),
            ],
            f"holds execution {OTHER}, which says that {ROOT} started it at c; that one did not",
        ),
        (
            [carried(ROOT, created(forked_from=ev.ForkedFrom(id=ROOT)), STARTED, OVER)],
            f"holds execution {ROOT}, which says that it was made from itself",
        ),
        (
            [
                carried(ROOT, created(key="k", owner="ann"), STARTED, child_of("c", CHILD)),
                carried(CHILD, created(parent=OF_ROOT, key="k", owner="ann"), STARTED),
            ],
            f'holds the key "k" twice, of executions {ROOT} and {CHILD}',
        ),
    ],
)
def test_a_family_that_cannot_be_is_refused(executions: list[ExportedExecution], said: str) -> None:
    assert refusal(file_of(Bundle(executions, {}))) == said


def test_a_child_whose_parent_stayed_behind_is_taken_in() -> None:
    alone = carried(CHILD, created(parent=OF_ROOT), STARTED)
    assert read(file_of(Bundle([alone], {}))).root.state.id == CHILD


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"title": "x" * 10_001}, "the title has 10,001 characters, 10,000 are allowed"),
        ({"labels": {"a b": "x"}}, 'a label\'s name is 1 to 63 letters, digits and . _ - /, not "a b"'),
        ({"labels": {f"l{number}": "v" for number in range(101)}}, "there are 101 labels, 100 are allowed"),
    ],
)
def test_a_title_and_labels_that_nobody_could_start_with_are_refused(values: dict[str, Any], said: str) -> None:
    told = refusal(file_of(bundle_of(**values)))
    assert told.startswith(f"holds an execution {ROOT} that could not be started like this: ")
    assert told.endswith(said)
