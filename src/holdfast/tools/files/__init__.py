"""Files below the allowed folders: read, written, edited, moved, deleted, listed and searched, each change undoable.

family.py has the tools; grounds.py and spot.py say where they may work, disk.py how a change is made, before.py what is
kept of what was there, and rollback.py how it is put back.
"""

from holdfast.tools.files.toolset import Config, Files

__all__ = ["Config", "Files"]
