"""What a file carries besides its content and mode: its own attributes (`user.*`), and who else may use it (an ACL).

Never a right to act as somebody else (`security.capability`), nor what only the system may set. File systems and
machines that know none of this have nothing to carry over.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

ACCESS_LIST = "system.posix_acl_access"
CARRIED = ("user.", "system.")
ATTRIBUTES_BYTES_MAX = 64 * 1024  # of one file, names and values; the smallest first, and access lists are small


def attributes_of(opened: int) -> dict[str, bytes]:
    if not hasattr(os, "listxattr"):
        return {}
    found: dict[str, bytes] = {}
    with contextlib.suppress(OSError):  # a file system without them
        for name in os.listxattr(opened):
            if name.startswith(CARRIED):
                with contextlib.suppress(OSError):  # gone meanwhile, or not ours to read
                    found[name] = os.getxattr(opened, name)
    room = ATTRIBUTES_BYTES_MAX
    carried: dict[str, bytes] = {}
    for name, value in sorted(found.items(), key=lambda each: (len(each[1]), each[0])):
        room -= len(name) + len(value)
        if room >= 0:
            carried[name] = value
    return carried


def give(opened: int, attributes: Mapping[str, bytes]) -> None:
    """Give a new file these, and no access list but the one among them: its folder may have given it one."""
    if not hasattr(os, "setxattr"):
        return
    if ACCESS_LIST not in attributes:
        with contextlib.suppress(OSError):
            os.removexattr(opened, ACCESS_LIST)
    for name, value in attributes.items():
        if name == ACCESS_LIST:
            os.setxattr(opened, name, value)  # or it is not written: without its list, more people might use it
        else:
            with contextlib.suppress(OSError):
                os.setxattr(opened, name, value)
