"""Where a tool is defined, so that another process finds it there: by its module and its name in it.

The module is loaded anew, as `multiprocessing` does it: a script under another name than `__main__`, so that what
stands below `if __name__ == "__main__":` does not run. What has no such place (a function inside another, a lambda,
what was typed in, an object that somebody made) is refused where it is declared.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.core.errors import Misconfigured, UsageError
from holdfast.tools.runtime.user_traceback import place_in_their_code

if TYPE_CHECKING:
    from holdfast.tools.tool import Tool

SCRIPT = "__holdfast_main__"  # what a script is called where it is not what was started
_REMEDY = (
    "define it at the top of a module, or say isolated=False: then it runs in the engine's process, and only the "
    "commands that it starts are held to its resources"
)
_is_loading = False


class Home(msgspec.Struct, frozen=True):
    module: str
    file: str
    name: str  # with dots, if it lies in a class
    elsewhere: str  # the module's name in another process

    def thing(self) -> Any:
        """What lies there in this process, or None."""
        module = sys.modules.get(self.module)
        return None if module is None else _inside(module, self.name)

    def load(self) -> Any:
        """What lies there, in a process that has not loaded it yet. `Misconfigured` says why it cannot be had."""
        global _is_loading  # noqa: PLW0603 -- one process loads one tool
        _is_loading = True
        try:
            found = _inside(_load(self.elsewhere, self.file), self.name)
        except (Exception, SystemExit) as error:
            place = place_in_their_code(error)
            raise Misconfigured(
                f"{self.file} cannot be loaded in the tool's own process: "
                f"{place}{': ' if place else ''}{type(error).__name__}: {error}"
            ) from error
        finally:
            _is_loading = False
        if found is None:
            raise Misconfigured(
                f"the tool's own process finds nothing called {self.name} in {self.file}: it is there only in the "
                f"engine's process; {_REMEDY}"
            )
        return found


def home_of(made_of: Any) -> Home | None:
    """Of a function or a class; None for what nobody else can find."""
    if _why_not(made_of):
        return None
    module = made_of.__module__
    return Home(module, _file(module), made_of.__qualname__, _name_elsewhere(module))


def homeless(tool: Tool[..., Any], made_of: Any) -> str:
    """Why it cannot run apart, and what to do, for whoever declares it."""
    return f"tool {tool.name} at {tool.place}: it cannot run in a process of its own: {_why_not(made_of)}; {_REMEDY}"


def misplaced(tool: Tool[..., Any]) -> str:
    assert tool.home is not None
    return (
        f"tool {tool.name} at {tool.place}: it cannot run in a process of its own: what is called {tool.home.name} in "
        f"{tool.home.module} is something else; {_REMEDY}"
    )


def refuse_while_loading() -> None:
    """An engine that a tool's module starts would start anew with each call of the tool."""
    if _is_loading:
        raise UsageError(
            "a tool that runs in a process of its own has its module loaded there, and this module opens an engine; "
            'put what starts it below if __name__ == "__main__":'
        )


def _why_not(made_of: Any) -> str:
    name = cast("str | None", getattr(made_of, "__qualname__", None))
    if name is None or inspect.ismethod(made_of):
        return "it belongs to an object, which is only here"
    if "<lambda>" in name:
        return "it is a lambda"
    if "<locals>" in name:
        return f"it is defined inside {name.partition('.<locals>')[0]}"
    return "" if _file(made_of.__module__) else f"its module, {made_of.__module__}, is in no file"


def _file(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return os.path.abspath(file) if isinstance(file, str) and os.path.isfile(file) else ""


def _inside(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    return found.__func__ if isinstance(found, staticmethod) else cast("Callable[..., Any] | None", found)


def _load(name: str, file: str) -> ModuleType:
    spec = None
    with contextlib.suppress(ImportError, ValueError):  # a file that is loaded by its path has a name that nobody finds
        spec = importlib.util.find_spec(name) if name != SCRIPT else None
    if spec is not None and spec.origin and os.path.abspath(spec.origin) == file:
        return importlib.import_module(name)
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise ImportError(f"{file} is no Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _name_elsewhere(module: str) -> str:
    """What was started as a script or with `python -m` has another name in a process that is started otherwise."""
    if module != "__main__":
        return module
    spec = getattr(sys.modules[module], "__spec__", None)
    return spec.name if spec is not None else SCRIPT
