"""The child that matches a regular expression: a program of its own, so that one that never ends can be killed.

Started as `python -I -S matcher.py` with everything on its standard input: a line of JSON (`expression`,
`ignore_case`, `matches_max`), then for each file a line of JSON (`path`, `bytes`) and its content. Answers with a line
of JSON per match, or one with `error`. It opens no file; standard library only.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, BinaryIO

LINE_CHARS_MAX = 2000  # of a line that is searched; what is beyond is not looked at
SHOWN_CHARS_MAX = 300


def main(given: BinaryIO) -> None:
    wanted: dict[str, Any] = json.loads(given.readline())
    try:
        expression = re.compile(wanted["expression"], re.IGNORECASE if wanted["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        print(json.dumps({"error": str(error)}))
        return
    left = int(wanted["matches_max"])
    while left > 0 and (head := given.readline()):
        file: dict[str, Any] = json.loads(head)
        for number, line in lines_of(given.read(file["bytes"])):
            if expression.search(line):
                print(json.dumps({"path": file["path"], "line": number, "text": line[:SHOWN_CHARS_MAX]}))
                left -= 1
                if left == 0:
                    break


def lines_of(content: bytes) -> list[tuple[int, str]]:
    """Numbered from 1, without their ends, as far as they are searched."""
    text = content.decode(errors="replace")
    return [(number, line[:LINE_CHARS_MAX].rstrip("\r")) for number, line in enumerate(text.split("\n"), 1)]


if __name__ == "__main__":
    main(sys.stdin.buffer)
