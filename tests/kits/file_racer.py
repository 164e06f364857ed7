"""Swaps a name with a link again and again, each time in one instant: `file_racer.py FOLDER NAME LINK TARGET`.

Makes the link again when somebody removed it, or wrote a file in its place. Ends when its standard input
does, and prints how often it swapped.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
from contextlib import suppress

RENAME_EXCHANGE = 2


def main(folder: str, name: str, link: str, target: str) -> None:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    swap = ctypes.CDLL(None).renameat2
    swaps = 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        if not any(os.path.islink(os.path.join(folder, one)) for one in (name, link)):
            with suppress(OSError):
                os.unlink(link, dir_fd=held)
        for _ in range(100):
            if swap(held, name.encode(), held, link.encode(), RENAME_EXCHANGE) == 0:
                swaps += 1
            else:
                with suppress(OSError):
                    os.symlink(target, link, dir_fd=held)
    print(swaps)


if __name__ == "__main__":
    main(*sys.argv[1:])
