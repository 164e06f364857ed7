"""Files below the allowed folders: read, written, edited, moved, deleted, listed and searched, each change undoable.

toolset.py has the tools; allowed_roots.py and safe_path.py say where they may work, atomic_ops.py how a change is made,
undo_store.py what is kept of what was there, and rollback.py how it is put back.
"""

from holdfast.tools.files.toolset import Config, Files

__all__ = ["Config", "Files"]
