"""The contract of the inbox: commands are kept once, in order, until they are answered, and wake their execution."""

from __future__ import annotations

from msgspec import Raw

from holdfast.journal.store import ANSWERS_KEPT_US, ASKED, PENDING_PAGE, TOO_LATE, HeadChange
from holdfast.testing.store_contract.fixture import Opening
from holdfast.testing.store_contract.samples import Sample, sample_answer


class InboxContract(Opening):
    async def test_a_command_is_read_back_as_it_was_written(self) -> None:
        sample = Sample(1)
        command = sample.command("c1", "send", by="Zoë", arguments=Raw(b'{"name": "tide", "data": [1, 2]}'))
        async with self.opened(sample.new, command) as store:
            [pending] = await store.pending()
            assert pending == command
            assert bytes(pending.arguments) == bytes(command.arguments)

    async def test_commands_wait_oldest_first(self) -> None:
        one, two = Sample(1), Sample(2)
        commands = [one.command("z"), two.command("a"), one.command("m"), two.command("b")]
        async with self.opened(one.new, two.new, *commands) as store:
            assert [command.id for command in await store.pending()] == ["z", "a", "m", "b"]
            assert [command.id for command in await store.pending([two.id, one.id])] == ["z", "a", "m", "b"]
            assert [command.id for command in await store.pending([one.id])] == ["z", "m"]
            assert await store.pending([]) == []
            assert await store.pending(["nobody"]) == []

    async def test_without_ids_only_so_many_commands_are_given_the_oldest_first(self) -> None:
        sample = Sample(1)
        commands = [sample.command(f"c{number}") for number in range(PENDING_PAGE + 5)]
        async with self.opened(sample.new, *commands) as store:
            assert await store.pending() == commands[:PENDING_PAGE]
            assert await store.pending(after=commands[PENDING_PAGE - 1].id) == commands[PENDING_PAGE:]
            assert await store.pending(after=commands[-1].id) == []
            assert await store.pending([sample.id]) == commands

    async def test_a_command_id_is_taken_once(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new, sample.command("c1", "pause")) as store:
            [written] = await store.commit([sample.command("c1", "stop")])
            assert not written.ok
            assert [command.verb for command in await store.pending()] == ["pause"]

    async def test_a_command_for_what_is_not_there_is_not_kept(self) -> None:
        """It was deleted between somebody's look and their word: nobody would ever answer."""
        here, gone = Sample(1), Sample(2)
        async with self.opened(here.new, gone.new, gone.end()) as store:
            await store.delete([gone.id])
            refused, taken = await store.commit([gone.command("c1"), here.command("c2")])
            assert (refused.ok, taken.ok) == (False, True)
            assert [command.id for command in await store.pending()] == ["c2"]

    async def test_an_answered_command_is_no_longer_pending(self) -> None:
        sample = Sample(1)
        first, second = sample.command("c1"), sample.command("c2")
        async with self.opened(sample.new, first, second) as store:
            assert await store.answer("c1") is None
            await store.commit([sample.entry(answers=(sample_answer(first),))])
            assert await store.answer("c1") == sample_answer(first)
            assert [command.id for command in await store.pending([sample.id])] == ["c2"]
            assert [command.id for command in await store.pending()] == ["c2"]

    async def test_an_answered_command_is_not_taken_again(self) -> None:
        sample = Sample(1)
        command = sample.command("c1")
        async with self.opened(sample.new, command, sample.entry(answers=(sample_answer(command),))) as store:
            [written] = await store.commit([command])
            assert not written.ok
            assert await store.pending() == []

    async def test_the_first_answer_stands(self) -> None:
        sample = Sample(1)
        command = sample.command("c1")
        async with self.opened(sample.new, command) as store:
            for text in ("first", "second"):
                await store.commit([sample.entry(answers=(sample_answer(command, text),))])
            answer = await store.answer("c1")
            assert answer is not None
            assert answer.text == "first"

    async def test_an_answer_to_a_command_that_was_never_sent_is_dropped(self) -> None:
        sample = Sample(1)
        async with self.opened(sample.new, sample.entry(answers=(sample_answer(sample.command("c1")),))) as store:
            assert await store.answer("c1") is None

    async def test_a_command_can_be_looked_up_before_and_after_its_answer(self) -> None:
        sample = Sample(1)
        command = sample.command("c1")
        async with self.opened(sample.new, command) as store:
            assert await store.command("c1") == command
            await store.commit([sample.entry(answers=(sample_answer(command),))])
            assert await store.command("c1") == command
            assert await store.command("c2") is None

    async def test_a_command_wakes_its_execution(self) -> None:
        sample, other = Sample(1), Sample(2)
        async with self.opened(sample.new, other.new, sample.wait(None), other.wait(None)) as store:
            assert await store.claimable(50, [""], 10) == []
            await store.commit([sample.command("c1")])
            assert (await store.head(sample.id)).wake_at == ASKED
            assert [head.id for head in await store.claimable(50, [""], 10)] == [sample.id]

    async def test_a_command_in_another_executions_entry_wakes_too(self) -> None:
        parent, child = Sample(1), Sample(2)
        async with self.opened(parent.new, child.new, parent.wait(None)) as store:
            await store.commit([child.end(posts=(parent.command("c1", "child_ended"),))])
            assert [command.verb for command in await store.pending([parent.id])] == ["child_ended"]
            assert [head.id for head in await store.claimable(50, [""], 10)] == [parent.id]

    async def test_a_command_wakes_even_what_has_ended_until_it_is_answered(self) -> None:
        """Whoever gave it may be gone: somebody else must be able to find it and say that it is over."""
        sample = Sample(1)
        command = sample.command("c1")
        async with self.opened(sample.new, sample.end()) as store:
            await store.commit([command])
            assert [head.id for head in await store.claimable(50, [""], 10)] == [sample.id]
            await store.commit([sample.end(answers=(sample_answer(command),))])
            assert (await store.head(sample.id)).wake_at is None

    async def test_an_execution_cannot_fall_asleep_over_a_command_it_has_not_answered(self) -> None:
        sample = Sample(1, driver="d1")
        command = sample.command("c1")
        async with self.opened(sample.new, command, sample.wait(None)) as store:
            assert (await store.head(sample.id)).wake_at == ASKED
            sleep = HeadChange(status="waiting", wake_at=None)
            await store.commit([sample.entry(change=sleep, answers=(sample_answer(command),))])
            assert (await store.head(sample.id)).wake_at is None

    async def test_an_execution_that_ends_over_a_command_is_looked_at_once_more(self) -> None:
        sample = Sample(1, driver="d1")
        async with self.opened(sample.new, sample.command("c1"), sample.end()) as store:
            assert (await store.head(sample.id)).wake_at == ASKED

    async def test_what_should_be_driven_now_stays_so_when_a_command_comes(self) -> None:
        sample = Sample(1, driver="d1")
        async with self.opened(sample.new, sample.wait(0), sample.command("c1")) as store:
            assert (await store.head(sample.id)).wake_at == 0

    async def test_what_is_posted_to_an_execution_that_has_ended_is_answered_at_once(self) -> None:
        parent, child = Sample(1), Sample(2)
        async with self.opened(parent.new, child.new, parent.end()) as store:
            await store.commit([child.end(posts=(parent.command("c1", "child_ended"),))])
            assert await store.pending() == []
            answer = await store.answer("c1")
            assert answer is not None
            assert (answer.outcome, answer.text) == ("unchanged", TOO_LATE)
            assert (await store.head(parent.id)).wake_at is None

    async def test_what_is_posted_to_nobody_is_answered_at_once(self) -> None:
        child = Sample(2)
        async with self.opened(child.new) as store:
            await store.commit([child.end(posts=(Sample(1).command("c1", "child_ended"),))])
            assert await store.pending() == []
            answer = await store.answer("c1")
            assert answer is not None
            assert answer.text == TOO_LATE

    async def test_what_is_posted_to_a_child_that_is_created_with_it_waits_for_the_child(self) -> None:
        parent, child = Sample(1), Sample(2)
        async with self.opened(parent.new) as store:
            await store.commit([parent.entry(creates=(child.new,), posts=(child.command("c1", "stop"),))])
            assert [command.id for command in await store.pending([child.id])] == ["c1"]
            assert await store.answer("c1") is None

    async def test_answers_are_kept_for_a_day_after_the_end_and_for_ever_before_it(self) -> None:
        ended, alive, late = Sample(1), Sample(2), Sample(3)
        ours, others = ended.command("c1"), alive.command("c2")
        answered = [
            ended.end(answers=(sample_answer(ours),)),
            alive.entry(answers=(sample_answer(others),)),
            late.end(at=9_000 + ANSWERS_KEPT_US),
        ]
        async with self.opened(ended.new, alive.new, late.new, ours, others, *answered) as store:
            assert await store.answer("c1") == sample_answer(ours)
            assert await store.answer("c2") == sample_answer(others)
