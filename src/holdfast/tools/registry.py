"""Which tools and functions there are: those added by hand and those found in the modules the settings name.

Owns loading of the user's modules, and is the catalogue against which plans are checked. Refuses to guess between two
tools of one name.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from holdfast.core.errors import NotFound, SettingsInvalid, UsageError
from holdfast.core.suggest import did_you_mean
from holdfast.tools.options import place_of
from holdfast.tools.tool import Tool

FUNCTION_MARK = "__holdfast_function__"


class Registry:
    def __init__(self) -> None:
        self._tools: dict[str, Tool[..., Any]] = {}
        self._functions: dict[str, Any] = {}

    def add(self, tool: Tool[..., Any]) -> None:
        """Make a tool known by its name. Adding the same one again changes nothing."""
        known = self._tools.get(tool.name)
        if known is tool:
            return
        if known is not None:
            raise SettingsInvalid(
                f'two tools are called "{tool.name}": one at {known.place}, one at {tool.place}; '
                'give one of them another name with @tool(name="…")'
            )
        if tool.in_doubt == "verify" and not tool.can_verify:
            raise SettingsInvalid(
                f'tool {tool.name} at {tool.place}: in_doubt="verify" needs a check; declare one with @….verify'
            )
        _ = tool.signature  # annotations that cannot be read are reported now, not when the first step runs
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool[..., Any]:
        tool = self._tools.get(name)
        if tool is None:
            raise NotFound(_nothing_called("tool", name, self._tools))
        return tool

    def names(self) -> Collection[str]:
        return self._tools.keys()

    def check(self, tool: str, arguments: Mapping[str, Any], dynamic: frozenset[str]) -> list[tuple[str, str]]:
        """Every mistake in a call that can be seen before it is made, as (argument, message)."""
        return self.get(tool).check(arguments, dynamic)

    def add_function(self, function: Any) -> None:
        """Make a function program known by its name. Adding the same one again changes nothing."""
        name = name_of_function(function)
        known = self._functions.get(name)
        if known is not None and known is not function:
            raise SettingsInvalid(
                f'two functions are called "{name}": one at {place_of(known)}, one at {place_of(function)}; rename one'
            )
        self._functions[name] = function

    def function(self, name: str) -> Any:
        function = self._functions.get(name)
        if function is None:
            raise NotFound(_nothing_called("function", name, self._functions))
        return function

    def function_names(self) -> Collection[str]:
        return self._functions.keys()

    def load_module(self, spec: str, base: Path) -> ModuleType:
        """Import a dotted module, or a `.py` file relative to `base`, and add every tool and function in it."""
        module = _import_file(spec, base) if spec.endswith(".py") else _import_dotted(spec, base)
        for thing in list(vars(module).values()):
            if isinstance(thing, Tool):
                self.add(cast("Tool[..., Any]", thing))
            elif _is_function(thing):
                self.add_function(thing)
        return module


def name_of_function(function: Any) -> str:
    name = getattr(function, "name", None) or getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise UsageError(f"{function!r} is not a function program; decorate a coroutine with @function")
    return name


def _is_function(thing: Any) -> bool:
    # Static, because mocks and proxies claim to have every attribute. A class only marks its instances.
    return not isinstance(thing, type) and inspect.getattr_static(thing, FUNCTION_MARK, None) is not None


def _nothing_called(kind: str, name: str, known: Collection[str]) -> str:
    meant = did_you_mean(name, known)
    if meant:
        return f'no {kind} called "{name}"{meant}'
    if not known:
        return f'no {kind} called "{name}"; none is known: name your modules in holdfast.toml'
    return f'no {kind} called "{name}"; known are {", ".join(sorted(known))}'


# ---- the user's modules ----------------------------------------------------------------------------------------


def _import_dotted(spec: str, base: Path) -> ModuleType:
    _make_importable(base)
    try:
        return importlib.import_module(spec)
    except ModuleNotFoundError as error:
        if error.name and (spec == error.name or spec.startswith(error.name + ".")):
            raise SettingsInvalid(
                f'no module called "{spec}", looked for from {base}; correct the name, or give the path of a .py file'
            ) from error
        raise _cannot_import(spec, error) from error
    except (Exception, SystemExit) as error:
        raise _cannot_import(spec, error) from error


def _import_file(spec: str, base: Path) -> ModuleType:
    path = (base / spec).resolve()
    loaded = _already_loaded(path)
    if loaded is not None:
        return loaded
    if not path.is_file():
        raise SettingsInvalid(f'no file called "{spec}" in {base}; correct the path')
    _make_importable(path.parent)
    # The file's own name if it is free, so that pickles and other modules find it; otherwise one that cannot collide.
    name = path.stem if path.stem not in sys.modules and path.stem.isidentifier() else f"holdfast_file_{path}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise SettingsInvalid(f"{path} cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _cannot_import(spec, error) from error
    return module


def _already_loaded(path: Path) -> ModuleType | None:
    """Also as `__main__`: a script that starts an engine must not be run a second time to find its tools."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(path.name) and Path(file).resolve() == path:
            return module
    return None


def _make_importable(folder: Path) -> None:
    entry = str(folder.resolve())
    if entry not in sys.path:
        sys.path.insert(0, entry)
        importlib.invalidate_caches()


def _cannot_import(spec: str, error: BaseException) -> SettingsInvalid:
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}"
    else:
        # The deepest frame outside the import machinery and this file is where the user's code went wrong.
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith("<frozen") and frame.filename != __file__]
        own = [frame for frame in own if "importlib" not in frame.filename] or list(frames)
        place = f"{own[-1].filename}:{own[-1].lineno}"
    text = getattr(error, "msg", None) or str(error)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return SettingsInvalid(f'the module "{spec}" cannot be imported: {place}: {what}')
