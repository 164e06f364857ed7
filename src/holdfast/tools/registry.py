"""Which tools and functions there are: those added by hand and those found in the modules the settings name.

Owns loading of the user's modules, and is the catalogue against which plans are checked. Refuses to guess between two
tools of one name.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import msgspec

from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import NotFound, SettingsInvalid, Trouble, UsageError
from holdfast.tools.argument_errors import Mistake
from holdfast.tools.isolated.import_ref import misplaced
from holdfast.tools.options import place_of
from holdfast.tools.runtime.user_traceback import place_in_their_code
from holdfast.tools.tool import Tool
from holdfast.tools.toolset import Adapter, HealthCheck

log = logging.getLogger("holdfast")

FUNCTION_MARK = "__holdfast_function__"
A = TypeVar("A", bound=Adapter)


class Registry:
    def __init__(self) -> None:
        self._families: dict[Adapter, dict[str, None]] = {}  # and the names of their tools, in order
        self._tools: dict[str, Tool[..., Any]] = {}
        self._functions: dict[str, Any] = {}
        self._adapters: list[Adapter] = []
        self._foreign: dict[str, Adapter] = {}  # tools whose names others chose, and the family they came with

    def add_adapter(self, adapter: Adapter) -> None:
        """Make a family of tools known; it is opened and closed with the engine."""
        self._adapters.append(adapter)
        self._add_found(adapter, adapter.tools())

    def family(self, kind: type[A]) -> A | None:
        """The family of tools of this kind, if it is there."""
        return next((adapter for adapter in self._adapters if isinstance(adapter, kind)), None)

    async def open(self) -> None:
        for adapter in self._adapters:
            self._add_found(adapter, await adapter.open())
        for trouble in self.troubles():
            log.warning("%s", trouble)

    def learn(self, again: bool = False) -> None:
        """What only the other sides can name, for whoever opens no engine; blocks until they have answered."""
        for adapter in self._adapters:
            self._add_found(adapter, adapter.learn(again))

    def _add_found(self, adapter: Adapter, found: Iterable[Tool[..., Any]]) -> None:
        for tool in found:
            known = self._tools.get(tool.name)
            if not adapter.names_are_foreign or known is None:
                self.add(tool)
            elif known is not tool:
                _tell_left_out(tool, known)
                continue
            self._families.setdefault(adapter, {})[tool.name] = None
            if adapter.names_are_foreign:
                self._foreign[tool.name] = adapter
        for name in [name for name, family in self._foreign.items() if family is adapter and adapter.absent(name)]:
            del self._foreign[name], self._tools[name], self._families[adapter][name]

    def health_checks(self) -> list[HealthCheck]:
        """Of the families and tools that can say how they are."""
        checks = [check for adapter, names in self._families.items() for check in adapter.health_checks(tuple(names))]
        return checks + [HealthCheck((name,), tool.run_health) for name, tool in self._tools.items() if tool.has_health]

    def troubles(self) -> list[str]:
        """Fallbacks that are not there or take other arguments, as sentences; asked when all tools are known.

        Nobody is stopped by them but the plans that use such a tool, which are told when they are checked.
        """
        return [
            f"tool {tool.name} at {tool.place}: its fallback {name} {problem}"
            for tool in self._tools.values()
            for name in tool.fallbacks
            if (problem := self._unfit(tool, name))
        ]

    def _unfit(self, tool: Tool[..., Any], fallback: str) -> str:
        other = self._tools.get(fallback)
        if other is not None:
            unfit = tool.signature.unfit(other.signature)
            return f"cannot be called in its place: {unfit}" if unfit else ""
        reason = self.why_absent(fallback)
        return f"is missing: {reason}" if reason else f"does not exist{did_you_mean(fallback, self._tools)}"

    def missing(self, name: str) -> list[Trouble]:
        """What a tool needs and this machine does not have."""
        family = self._family_of(name)
        return [*self.get(name).missing(), *(family.missing(name) if family is not None else ())]

    def suspect(self, name: str, arguments: Mapping[str, Any]) -> Sequence[Mistake]:
        """What in the known arguments of a call will probably fail here."""
        family = self._family_of(name)
        return family.suspect(name, arguments) if family is not None else ()

    def families(self) -> Sequence[Adapter]:
        return self._adapters

    def fallbacks_of(self, name: str) -> tuple[str, ...]:
        """What a tool itself declares to be tried in its place."""
        tool = self._tools.get(name)
        return () if tool is None else tool.fallbacks

    def has_credentials(self, name: str) -> bool:
        family = self._family_of(name)
        return family is not None and family.has_credentials(name)

    def settings_digest(self, name: str) -> str:
        """Stands for how the tool's family is set up; "" for a tool without one."""
        family = self._family_of(name)
        if family is None:
            return ""
        said = msgspec.json.encode(family.config, order="deterministic", enc_hook=repr)
        return blake2b(said, digest_size=16).hexdigest()

    def _family_of(self, name: str) -> Adapter | None:
        return next((family for family, names in self._families.items() if name in names), None)

    def forget(self, execution_id: str) -> None:
        """Let every family let go of what it keeps for an execution."""
        for adapter in self._adapters:
            adapter.forget(execution_id)

    async def close(self) -> None:
        for adapter in reversed(self._adapters):
            await adapter.close()

    def add(self, tool: Tool[..., Any]) -> None:
        """Make a tool known by its name. Adding the same one again changes nothing."""
        known = self._tools.get(tool.name)
        if known is tool:
            return
        if known is not None and self._foreign.pop(tool.name, None) is not None:
            _tell_left_out(known, tool)  # nobody else's choice of names stops one's own tools
        elif known is not None:
            raise SettingsInvalid(
                f'two tools are called "{tool.name}": one at {known.place}, one at {tool.place}; '
                'give one of them another name with @tool(name="…")'
            )
        if tool.in_doubt == "verify" and not tool.can_verify:
            raise SettingsInvalid(
                f'tool {tool.name} at {tool.place}: in_doubt="verify" needs a check; declare one with @….verify'
            )
        if tool.isolated and not tool.can_isolate:
            raise SettingsInvalid(misplaced(tool))
        _ = tool.signature  # annotations that cannot be read are reported now, not when the first step runs
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool[..., Any]:
        tool = self._tools.get(name)
        if tool is None:
            reason = self.why_absent(name)
            raise NotFound(
                f'no tool called "{name}": {reason}' if reason else _nothing_called("tool", name, self._tools)
            )
        return tool

    def why_absent(self, name: str) -> str:
        """Why a tool that a family should have is not there; "" if none knows of it."""
        return next(filter(None, (adapter.absent(name) for adapter in self._adapters)), "")

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
        """Import a dotted module, or a `.py` file relative to `base`, and add every tool and function in it, also
        those in a list or a dict of the module."""
        module = _import_file(spec, base) if spec.endswith(".py") else _import_dotted(spec, base)
        for thing in _things_in(module):
            if isinstance(thing, Tool):
                self.add(cast("Tool[..., Any]", thing))
            elif _is_function(thing):
                self.add_function(thing)
        return module


def _things_in(module: ModuleType) -> Iterator[Any]:
    """What its names stand for, and what lies in the lists and dicts among that."""
    for name, thing in list(vars(module).items()):
        yield thing
        if name.startswith("__"):
            continue
        if isinstance(thing, dict):
            yield from list(cast("dict[Any, Any]", thing).values())
        elif isinstance(thing, list | tuple):
            yield from list(cast("Sequence[Any]", thing))


def _tell_left_out(foreign: Tool[..., Any], own: Tool[..., Any]) -> None:
    log.warning("%s offers %s, which is already there at %s; it is left out", foreign.place, own.name, own.place)


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
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = place_in_their_code(error) or f"{last.filename}:{last.lineno}"
    text = getattr(error, "msg", None) or str(error)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return SettingsInvalid(f'the module "{spec}" cannot be imported: {place}: {what}')
