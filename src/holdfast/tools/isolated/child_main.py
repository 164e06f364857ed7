"""The first lines of a process that answers one call of a tool (parent.py): find the engine's modules, then begin.

A program of its own, with the standard library only until it has been told where the others are.
"""

from __future__ import annotations

import json
import socket
import sys

LINE = 3  # the descriptor over which the engine is spoken to

if __name__ == "__main__":
    line = socket.socket(fileno=LINE)
    line.set_inheritable(False)
    words = line.makefile("rb")
    way = json.loads(words.readline())
    sys.path[:] = way["sys_path"]

    from holdfast.tools.isolated.child import answer

    sys.exit(answer(line, words, way))
