"""Holdfast's own notices through real processes: who waits is told once, also when the sender is killed over it."""

from __future__ import annotations

from cli.workshop import Workshop, wait_until
from servers.letters import mailing, receiving

SETTINGS = 'modules = ["tools.py"]\n[notify]\nchannels = [{channels}]\nurl = "https://flow.example.test/"\n[tools.notify.channels]\n'


def settings(shop: Workshop, **channels: str) -> None:
    lines = [f'{name} = "{address}"\n' for name, address in channels.items()]
    named = ", ".join(f'"{name}"' for name in channels)
    shop.write("holdfast.toml", SETTINGS.replace("{channels}", named) + "".join(lines))


def test_person_is_told_what_is_asked_and_when_it_is_done(shop: Workshop) -> None:
    with receiving() as hook, mailing() as box:
        settings(shop, chat=hook.address, mail=box.address)
        shop.run("run", "ask.yaml", code=3)
        found = shop.newest()["id"]
        assert hook.titles == ["ask asks for an approval"]
        asked = hook.got[0]["message"]
        assert "Publish it?" in asked
        assert f"holdfast -C {shop.folder} approve {found} publish" in asked
        assert f"https://flow.example.test/executions/{found}" in asked
        [mail] = box.mails
        assert mail["subject"] == "ask asks for an approval"
        assert f"holdfast -C {shop.folder} approve {found} publish" in mail.get_content()
        shop.run("approve", found, "publish")
        shop.run("resume", found, code=None)
        # What could not be sent before the engine closed is sent by the next one.
        wait_until(lambda: len(box.mails) == 2 or not shop.run("worker", "--once"), "the second mail")
        assert hook.titles == ["ask asks for an approval", "ask is done"]


def test_failure_is_told_with_what_it_affects_and_what_can_be_done(shop: Workshop) -> None:
    with receiving() as hook:
        settings(shop, chat=hook.address)
        shop.run("run", "fail.yaml", code=None)
        [letter] = hook.got
        assert letter["title"] == "fail failed"
        assert "it broke" in letter["message"]
        assert "what hangs on it: never" in letter["message"]
        assert f"holdfast -C {shop.folder} retry {shop.newest()['id']}" in letter["message"]


def test_sender_that_is_killed_while_sending_does_not_make_the_next_one_send_again(shop: Workshop) -> None:
    shop.write(
        "beside.yaml",
        "name: beside\nsteps:\n  - {id: gate, tool: work.gate}\n"
        "  - {id: publish, tool: work.do, needs: [], approval: Publish it?}\n",
    )
    with receiving() as hook:
        settings(shop, chat=hook.address)
        hook.patience.clear()
        process = shop.start("run", "beside.yaml")
        assert hook.arrived.wait(30)
        shop.kill(process)
        hook.patience.set()
        worker = shop.start("worker")
        wait_until(lambda: shop.log().count("gate begun") == 2, "the worker to take it up")
        shop.run("approve", "@last", "publish")
        shop.open_gate()
        wait_until(lambda: "beside is done" in hook.titles, "the last notice")
        worker.terminate()
        shop.finish(worker, None)
        assert hook.titles == ["beside asks for an approval", "beside is done"]


def test_channel_that_nobody_declared_is_a_mistake_in_the_settings(shop: Workshop) -> None:
    shop.write("holdfast.toml", '[notify]\nchannels = ["chta"]\n[tools.notify.channels]\nchat = "json://127.0.0.1:9"\n')
    refused = shop.run("run", "two.yaml", code=None)
    assert refused.code != 0
    assert 'holdfast.toml: notify.channels: no channel called "chta" in [tools.notify]' in refused.err
    assert 'did you mean "chat"' in refused.err
    shop.write("holdfast.toml", '[notify]\non = ["sometimes"]\n')
    assert "notify.on: expected a list of waiting, failed, in_doubt, budget, done" in shop.run("list", code=None).err


def test_notice_of_a_form_says_what_each_field_expects(shop: Workshop) -> None:
    shop.write(
        "paint.yaml",
        "name: paint\nsteps:\n  - id: choose\n    tool: human.ask\n    with:\n      question: How shall it look?\n"
        "      form:\n        colour: {choices: [red, blue], description: of the door}\n"
        "        coats: {type: integer, default: 1}\n        note: {required: false}\n",
    )
    with receiving() as hook:
        settings(shop, chat=hook.address)
        shop.run("run", "paint.yaml", code=3)
        [letter] = hook.got
    lines = letter["message"].splitlines()
    for line in (
        'colour: one of "red", "blue" (of the door)', "coats: a whole number, 1 if left out",
        "note: a text, may be left out",
    ):  # fmt: skip
        assert line in lines


def test_doubt_about_a_message_says_who_was_told_already(shop: Workshop) -> None:
    with receiving() as prompt, receiving() as slow:
        slow.patience.clear()
        shop.write(
            "holdfast.toml",
            f'[tools.notify]\ntimeout = "1s"\nchannels = {{hook = "{prompt.address}", slow = "{slow.address}"}}\n',
        )
        shop.write(
            "tell.yaml",
            "name: tell\nsteps:\n  - {id: tell, tool: notify.send, with: {to: [hook, slow], text: hello}}\n",
        )
        asked = shop.run("run", "tell.yaml", code=3)
        assert 'what is known: it had noted {"delivered":["hook"],' in asked.out
        assert ", and another attempt is given that" in asked.out
        slow.patience.set()
        shop.run("resolve", "@last", "tell", "--again")
        shop.run("resume", "@last", code=None)
        assert (len(prompt.got), len(slow.got)) == (1, 2)


def test_what_a_dead_channel_has_not_taken_is_told_by_the_next_run(shop: Workshop) -> None:
    with receiving() as hook:
        settings(shop, chat="json://127.0.0.1:1/")
        first = shop.run("run", "two.yaml", "--title", "one")
        assert "1 notice was not delivered when the engine was closed; the next engine sends it" in first.err
        settings(shop, chat=hook.address)
        shop.run("run", "two.yaml", "--title", "two")
        assert sorted(hook.titles) == ["one is done", "two is done"]
