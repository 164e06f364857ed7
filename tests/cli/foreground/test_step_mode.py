"""`--step`: nothing begins before the person at the terminal has let it through, whatever becomes of the process."""

from __future__ import annotations

from cli.foreground.test_terminal import KILL, at_terminal
from cli.workshop import Workshop

ASKED = "[h]old here: "


def test_every_step_is_shown_with_its_arguments_and_let_through(shop: Workshop) -> None:
    shown = at_terminal(shop, ["run", "two.yaml", "-i", "count=7", "--step"], [(ASKED, "y\n"), (ASKED, "y\n")])
    assert 'work.do (once) {"value": 7}' in shown
    assert "next: second" in shown
    assert "exit 0" in shown
    assert shop.log() == ["first ran", "second ran"]


def test_an_unknown_word_is_asked_again_and_a_skipped_step_does_not_run(shop: Workshop) -> None:
    shown = at_terminal(
        shop, ["run", "gate.yaml", "--step"], [(ASKED, "perhaps\n"), (ASKED, "y\n"), (ASKED, "s\n"), (ASKED, "y\n")]
    )
    assert "exit 0" in shown
    assert shop.log() == ["before ran", "after ran"]
    steps = shop.run("show", "@last", "--json").json["steps"]
    assert next(step for step in steps if step["path"] == "gate")["status"] == "skipped"


def test_the_rest_runs_without_asking(shop: Workshop) -> None:
    shop.open_gate()
    shown = at_terminal(shop, ["run", "gate.yaml", "--step"], [(ASKED, "y\n"), (ASKED, "r\n")])
    assert shown.count(ASKED) == 2
    assert "exit 0" in shown


def test_holding_pauses_and_resume_goes_on_step_by_step_or_not(shop: Workshop) -> None:
    shown = at_terminal(shop, ["run", "gate.yaml", "--step"], [(ASKED, "y\n"), (ASKED, "h\n")])
    assert "exit 3" in shown
    assert "holdfast resume" in shown
    assert shop.newest()["status"] == "paused"
    assert shop.log() == ["before ran"]
    shop.open_gate()
    assert "exit 3" in at_terminal(shop, ["resume", "@last", "--step"], [(ASKED, "y\n"), (ASKED, "\x04")])
    assert shop.log() == ["before ran", "gate begun", "gate ended"]
    shop.run("resume", "@last")
    assert shop.log()[-1] == "after ran"


def test_killed_while_it_asks_nothing_has_begun_and_resume_is_as_usual(shop: Workshop) -> None:
    shown = at_terminal(shop, ["run", "two.yaml", "--step"], [(ASKED, "y\n"), (ASKED, KILL)])
    assert "exit -9" in shown
    assert shop.log() == ["first ran"]
    assert "second" not in [event.get("path") for event in shop.run("events", "@last", "--json").lines]
    shop.run("resume", "@last")
    assert shop.log() == ["first ran", "second ran"]


def test_ctrl_c_while_a_step_is_held_interrupts(shop: Workshop) -> None:
    assert "exit 130" in at_terminal(shop, ["run", "two.yaml", "--step"], [(ASKED, "\x03")])
    assert shop.newest()["status"] == "interrupted"
    assert shop.log() == []


def test_a_pause_from_elsewhere_takes_the_question_away(shop: Workshop) -> None:
    def pause() -> str:
        shop.run("pause", "@last")
        return ""

    shown = at_terminal(shop, ["run", "two.yaml", "--step"], [(ASKED, pause)])
    assert "exit 3" in shown
    assert shop.log() == []


def test_side_by_side_steps_are_held_one_at_a_time_and_approvals_come_in_between(shop: Workshop) -> None:
    shop.write(
        "side.yaml",
        "name: side\nsteps:\n"
        "  - {id: agree, approval: Shall we?, needs: []}\n"
        "  - {id: left, tool: work.do, needs: []}\n"
        "  - {id: many, for_each: [1, 2], tool: work.do, with: {value: '${{ item }}'}, needs: [agree]}\n",
    )
    typed = [(ASKED, "y\n"), ("[l]ater: ", "y\n"), (ASKED, "y\n"), (ASKED, "y\n")]
    shown = at_terminal(shop, ["run", "side.yaml", "--step"], typed)
    assert "exit 0" in shown
    assert shop.log() == ["left ran", "many[0] ran", "many[1] ran"]


def test_children_and_waits_are_held_too_and_may_be_left_out(shop: Workshop) -> None:
    shop.write(
        "family.yaml",
        "name: family\nsteps:\n"
        "  - {id: rest, wait: 1h}\n"
        "  - {id: news, wait: {event: news}}\n"
        "  - {id: no_child, start: two.yaml}\n"
        "  - {id: child, start: two.yaml}\n",
    )
    typed = [(ASKED, word) for word in ("s\n", "s\n", "s\n", "y\n", "y\n", "s\n")]
    shown = at_terminal(shop, ["run", "family.yaml", "--step"], typed)
    assert "wait for the event news" in shown
    assert "next: two: first" in shown
    assert "exit 0" in shown
    assert shop.log() == ["first ran"]


def test_a_function_goes_step_by_step_as_well(shop: Workshop) -> None:
    shown = at_terminal(shop, ["run", "double", "-i", "number=4", "--step"], [(ASKED, "y\n")])
    assert "next: work.do" in shown
    assert "exit 0" in shown


def test_without_a_terminal_it_is_refused_and_nothing_is_started(shop: Workshop) -> None:
    for more in ([], ["--json"], ["--no-ask"]):
        refused = shop.run("run", "two.yaml", "--step", *more, code=2)
        assert "--step asks before each step, and there is no terminal to ask at; type it at a terminal" in refused.err
    assert not shop.store.exists()


def test_what_another_process_drives_cannot_be_held_here(shop: Workshop) -> None:
    driving = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    shown = at_terminal(shop, ["resume", "@last", "--step"], [])
    assert "and --step can only hold what this one drives" in shown
    assert "exit 2" in shown
    shop.open_gate()
    shop.finish(driving)
