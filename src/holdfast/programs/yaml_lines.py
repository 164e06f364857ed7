"""From a place such as `steps[2].needs[0]` to its line in the file it was read from.

A place that is not in the file, such as a key that is missing, has the line of the nearest thing around it.
"""

from __future__ import annotations

import json
import re
from typing import Any

_PART = re.compile(r'(?:^|\.)(?P<name>[A-Za-z_][\w-]*)|\[(?P<index>\d+)\]|\[(?P<text>"(?:\\.|[^"\\])*")\]')


class Lines:
    """The lines of one file. JSON is read as YAML, which holds nearly all of it; what cannot be read has no lines."""

    def __init__(self, text: str) -> None:
        import yaml

        reader: Any = yaml
        try:
            self._root: Any = reader.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, RecursionError, ValueError):
            self._root = None

    def of(self, place: str) -> int | None:
        """From 1; None when the file does not say."""
        if self._root is None:
            return None
        node, line = self._root, self._root.start_mark.line
        for part in _PART.finditer(place):
            found = _inside(node, part)
            if found is None:
                break
            node, line = found
        return line + 1


def _inside(node: Any, part: re.Match[str]) -> tuple[Any, int] | None:
    """The value under a key or an index, and the line on which it is named."""
    if part["index"] is not None:
        index = int(part["index"])
        if node.id != "sequence" or index >= len(node.value):
            return None
        item = node.value[index]
        return item, item.start_mark.line
    wanted = part["name"] or json.loads(part["text"])
    if node.id != "mapping":
        return None
    for key, value in node.value:
        if key.id == "scalar" and key.value == wanted:
            return value, key.start_mark.line
    return None
