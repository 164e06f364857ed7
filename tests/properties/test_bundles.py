"""Whatever file is imported, bytes, JSON or a forgery: it is restored, or refused in words and nothing is changed."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.cli.commands.inspect import whole
from holdfast.cli.output.event_lines import line_of, request_lines
from holdfast.cli.output.format import local_time
from holdfast.cli.output.show_page import page_of
from holdfast.core import events as ev
from holdfast.core.errors import BundleInvalid, ImportMismatch, Refused
from holdfast.core.notification_text import facts_of, notice_of
from holdfast.engine.json_view import wire_event, wire_request
from holdfast.engine.transfer.restore import Restored
from holdfast.journal.bundle.write import Bundle, ExportedExecution
from holdfast.journal.codec import make_row
from holdfast.journal.log import read_events
from journal.bundle.bundles import ROOT, bundle_of, created, family, file_of, finished, resealed
from properties.journals import events_of
from properties.strategies import examples, json_values

FILES = [file_of(bundle) for bundle in (finished(), family(), bundle_of())]
any_event = st.one_of([events_of(kind) for kind in get_args(ev.AnyEvent)])
DOCUMENTED = (BundleInvalid, ImportMismatch, Refused)


def restored_or_refused(data: bytes, *, force: bool = True) -> Restored | None:
    """Into an empty journal. What was refused must not be there, not even in part; what is there can be looked at."""

    async def play() -> Restored | None:
        async with holdfast.Engine("memory:") as engine:
            before = engine.services.store.changes()
            try:
                restored = await engine.restore(data, force=force)
            except DOCUMENTED:
                assert (await engine.list(), engine.services.store.changes()) == ([], before)
                return None
            assert await engine.get(restored.id).head()
            assert await engine.export(restored.id)
            await look_at(engine, restored.id)
            return restored

    return asyncio.run(play())


async def look_at(engine: holdfast.Engine, execution_id: str) -> None:
    """As `show` and `events` do."""
    run = engine.get(execution_id)
    assert page_of(await whole(engine, run), everything=True)
    for seq, event in await read_events(engine.services.store, execution_id, 0):
        wired = wire_event(execution_id, seq, event)
        assert local_time(str(wired["at"])) or not event.at
        line_of(wired)


@examples(100)
@given(
    st.binary(max_size=200)
    | st.sampled_from(FILES).flatmap(lambda data: st.integers(0, len(data)).map(lambda end: data[:end]))
)
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    if data not in FILES:
        cut_in_the_last_newline = data + b"\n" in FILES
        assert (restored_or_refused(data) is None) != cut_in_the_last_newline


@examples(100)
@given(st.sampled_from(FILES), st.data())
def test_a_changed_byte_anywhere_is_noticed(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data) - 2))
    byte = draw.draw(st.integers(0, 255).filter(lambda byte: byte != data[at]))
    for changed in (data[:at] + bytes([byte]) + data[at + 1 :], data[:at] + data[at + 1 :]):
        assert restored_or_refused(changed) is None


@examples(60)
@given(json_values)
def test_any_json_is_refused_in_words(value: Any) -> None:
    assert restored_or_refused(msgspec.json.encode(value)) is None
    assert restored_or_refused(msgspec.json.encode({"holdfast": "bundle", "format": 1, "x": value})) is None


@examples(250)
@given(st.sampled_from(FILES), st.data())
def test_a_forged_file_is_restored_or_refused_in_words(data: bytes, draw: st.DataObject) -> None:
    """Its digest fits, so that what is inside has to be looked at."""
    document = msgspec.json.decode(data)
    document.pop("digest")
    places = list(_places(document))
    for _ in range(draw.draw(st.integers(1, 3))):
        holder, key = draw.draw(st.sampled_from(places))
        holder[key] = draw.draw(json_values)
    restored_or_refused(resealed(msgspec.json.encode(document)[:-1]), force=draw.draw(st.booleans()))


def _places(value: Any) -> Any:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


@examples(150)
@given(st.lists(any_event, max_size=4), st.dictionaries(st.sampled_from(["at", "total"]), st.integers(), max_size=2))
def test_any_events_in_a_chain_that_fits_are_restored_or_refused(events: list[Any], values: dict[str, int]) -> None:
    rows = [make_row(b"\0" * 16, 1, created(**values))]
    for event in events:
        rows.append(make_row(rows[-1].digest, len(rows) + 1, event))
    state = msgspec.structs.replace(bundle_of().root.state, seq=len(rows))
    forged = file_of(Bundle([ExportedExecution(rows, state)], {}))
    restored = restored_or_refused(forged)
    assert restored is None or restored.id == ROOT


fields_said = {
    "type": st.sampled_from(["string", "list", "map"]),
    "choices": json_values,
    "description": json_values,
    "fields": st.dictionaries(st.text(max_size=3), st.fixed_dictionaries({}, optional={"type": st.just("string")}))
    | json_values,
}
requests = st.builds(
    ev.Request,
    id=st.sampled_from(["", "a", "a#", "a#-1", "a#٣", f"a#{'9' * 5000}", "a#2", "#2"]),
    kind=st.sampled_from(get_args(ev.RequestKind)),
    path=st.sampled_from(["", "a"]),
    message=st.text(max_size=5),
    schema=(json_values | st.fixed_dictionaries({}, optional=fields_said)).map(msgspec.json.encode).map(msgspec.Raw),
    arguments=json_values.map(msgspec.json.encode).map(msgspec.Raw),
)


@examples(100)
@given(requests)
def test_any_request_in_a_chain_that_fits_is_told_or_refused(request: ev.Request) -> None:
    """By `inbox`, and to people who are told that something waits."""

    async def look(data: bytes) -> None:
        async with holdfast.Engine("memory:") as engine:
            try:
                restored = await engine.restore(data, force=True)
            except DOCUMENTED:
                return
            state = await engine.get(restored.id).state()
            for fact in facts_of(state, state.seq):
                assert notice_of(state, fact).text
            for asked in state.open_requests():
                assert request_lines(msgspec.to_builtins(wire_request(asked, state)), restored.id)

    asyncio.run(look(file_of(bundle_of(ev.RequestOpened(at=5, request=request)))))
