"""On a terminal: the live picture, and questions put to the person who sits there."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable, Sequence

from cli.workshop import PATIENCE_S, Workshop
from servers.commands import environment, start_at_terminal

KILL = "kill the process"  # in place of an answer


def at_terminal(
    shop: Workshop, arguments: Sequence[str], typed: Sequence[tuple[str, str | Callable[[], str]]], **environ: str
) -> str:
    """Run a command on a terminal of its own, answering each text when it appears. Ends with the exit code."""
    env = environment(TERM="xterm", COLUMNS="100", LINES="30", **environ)
    process, terminal = start_at_terminal(list(arguments), cwd=shop.folder, env=env)
    shown, waiting, answered, give_up = "", list(typed), 0, time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < give_up:
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                break
            shown += piece.decode(errors="replace")
            if waiting and (found := shown.find(waiting[0][0], answered)) >= 0:
                answered = found + len(waiting[0][0])
                answer = waiting.pop(0)[1]
                if answer == KILL:
                    process.kill()
                else:
                    os.write(terminal, (answer if isinstance(answer, str) else answer()).encode())
    finally:
        os.close(terminal)
        code = process.wait()
    assert not waiting, shown
    return f"{shown}\nexit {code}"


def test_the_person_is_asked_and_may_look_at_the_details_first(shop: Workshop) -> None:
    shown = at_terminal(shop, ["run", "ask.yaml"], [("[l]ater: ", "d\n"), ("[l]ater: ", "y\n")])
    assert "publish: Publish it?" in shown
    assert "  value: 5" in shown
    assert "exit 0" in shown
    assert shop.log() == ["draft ran", "publish ran"]


def test_details_show_the_text_that_is_approved_and_numbers_and_words_both_work(shop: Workshop) -> None:
    shop.write(
        "letter.yaml",
        "name: letter\nsteps:\n"
        "  - {id: send, tool: files.write, approval: required,\n"
        '     with: {path: letter.txt, text: "Dear sea,\\nbe calm.\\n"}}\n'
        "  - {id: again, tool: files.write, approval: required, with: {path: other.txt, text: hello}}\n",
    )
    shown = at_terminal(
        shop,
        ["run", "letter.yaml"],
        [
            ("approve? 1 [y]es, 2 [n]o, 3 [d]etails, 4 [l]ater: ", "3\n"),
            ("4 [l]ater: ", "maybe\n"),
            ("4 [l]ater: ", "1\n"),
            ("4 [l]ater: ", "approve\n"),
        ],
    )
    assert re.search(r"  path: letter.txt\s+text:\s+Dear sea,\s+be calm\.\s", shown)
    assert '"remedies"' not in shown
    assert 'expected yes or no, or their numbers, got "maybe"' in shown
    assert "exit 0" in shown
    assert (shop.folder / "letter.txt").read_text() == "Dear sea,\nbe calm.\n"


def test_a_choice_is_answered_by_its_number(shop: Workshop) -> None:
    shop.write(
        "paint.yaml",
        "name: paint\nsteps:\n  - {id: colour, tool: human.ask, with: {question: Which?, choices: [red, blue]}}\n"
        "output: ${{ steps.colour.output }}\n",
    )
    shown = at_terminal(shop, ["run", "paint.yaml"], [("answer (1 red, 2 blue; empty line for later): ", "2\n")])
    assert "exit 0" in shown
    assert shop.run("show", "@last", "--json").json["output"] == "blue"


def test_a_correction_is_chosen_by_its_number(shop: Workshop) -> None:
    shop.write(
        "odd.yaml",
        "name: odd\nsteps:\n  - {id: count, tool: work.even, with: {number: 3}}\noutput: ${{ steps.count.output }}\n",
    )
    wanted = "what now? 1 again, 2 done OUTPUT, 3 skip, 4 fail, 5 [d]etails, 6 [l]ater: "
    shown = at_terminal(shop, ["run", "odd.yaml"], [(wanted, "7\n"), (wanted, "2 8\n")])
    assert 'expected one of again, done, skip, fail, or its number, got "7"' in shown
    assert "exit 0" in shown
    assert shop.run("show", "@last", "--json").json["output"] == 8


def test_later_leaves_the_question_open(shop: Workshop) -> None:
    shown = at_terminal(shop, ["run", "ask.yaml"], [("[l]ater: ", "l\n")])
    assert "holdfast approve " in shown
    assert "exit 3" in shown
    assert "exit 3" in at_terminal(shop, ["resume", "@last"], [("[l]ater: ", "\x04")])
    assert "exit 1" in at_terminal(shop, ["resume", "@last"], [("[l]ater: ", "perhaps\n"), ("[l]ater: ", "n\n")])


def test_no_ask_does_not_ask(shop: Workshop) -> None:
    shown = at_terminal(shop, ["run", "ask.yaml", "--no-ask"], [])
    assert "[l]ater" not in shown
    assert "exit 3" in shown


def test_a_question_and_a_correction_are_answered_at_the_terminal(shop: Workshop) -> None:
    assert "painted green" in at_terminal(shop, ["run", "asks"], [("for later): ", "green\n")])
    shown = at_terminal(
        shop, ["run", "even.yaml"], [("what now? 1 again, 2 done OUTPUT, 3 skip, 4 fail, 5 [d]etails", "skip\n")]
    )
    assert "exit 0" in shown
    shown = at_terminal(shop, ["run", "even.yaml"], [("[l]ater: ", "done\n"), ("[l]ater: ", "done 4\n")])
    assert "expected a whole number, got null; say what it gave" in shown
    assert "exit 0" in shown
    assert shop.run("show", "@last", "--json").json["steps"][0]["output"] == 4


def test_the_question_goes_away_when_it_is_answered_elsewhere(shop: Workshop) -> None:
    def approve() -> str:
        shop.run("approve", "@last")
        return ""

    shown = at_terminal(shop, ["run", "ask.yaml"], [("[l]ater: ", approve)])
    assert "answered elsewhere" in shown
    assert "exit 0" in shown
    assert shop.log() == ["draft ran", "publish ran"]


def test_ctrl_c_while_asked_interrupts(shop: Workshop) -> None:
    assert "exit 130" in at_terminal(shop, ["run", "ask.yaml"], [("[l]ater: ", "\x03")])
    assert shop.newest()["status"] == "interrupted"


def test_the_live_picture_shows_steps_and_a_bar_and_gives_the_cursor_back(shop: Workshop) -> None:
    shop.open_gate()
    shown = at_terminal(shop, ["run", "gate.yaml"], [])
    assert "✔" in shown
    assert "3/3" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert "exit 0" in shown


def test_a_long_message_leaves_the_names_of_steps_alone(shop: Workshop) -> None:
    message = "the tide is far too high " * 20
    shop.write(
        "loud.yaml",
        "name: loud\nsteps:\n"
        f"  - {{id: measure_the_tide, tool: work.fail, with: {{text: {message}}}, critical: false}}\n",
    )
    shown = at_terminal(shop, ["run", "loud.yaml"], [], NO_COLOR="1")
    *_, row = re.findall(r"✘ measure_the_tide .*", shown)
    assert "not critical, going on: the tide is far" in row
    assert row.rstrip().endswith("…")


def test_ctrl_c_at_the_terminal_interrupts(shop: Workshop) -> None:
    shown = at_terminal(shop, ["run", "gate.yaml"], [("work.gate", "\x03")])
    assert "exit 130" in shown
    assert shop.newest()["status"] == "interrupted"


def test_colours_on_a_terminal_but_never_with_no_color(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    coloured = re.compile(r"\x1b\[\d+m")
    assert coloured.search(at_terminal(shop, ["show", "@last"], []))
    assert not coloured.search(at_terminal(shop, ["show", "@last"], [], NO_COLOR="1"))
    assert not coloured.search(at_terminal(shop, ["list"], [], NO_COLOR="1"))
    assert coloured.search(at_terminal(shop, ["run", "two.yaml"], []))
    assert not coloured.search(at_terminal(shop, ["run", "two.yaml"], [], NO_COLOR="1"))
