"""The runner of the documentation, on pages small enough to see at a glance what it must say about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import pages
from docs.pages import PageError, run_page


def failure_of(markdown: str, folder: Path) -> str:
    with pytest.raises(PageError) as failure:
        run_page("page.md", markdown, folder)
    return str(failure.value)


def test_blocks_of_a_page_share_a_folder_and_run_in_order(tmp_path: Path) -> None:
    markdown = (
        "```yaml file=plans/report.yaml\nname: report\n```\n"
        "```python\nfrom pathlib import Path\nPath('seen').write_text(Path('plans/report.yaml').read_text())\n```\n"
        "```bash\ngrep -q report seen\nmkdir done\n```\n"
    )
    run_page("page.md", markdown, tmp_path)
    assert (tmp_path / "done").is_dir()


def test_a_failing_command_is_reported_with_page_line_command_and_output(tmp_path: Path) -> None:
    said = failure_of("# Title\n\n```bash\necho what happened\nexit 4\n```\n", tmp_path)
    assert said == ("page.md:3: exit code 4, expected 0\ncommand:\necho what happened\nexit 4\noutput:\nwhat happened")


def test_a_failing_python_block_shows_its_traceback(tmp_path: Path) -> None:
    assert "ZeroDivisionError" in failure_of("```python\n1 / 0\n```\n", tmp_path)


def test_a_stated_exit_code_is_expected_of_the_last_command_only(tmp_path: Path) -> None:
    run_page("page.md", "```console exit=3\n$ true\n$ exit 3\n```\n", tmp_path)
    said = failure_of("```console exit=3\n$ exit 3\n$ exit 3\n```\n", tmp_path)
    assert said.startswith("page.md:1: exit code 3, expected 0")


def test_console_output_is_compared_only_when_asked(tmp_path: Path) -> None:
    shown = "\n$ echo took 12 ms\ntook … ms\n\n```\n"
    run_page("page.md", "```console check" + shown, tmp_path)
    run_page("page.md", "```console\n$ echo one\ntwo\n```\n", tmp_path)
    said = failure_of("```console check\n$ echo one\ntwo …\n```\n", tmp_path)
    assert said == "page.md:1: nothing printed matches: two …\ncommand:\necho one\noutput:\none"


def test_a_console_command_may_continue_on_the_next_line(tmp_path: Path) -> None:
    run_page("page.md", "```console check\n$ echo one \\\n  two\none two\n```\n", tmp_path)


def test_a_block_left_out_is_not_run(tmp_path: Path) -> None:
    run_page("page.md", '```bash no-run="needs a key"\nexit 1\n```\n', tmp_path)


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "COMMAND_TIMEOUT_S", 0.2)
    said = failure_of("```bash\necho before\nsleep 600 & wait\n```\n", tmp_path)
    assert said.startswith("page.md:1: still running after 0.2 s")
    assert said.endswith("output:\nbefore")


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("```\nplain\n```\n", 'page.md:1: the block\'s language is "", expected one of ['),
        ("```ruby\nputs 1\n```\n", 'page.md:1: the block\'s language is "ruby", expected one of ['),
        ("```bash skip\ntrue\n```\n", "page.md:1: unknown ['skip'] after the language, expected ["),
        ("```bash no-run\ntrue\n```\n", 'page.md:1: no-run needs a reason: no-run="needs a key"'),
        ("```bash exit=three\nfalse\n```\n", 'page.md:1: exit="three" is not a number: exit=3'),
        ("```bash\ntrue\n", "page.md:1: this block is never closed; end it with ```"),
        ("```console\nno prompt\n```\n", "page.md:1: a console block starts with a line `$ command`"),
        ("```yaml\na: [\n```\n", "page.md:1: this yaml block does not parse: "),
        ("```json\n{\n```\n", "page.md:1: this json block does not parse: "),
    ],
)
def test_a_block_that_cannot_be_understood_fails_its_page(markdown: str, expected: str, tmp_path: Path) -> None:
    assert failure_of(markdown, tmp_path).startswith(expected)
