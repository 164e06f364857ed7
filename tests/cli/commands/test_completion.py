"""Completion: the scripts in real shells, what they are offered, and that a shell is never told of an error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.workshop import Workshop
from holdfast.cli.commands.completion import SCRIPTS
from servers.commands import environment, script_at


def offered(shop: Workshop, *words: str, shell: str = "zsh") -> list[str]:
    """What may stand in the place of the last word."""
    asked = shop.run("complete", shell, "--", *words)
    assert asked.err == ""
    return [line.partition("\t")[0] for line in asked.out.splitlines()]


def test_commands_options_and_values_are_offered(shop: Workshop) -> None:
    assert {"run", "resume", "retry"} <= set(offered(shop, "r"))
    assert "complete" not in offered(shop, "")
    assert offered(shop, "service", "un") == ["uninstall"]
    assert offered(shop, "resume", "--fo") == ["--force"]
    assert offered(shop, "list", "--status", "wa") == ["waiting"]
    assert offered(shop, "list", "--status=wa") == ["--status=waiting"]
    assert offered(shop, "list", "--status", "=", "wa", shell="bash") == ["waiting"]
    assert offered(shop, "completion", "") == ["bash", "zsh", "fish"]


def test_ids_are_offered_whole_or_by_their_end(shop: Workshop) -> None:
    identity = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    assert offered(shop, "show", "") == ["@last", identity]
    assert offered(shop, "show", identity[:9]) == [identity]
    assert offered(shop, "show", identity[-12:-4]) == [identity[-12:]]
    assert f"{identity}\twaiting ask" in shop.run("complete", "zsh", "--", "show", "").out


def test_steps_are_offered_where_only_they_can_be_meant(shop: Workshop) -> None:
    identity = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    assert offered(shop, "approve", identity, "") == ["publish"]
    assert offered(shop, "resolve", identity, "") == []
    assert offered(shop, "retry", "@last", "--from", "") == ["draft", "publish"]
    assert offered(shop, "fork", "@last", "--at", "pu") == ["publish"]
    assert offered(shop, "approve", "nobody", "") == []


def test_steps_are_those_of_the_execution_that_was_typed(shop: Workshop) -> None:
    older = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    shop.run("run", "two.yaml")
    assert offered(shop, "retry", older, "--from", "") == ["draft", "publish"]
    assert offered(shop, "fork", older, "--at", "") == ["draft", "publish"]
    assert offered(shop, "fork", older, "--at=") == ["--at=draft", "--at=publish"]
    assert offered(shop, "logs", older, "") == ["draft", "publish"]
    assert offered(shop, "rollback", older, "pu") == ["publish"]
    assert offered(shop, "logs", "@last", "") == ["first", "second"]
    assert offered(shop, "retry", "--from", "") == []  # whose steps is not said yet


def test_filters_are_offered_what_the_executions_say(shop: Workshop) -> None:
    asks = shop.run("run", "ask.yaml", "--label", "team=sea", "--owner", "ann", "--json", code=3).lines[-1]["id"]
    fails = shop.run("run", "fail.yaml", "--label", "team=harbour", "--json", code=1).lines[-1]["id"]
    assert offered(shop, "list", "--execution", "") == [fails, asks]
    assert offered(shop, "list", "--name", "") == ["fail", "ask"]
    assert offered(shop, "list", "--owner", "a") == ["ann"]
    assert offered(shop, "stop", "--failed-step", "") == ["broken"]
    assert offered(shop, "approve", "--step", "") == ["publish"]
    assert offered(shop, "list", "--label", "t") == ["team="]
    assert offered(shop, "list", "--label", "team=") == ["team=harbour", "team=sea"]
    assert offered(shop, "list", "--status", "he") == ["held"]
    assert offered(shop, "doctor", "--release", "") == []  # nobody is set aside


def test_what_is_named_in_files_is_offered(shop: Workshop) -> None:
    identity = shop.run("run", "two.yaml", "--json").lines[-1]["id"]
    shop.write("holdfast.schema.json", "{}")
    assert "holdfast.schema.json" not in offered(shop, "run", "hold")
    assert offered(shop, "run", "two.yaml", "-i", "") == ["count=", "who="]
    assert offered(shop, "run", "double", "-i", "n") == ["number="]
    assert {"work.do", "work.even", "shell.run"} <= set(offered(shop, "tools", "test", ""))
    assert offered(shop, "tools", "test", "work.e") == ["work.even"]
    assert {"two.yaml", "@last", identity} <= set(offered(shop, "graph", ""))
    assert offered(shop, "graph", "tw") == ["two.yaml"]


def test_programs_are_plans_and_functions_and_no_module_is_run_for_them(shop: Workshop) -> None:
    more = '\n@holdfast.function(name="other.name")\nasync def other(ctx):\n    """Do something else."""\n'
    shop.write("tools.py", (shop.folder / "tools.py").read_text() + more + "\nopen('was_run', 'w')\n")
    (shop.folder / "plans").mkdir()
    shop.write("plans/deep.yml", "")
    assert offered(shop, "run", "do") == ["double"]
    assert "other.name\tDo something else." in shop.run("complete", "fish", "--", "run", "other").out
    assert offered(shop, "run", "tw") == ["two.yaml"]
    assert offered(shop, "run", "plans") == ["plans/"]
    assert offered(shop, "run", "plans/") == ["plans/deep.yml"]
    assert "tools.py" not in offered(shop, "run", "")
    assert not (shop.folder / "was_run").exists()


def test_the_shared_options_are_minded_wherever_they_stand(shop: Workshop) -> None:
    shop.write("holdfast.toml", "[profiles.night]\nstore = 'night.db'\n[profiles.ci]\n")
    assert offered(shop, "--profile", "") == offered(shop, "list", "--profile", "") == ["night", "ci"]
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n')
    identity = shop.run("run", "two.yaml", "--store", "other.db", "--json").lines[-1]["id"]
    assert offered(shop, "show", "--store", "other.db", "") == ["@last", identity]
    assert offered(shop, "show", "") == []


@pytest.mark.parametrize("words", [("show", ""), ("approve", "@last", ""), ("run", "nowhere/x"), ("nothing", "x"), ()])
def test_whatever_goes_wrong_the_shell_is_told_nothing(shop: Workshop, words: tuple[str, ...]) -> None:
    shop.write("holdfast.toml", "this is not toml")
    asked = shop.run("complete", "bash", "--", *words)
    assert asked.err == ""


def test_a_look_leaves_the_journal_as_it_is(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    before = {path.name: path.read_bytes() for path in shop.store.parent.iterdir() if path.is_file()}
    offered(shop, "show", "")
    offered(shop, "approve", "@last", "")
    after = {path.name: path.read_bytes() for path in shop.store.parent.iterdir() if path.is_file()}
    assert after["journal.db"] == before["journal.db"]
    shop.store.write_bytes(b"damaged" * 500)
    assert offered(shop, "show", "") == []


def test_odd_characters_are_escaped_for_bash(shop: Workshop) -> None:
    (shop.folder / "my plans").mkdir()
    assert offered(shop, "run", "my", shell="bash") == ["my\\ plans/"]


# ---- the scripts ---------------------------------------------------------------------------------------------------


def in_shell(shop: Workshop, shell: str, text: str) -> list[str]:
    """Run a text in a real shell, where `holdfast` is the one under test."""
    folder = script_at(shop.folder / "bin")
    environ = environment(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}", HOME=str(shop.folder))
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *options, "-c", text], cwd=shop.folder, env=environ, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


def test_bash_completes_with_the_script(shop: Workshop) -> None:
    identity = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    ask = (
        "source <(holdfast completion bash); COMP_WORDS=({}); COMP_CWORD={}; _holdfast; "
        'printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    assert in_shell(shop, "bash", ask.format("holdfast li", 1)) == ["list"]
    assert in_shell(shop, "bash", ask.format('holdfast show ""', 2)) == ["@last", identity]
    assert in_shell(shop, "bash", ask.format('holdfast approve @last ""', 3)) == ["publish"]
    assert in_shell(shop, "bash", ask.format("holdfast list --status = wai --json", 4)) == ["waiting"]
    assert in_shell(shop, "bash", ask.format("holdfast show --store nowhere.db x", 4)) == [""]
    assert "complete -o bashdefault -o default -F _holdfast holdfast" in in_shell(
        shop, "bash", "source <(holdfast completion bash); complete -p holdfast"
    )


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here; its syntax is looked at below")
def test_zsh_completes_with_the_script(shop: Workshop) -> None:
    identity = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    (shop.folder / "plans").mkdir()
    ask = (
        'compdef() { :; }; _files() { print files; }; _describe() { print -rl -- "${(P@)2}" "${@[3,-1]}"; }\n'
        "source <(holdfast completion zsh); words=(holdfast %s); CURRENT=$#words; _holdfast"
    )
    assert in_shell(shop, "zsh", ask % "show ''") == ["@last:the newest", f"{identity}:waiting ask"]
    assert in_shell(shop, "zsh", ask % "run plan") == ["plans/:a folder", "-S", ""]
    assert in_shell(shop, "zsh", ask % "show nothing") == ["files"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here; its syntax is looked at below")
def test_fish_completes_with_the_script(shop: Workshop) -> None:
    identity = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    ask = "holdfast completion fish | source; complete -C 'holdfast %s'"
    assert set(in_shell(shop, "fish", ask % "show ")) == {"@last\tthe newest", f"{identity}\twaiting ask"}
    assert in_shell(shop, "fish", ask % "approve @last ") == ["publish\twaiting"]
    assert in_shell(shop, "fish", ask % "run --plan tools.p")[0].startswith("tools.py")


def test_the_scripts_parse_even_where_their_shells_are_missing() -> None:
    for shell in ("bash", "zsh"):  # bash parses what we use of zsh; what words mean, only zsh itself can tell
        subprocess.run(["bash", "-n"], input=SCRIPTS[shell], text=True, check=True, timeout=60)
    opened = re.findall(r"^\s*(function|if|for|while|switch|begin)\b", SCRIPTS["fish"], re.MULTILINE)
    closed = re.findall(r"^\s*end\b", SCRIPTS["fish"], re.MULTILINE)
    assert len(opened) == len(closed) == 2


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".local/share/bash-completion/completions/holdfast"),
        ("zsh", ".local/share/zsh/site-functions/_holdfast"),
        ("fish", ".config/fish/completions/holdfast.fish"),
    ],
)
def test_a_script_is_installed_where_its_shell_looks(shop: Workshop, tmp_path: Path, shell: str, file: str) -> None:
    home = tmp_path / "home"
    places: dict[str, Any] = {"HOME": str(home), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    said = shop.run("completion", shell, "--install", **places).out
    assert f"wrote {home / file}" in said
    assert (home / file).read_text() == SCRIPTS[shell] == shop.run("completion", shell).out


def test_an_unknown_shell_and_a_home_that_cannot_be_written_are_refused(shop: Workshop) -> None:
    assert shop.run("completion", "bsh", code=2).err == (
        'holdfast: there is no completion for "bsh"; did you mean "bash"?\n'
    )
    home = shop.write("home", "a file")
    refused = shop.run("completion", "fish", "--install", code=2, HOME=str(home), XDG_CONFIG_HOME="").err
    assert "cannot be written: Not a directory" in refused
