"""`holdfast completion`: scripts for bash, zsh and fish, and the hidden command they ask for every word.

The script hands over the words as the shell has split them; the parser's own knowledge of commands and options says
what may follow, and cli/common/completions.py what values there are. Whatever goes wrong, a shell that completes is
told nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.common import completions
from holdfast.cli.common.options import AsJson
from holdfast.cli.output.format import json_line
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import UsageError

BASH = r"""# holdfast completion for bash
_holdfast() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("$line"); done \
        < <(holdfast complete bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]] && type compopt &>/dev/null; then
        compopt -o nospace
    fi
}
complete -o bashdefault -o default -F _holdfast holdfast
"""
ZSH = r"""#compdef holdfast
_holdfast() {
    local line value found=1
    local -a whole partial
    while IFS= read -r line; do
        value=${${line%%$'\t'*}//:/\\:}
        if [[ $value == *[/=] ]]; then partial+=("$value:${line#*$'\t'}"); else whole+=("$value:${line#*$'\t'}"); fi
    done < <(holdfast complete zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if (( ! $#whole && ! $#partial )); then _files; return; fi
    (( $#whole )) && _describe holdfast whole && found=0
    (( $#partial )) && _describe holdfast partial -S '' && found=0
    return found
}
if [[ $funcstack[1] == _holdfast ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
"""
FISH = r"""# holdfast completion for fish
function __holdfast_complete
    set -l last (commandline -ct)
    set -l words (commandline -opc) "$last"
    set -l found (holdfast complete fish -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$last"
    end
end
complete -c holdfast -f -a '(__holdfast_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
_BASH_SPECIAL = re.compile(r"([^\w@%+=:,./-])")


def register(app: typer.Typer) -> None:
    app.command()(completion)
    app.command(hidden=True)(complete)


def completion(
    shell: Annotated[
        str,
        typer.Argument(metavar="SHELL", help="bash, zsh or fish.", autocompletion=completions.shells),
    ],
    install: Annotated[bool, typer.Option("--install", help="Write it to where the shell looks for it.")] = False,
    as_json: AsJson = False,
) -> int:
    """Print the script that completes commands, options, ids, steps and programs in your shell.

    \b
    Example:
      source <(holdfast completion bash)
      holdfast completion fish --install
    """
    if shell not in SCRIPTS:
        known = did_you_mean(shell, SCRIPTS) or f"; there are: {', '.join(SCRIPTS)}"
        raise UsageError(f'there is no completion for "{shell}"{known}')
    file = _install(shell) if install else None
    if as_json:
        print(json_line({"shell": shell, "file": str(file) if file else None, "script": SCRIPTS[shell]}))
    elif file is None:
        print(SCRIPTS[shell], end="")
    else:
        print(f"wrote {file}; it takes effect in the next shell")
        if shell == "zsh":
            print(f"if it does not: fpath=({file.parent} $fpath) belongs before compinit in ~/.zshrc")
    return 0


def _install(shell: str) -> Path:
    home = Path(os.environ.get("HOME") or Path.home())
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    file = {
        "bash": data / "bash-completion" / "completions" / "holdfast",
        "zsh": data / "zsh" / "site-functions" / "_holdfast",
        "fish": config / "fish" / "completions" / "holdfast.fish",
    }[shell]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SCRIPTS[shell], "utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
    return file


# ---- what the scripts ask ------------------------------------------------------------------------------------------


def complete(
    shell: Annotated[str, typer.Argument()], words: Annotated[list[str] | None, typer.Argument()] = None
) -> int:
    """Print what may stand in the place of the last of the words. The scripts of `holdfast completion` ask this.

    \b
    Example:
      holdfast completion bash
    """
    try:
        lines = list(_lines(shell, words or [""]))
    except Exception:  # a half-typed word is no occasion for an error
        return 0
    if lines:
        print("\n".join(lines))
    return 0


def _lines(shell: str, words: Sequence[str]) -> Iterable[str]:
    *before, incomplete = _joined([word.replace("\\", "") for word in words]) if shell == "bash" else words
    option, equals, _ = incomplete.partition("=")
    prefix = option + equals if shell != "bash" and equals and option.startswith("-") else ""
    for item in _items(before, incomplete):
        if shell == "bash":
            yield _BASH_SPECIAL.sub(r"\\\1", item.value)
        else:
            about = " ".join((item.help or "").split())
            yield f"{prefix}{item.value}\t{about}"


def _joined(words: Sequence[str]) -> list[str]:
    """Bash splits `--status=waiting` in three; the value is completed alone, the option must be known."""
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or joined[-1].endswith("=")) and joined[-1].startswith("-"):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _items(before: Sequence[str], incomplete: str) -> list[Any]:
    """The parser's own way to find what is being typed. It is private there, and typer is pinned for it."""
    import typer.main
    from typer._click import shell_completion

    from holdfast.cli.main import SHARED, app, split_shared

    first, rest = split_shared(before)
    arguments = [before[-1]] if before and before[-1] in SHARED else first + rest
    command: Any = typer.main.get_command(app)
    # An option that still waits for its value is not parsed: the parser would give up the words before it as well.
    waits = bool(arguments) and arguments[-1].startswith("-") and arguments[-1] != "--"
    context = shell_completion._resolve_context(  # pyright: ignore[reportPrivateUsage]
        command, {}, "holdfast", arguments[:-1] if waits else arguments
    )
    typed, beginning = shell_completion._resolve_incomplete(  # pyright: ignore[reportPrivateUsage]
        context, arguments, incomplete
    )
    return typed.shell_complete(context, beginning)
