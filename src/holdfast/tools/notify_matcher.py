"""The child that looks for patterns in a message: a program of its own, so that one that never ends can be killed.

In a thread it could not: Python's `re` lets nobody else run until it is done. Started as
`python -I -S notify_matcher.py` with a line of JSON on its standard input (`block`, `mask`, `instead`, `title`,
`text`). Says with a line of JSON which pattern it begins with (`setting`, `pattern`), and at last what came of it:
`blocked`, or `title` and `text`. Standard library only.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any


def main(given: str) -> None:
    asked: dict[str, Any] = json.loads(given)
    title: str = asked["title"]
    text: str = asked["text"]
    for pattern in asked["block"]:
        _say(setting="block", pattern=pattern)
        if re.search(pattern, title) or re.search(pattern, text):
            _say(blocked=pattern)
            return
    for pattern in asked["mask"]:
        _say(setting="mask", pattern=pattern)
        title = re.sub(pattern, asked["instead"], title)
        text = re.sub(pattern, asked["instead"], text)
    _say(title=title, text=text)


def _say(**words: str) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main(sys.stdin.read())
