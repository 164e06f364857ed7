"""The child that matches regular expressions: a program of its own, so that one that never ends can be killed.

In a thread it could not: Python's `re` holds the interpreter's lock until it is done. Started by regex.py as
`python -I -S regex_child.py`, with JSON on its standard input: `texts`, and `requests`, each with a `pattern`. A
request with `instead` replaces what fits in all texts. One without looks for it, and the first that finds something
ends the work. Writes a line of JSON when it begins a request, and a last one: `found`, `texts` or `error`. Uses the
standard library only.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

LINE_CHARS_MAX = 2000  # of a line that is searched; what is beyond is not looked at


def main(job: dict[str, Any]) -> None:
    texts: list[str] = job["texts"]
    for number, request in enumerate(job["requests"]):
        _write(request=number)
        try:
            expression = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
        except (re.error, OverflowError, RecursionError) as error:
            _write(error=str(error))
            return
        if request["instead"] is not None:
            texts = [expression.sub(request["instead"], text) for text in texts]
        elif found := list(islice(_places(expression, texts, request["by_line"]), request["found_max"])):
            _write(found=found)
            return
    _write(texts=texts if any(request["instead"] is not None for request in job["requests"]) else [])


def _places(expression: re.Pattern[str], texts: list[str], by_line: bool) -> Iterator[tuple[int, int]]:
    """The number of the text, from 0, and of the line, from 1; 0 if the text is searched as a whole."""
    for index, text in enumerate(texts):
        for number, part in lines_of(text) if by_line else [(0, text)]:
            if expression.search(part):
                yield index, number


def lines_of(text: str) -> list[tuple[int, str]]:
    """Numbered from 1, without their ends, as far as they are searched."""
    return [(number, line[:LINE_CHARS_MAX].rstrip("\r")) for number, line in enumerate(text.split("\n"), 1)]


def _write(**words: Any) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main(json.load(sys.stdin))
