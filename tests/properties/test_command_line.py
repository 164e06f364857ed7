"""Whatever is typed after `holdfast`, the answer is words and a documented exit code, never a traceback."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.workshop import PLANS, TOOLS
from holdfast.cli.command_index import FAMILIES
from holdfast.cli.main import run
from properties.strategies import examples

EXIT_CODES = {0, 1, 2, 3, 130}  # docs/cli.md
COMMANDS = sorted(name for names in FAMILIES.values() for name in names)
# `demo` starts processes of its own and kills them, `service` and `tools` are followed by another word: not in here.
TYPED = [name for name in COMMANDS if name not in ("demo", "service", "tools")]

_IDS = st.sampled_from(["@last", "@first", "0", "", "zzz", "01", "-", "é", "a/b", "%", "'", "@last "])
_OPTIONS = st.sampled_from(
    ["--json", "--help", "-h", "--version", "--why", "--now", "--sticky", "--with", "--done", "--again", "--skip",
     "--fail",
     "--output", "--release", "--check", "--hold", "--no-ask", "--limit", "--status", "--since", "--from", "--plan",
     "--at",
     "-i", "-n", "--", "-", "--store", "--store=", "-C", "--folder=", "--nonsense", "--force", "--title", "--key",
     "--label",
     "--owner", "--tree", "--all", "--name", "--step", "--dry-run", "--mermaid", "--strict", "-o"]
)  # fmt: skip
_VALUES = st.sampled_from(
    ["two.yaml", "ask.yaml", "fail.yaml", "even.yaml", "double", "nowhere.yaml", "tools.py", ".", "..", "x=1",
     "number=3", "who=",
     "count=x", "=", "{", '{"a": 1}', "[1", "1", "-1", "9" * 400, "1e999", "nan", "first", "publish", "running", "true",
     "a\x00b", "x" * 300, "~nobody-here/x", "help", "\udcff", "work.do", "*", "[red]x[/red]", "2026-01-01"]
)  # fmt: skip
arguments = st.builds(
    lambda first, command, rest: [*first, command, *rest],
    st.lists(_OPTIONS | _VALUES, max_size=1),
    st.sampled_from(TYPED) | _VALUES,
    st.lists(_IDS | _OPTIONS | _VALUES | st.text(max_size=4), max_size=4),
)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("typed") / "so" / "deep" / "that"  # `init ..` stays among us
    folder.mkdir(parents=True)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def furnish(folder: Path) -> None:
    """Before every command, since `schema -o FILE` writes where it is told to."""
    (folder / "holdfast.toml").write_text('modules = ["tools.py"]\n')
    (folder / "tools.py").write_text(TOOLS)
    for name in ("two.yaml", "ask.yaml", "fail.yaml", "even.yaml"):  # none that waits for what never comes
        (folder / name).write_text(PLANS[name])


def typed(folder: Path, words: list[str]) -> tuple[int, str]:
    """A worker is told to end when it has nothing to do: it would stay for ever."""
    furnish(folder)
    os.chdir(folder)  # -C moves
    words = [part for word in words for part in ((word, "--once") if word == "worker" else (word,))]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = run(words)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
    return code, said.getvalue()


@examples(120)
@given(arguments)
def test_any_command_line_is_answered_in_words(workshop: Path, words: list[str]) -> None:
    code, said = typed(workshop, words)
    assert code in EXIT_CODES, (code, said)
    assert "Traceback" not in said
    assert code == 0 or said.strip(), "it failed without a word"


HALF = "\udcff"  # what a byte that is no UTF-8 becomes on its way in
DEEP = "[" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ["-C", "a\0b", "list"],
        ["--store", "x" * 300, "list"],
        ["--store", "x" * 300, "doctor"],
        ["--store", "~nobody-here/x", "list"],
        ["run", "a\0b.yaml"],
        ["run", "x" * 300 + ".yaml"],
        ["run", "two.yaml", "--title", HALF],
        ["show", HALF],
        ["list", "--owner", HALF],
        ["pause", "@last", "--why", HALF],
        ["resolve", "@last", "x", "--done", "--output", DEEP],
        ["list", "--limit", "9" * 400],
    ],
    ids=lambda words: ascii(" ".join(words))[:40],
)
def test_what_no_journal_or_file_can_hold_is_wrong_use(workshop: Path, words: list[str]) -> None:
    typed(workshop, ["run", "two.yaml"])
    code, said = typed(workshop, words)
    assert code == 2
    assert said.startswith("holdfast: ")


@pytest.mark.parametrize("command", TYPED)
def test_every_command_explains_itself_and_survives_a_stray_word(workshop: Path, command: str) -> None:
    assert typed(workshop, [command, "--help"])[0] == 0
    code, said = typed(workshop, [command, "no-such-thing", "--no-such-option"])
    assert code == 2
    assert "--help` shows how" in said
