"""The contract of lists: which heads a query finds, together with its pages and its count."""

from __future__ import annotations

from typing import Any

from holdfast.core.events import Parent
from holdfast.journal.store import HeadChange, Hold, Query, Store, Write
from holdfast.testing.store_contract.fixture import Opening
from holdfast.testing.store_contract.samples import Sample


class FindingContract(Opening):
    async def test_heads_are_listed_newest_first(self) -> None:
        samples = [Sample(number) for number in (3, 1, 2)]
        async with self.opened(*(sample.new for sample in samples)) as store:
            assert [head.id for head in await store.heads(Query())] == [sample.id for sample in reversed(samples)]

    async def test_heads_are_filtered(self) -> None:
        report = Sample(1, name="report", owner="ann")
        child = Sample(2, name="page", owner="ann", parent=Parent(id=report.id, path="pages"))
        other = Sample(3, name="report", owner="bob")
        async with self.opened(report.new, child.new, other.new, other.end("failed"), child.wait(5)) as store:
            await _expect(store, [other, report], name="report")
            await _expect(store, [child, report], owner="ann")
            await _expect(store, [report], owner="ann", name="report")
            await _expect(store, [other], status=("failed",))
            await _expect(store, [other, child], status=("failed", "waiting"))
            await _expect(store, [child], parent_id=report.id)
            await _expect(store, [other, report], parent_id="")
            await _expect(store, [], name="nothing")

    async def test_what_ended_is_walked_in_the_order_of_its_ends(self) -> None:
        samples = [Sample(number) for number in range(1, 7)]
        ends = [_end_at(sample, at) for sample, at in zip(samples, (30, 10, 20, 20, 90), strict=False)]
        async with self.opened(*(sample.new for sample in samples), *ends) as store:
            found, after = list[str](), (0, "")
            while page := await store.heads(Query(ended_after=after, ended_before=90, limit=2)):
                found += [head.id for head in page]
                after = (page[-1].ended_at, page[-1].id)
                await store.delete(found[:1])  # the walk goes on, whoever has gone meanwhile
            assert found == [samples[number].id for number in (1, 2, 3, 0)]
            assert await store.count(Query(ended_after=(20, samples[2].id))) == 3

    async def test_heads_are_found_by_whole_ids(self) -> None:
        samples = [Sample(number) for number in range(1, 5)]
        async with self.opened(*(sample.new for sample in samples)) as store:
            await _expect(store, [samples[3], samples[1]], ids=(samples[1].id, samples[3].id, "nobody"))
            await _expect(store, [], ids=(samples[1].id[:8],))

    async def test_heads_are_found_by_labels(self) -> None:
        both = Sample(1, labels={"env": "prod", "team": "tides"})
        swapped = Sample(2, labels={"team": "prod", "env": "tides"})
        plain = Sample(3)
        async with self.opened(both.new, swapped.new, plain.new) as store:
            await _expect(store, [both], labels={"env": "prod"})
            await _expect(store, [both], labels={"team": "tides"})
            await _expect(store, [both], labels={"env": "prod", "team": "tides"})
            await _expect(store, [swapped, both], labels={"env": None})
            await _expect(store, [swapped, both], labels={"team": None, "env": None})
            for missing in ({"env": "pro"}, {"en": None}, {"prod": None}, {"env": "prod", "team": "prod"}):
                await _expect(store, [], labels=missing)

    async def test_an_empty_label_is_found_by_its_emptiness(self) -> None:
        empty, full, plain = Sample(1, labels={"team": ""}), Sample(2, labels={"team": "tides"}), Sample(3)
        async with self.opened(empty.new, full.new, plain.new) as store:
            await _expect(store, [empty], labels={"team": ""})
            await _expect(store, [full, empty], labels={"team": None})

    async def test_words_are_found_in_labels_and_not_in_what_stands_between_them(self) -> None:
        odd = Sample(1, labels={"team": "tides", "said": 'a"b\\c'})
        usual = Sample(2, labels={"sea": "north", "env": "prod"})
        plain = Sample(3)
        async with self.opened(odd.new, usual.new, plain.new) as store:
            for word in ("team", "Tides", 'a"b', "b\\c", '"', "\\"):
                await _expect(store, [odd], text=word)
            for word in ("{", "}", "{}", ":", ",", '":"', 'team"', '\\"'):
                await _expect(store, [], text=word)

    async def test_labels_of_odd_characters_are_found_and_only_they(self) -> None:
        odd = ('a"b', "a\\b", "%", "_", "für", "a:b,c", "{", "'", " ", "*[x]?")
        samples = [Sample(number, labels={key: f"{key}!"}) for number, key in enumerate(odd, 1)]
        quoting = Sample(50, labels={'x"k': "v", "y": '","k":"v'})
        async with self.opened(*(sample.new for sample in samples), quoting.new) as store:
            for sample, key in zip(samples, odd, strict=True):
                await _expect(store, [sample], labels={key: f"{key}!"})
                await _expect(store, [sample], labels={key: None})
            await _expect(store, [], labels={"k": "v"})
            await _expect(store, [], labels={"k": None})

    async def test_heads_are_found_by_the_step_that_failed_and_by_a_part_of_the_error(self) -> None:
        refused, late, fine = Sample(1), Sample(2), Sample(3)
        writes = [_fail(refused, "fetch", "Connection refused: 100%"), _fail(late, "fetch/page", "Zu SPÄT, 1000 ms")]
        async with self.opened(refused.new, late.new, fine.new, *writes) as store:
            await _expect(store, [refused], failed_step="fetch")
            await _expect(store, [late], failed_step="fetch/page")
            await _expect(store, [refused], error="connection REFUSED")
            await _expect(store, [refused], error="100%")
            await _expect(store, [late], error="zu spät")
            for missing in ("1%0", "re_used", "spa", "fetch", "re[f]used", "refused.*"):
                await _expect(store, [], error=missing)

    async def test_heads_are_found_by_being_held_or_handed_in_so(self) -> None:
        restored, waiting, free = Sample(1), Sample(2), Sample(3)
        handed_in = Sample(4)
        handed_in.new.head.wake_at = None
        writes = [waiting.wait(None)]
        async with self.opened(restored.new, waiting.new, free.new, handed_in.new, *writes) as store:
            await store.commit([Hold(execution_ids=(restored.id,), why="restored from a backup")])
            await _expect(store, [handed_in, restored], held=True)
            await _expect(store, [handed_in, free, waiting, restored], held=False)

    async def test_every_word_of_a_text_is_somewhere_in_any_case(self) -> None:
        tides = Sample(0x1A, name="report", title="Gezeiten über Ärmelkanal", owner="Zoë", labels={"Team": "Meer"})
        other = Sample(0x2B, name="report", title="50%_off [a-z]* ^x] \\d", owner="bob")
        async with self.opened(tides.new, other.new, _fail(other, "fetch", "No TIDE today")) as store:
            for text in ("gezeiten", "ÜBER ärmel", "zoë report", "meer", "TEAM", "0198001A", "eit ZOË"):
                await _expect(store, [tides], text=text)
            for text in ("50%_OFF", "[A-Z]*", "^X]", "\\D", "tide", "bob no today", "  002b  "):
                await _expect(store, [other], text=text)
            await _expect(store, [other, tides], text="REPORT")
            await _expect(store, [other, tides], text="  ")
            for text in ("gezeiten bob", "50__off", "g%n", "[g]ezeiten", "zoe", "gez.*", "\\w"):
                await _expect(store, [], text=text)

    async def test_heads_are_found_by_when_they_were_created_and_ended(self) -> None:
        early, late, alive = (Sample(number, at=at) for number, at in ((1, 1_000), (2, 2_000), (3, 3_000)))
        ends = [_end_at(early, 5_000), _end_at(late, 6_000)]
        async with self.opened(early.new, late.new, alive.new, *ends) as store:
            await _expect(store, [alive, late], created_after=2_000)
            await _expect(store, [early], created_before=2_000)
            await _expect(store, [late], created_after=1_001, created_before=3_000)
            await _expect(store, [early], ended_before=6_000)
            await _expect(store, [late, early], ended_before=10**15)
            await _expect(store, [], ended_before=5_000)

    async def test_heads_come_in_pages(self) -> None:
        samples = [Sample(number, name="odd" if number % 2 else "even") for number in range(7)]
        async with self.opened(*(sample.new for sample in samples)) as store:
            seen: list[str] = []
            while page := await store.heads(Query(name="even", limit=2, before=seen[-1] if seen else "")):
                assert len(page) <= 2
                seen.extend(head.id for head in page)
            assert seen == [samples[number].id for number in (6, 4, 2, 0)]
            assert await store.heads(Query(before="nobody")) == []

    async def test_all_that_fit_are_counted_whatever_the_limit(self) -> None:
        samples = [Sample(number, name="odd" if number % 2 else "even") for number in range(7)]
        async with self.opened(*(sample.new for sample in samples)) as store:
            assert await store.count(Query(limit=2)) == 7
            assert await store.count(Query(name="even", limit=1)) == 4
            assert await store.count(Query(name="even", text="0198", before=samples[4].id)) == 2
            assert await store.count(Query(name="nothing")) == 0


async def _expect(store: Store, samples: list[Sample], **query: Any) -> None:
    found = [head.id for head in await store.heads(Query(**query))]
    assert found == [sample.id for sample in samples], query
    assert await store.count(Query(**query)) == len(samples), query


def _fail(sample: Sample, path: str, error: str) -> Write:
    change = HeadChange(status="failed", wake_at=None, ended_at=9_000, error=error, failed_path=path)
    return sample.entry(change=change, release=True)


def _end_at(sample: Sample, at: int) -> Write:
    return sample.entry(change=HeadChange(status="completed", wake_at=None, ended_at=at), release=True)
