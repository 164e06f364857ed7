"""Plan files: YAML or JSON as it stands on disk → a document, with a clear word about what is wrong with it."""

# sentences of others: PyYAML

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NoReturn, cast

from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import NotFound, PlanInvalid, Problem

PLAN_BYTES_MAX = 16 * 1024 * 1024
PLAN_ENDINGS = (".yaml", ".yml", ".json")
NO_PLAN_ENDINGS = (".schema.json",)  # what `holdfast schema` writes, and others like it
ALIASED_MAX = 100_000  # values that aliases may add: nine short lines can stand for a billion of them


def read_document(path: Path) -> Any:
    return parse_document(read_text(path), path)


def read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            body = file.read(PLAN_BYTES_MAX + 1)
        if len(body) > PLAN_BYTES_MAX:
            raise PlanInvalid([Problem("", f"is larger than {PLAN_BYTES_MAX // 1024**2} MB")], str(path))
        return io.StringIO(body.decode("utf-8"), newline=None).read()  # with line ends of any system
    except FileNotFoundError:
        meant = did_you_mean(path.name, plans_in(path.parent))
        raise NotFound(f"there is no plan file {path}{meant}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PlanInvalid([Problem("", f"cannot be read: {error}")], str(path)) from error


def plans_in(folder: Path) -> list[str]:
    """The names of the files that may be plans; none if the folder cannot be read."""
    try:
        names = [entry.name for entry in folder.iterdir()]
        return [name for name in names if name.endswith(PLAN_ENDINGS) and not name.endswith(NO_PLAN_ENDINGS)]
    except OSError:
        return []


def parse_document(text: str, path: Path) -> Any:
    return _parse_json(text, path) if path.suffix == ".json" else _parse_yaml(text, path)


def named(document: Any, name: str) -> Any:
    """A plan that does not say what it is called is called like its file, also when only its document is left."""
    if isinstance(document, dict) and "name" not in document:
        return {"name": name, **cast("dict[str, Any]", document)}
    return cast("Any", document)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" stands twice in one object; keep one')
    return found


def _parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise PlanInvalid([Problem("", f"is not JSON: {error}", line)], str(path)) from error


def _parse_yaml(text: str, path: Path) -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        """YAML lets a key stand twice and drops the first; a plan must not lose half of itself like that."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = key_node.value
                if key_node.tag == "tag:yaml.org,2002:bool":  # YAML reads the name `on` as true
                    key_node.tag = "tag:yaml.org,2002:str"
                if not isinstance(key, str):
                    continue  # a list or a map as a key: refused below, by whoever wants to hash it
                if key in seen and key_node.tag != "tag:yaml.org,2002:merge":
                    line = key_node.start_mark.line + 1
                    raise PlanInvalid([Problem(f"line {line}", f'"{key}" stands twice; keep one', line)], str(path))
                seen.add(key)
            usual: Any = super()
            return usual.construct_mapping(node, deep)

    try:
        return _load(Loader(text), path)
    except PlanInvalid:
        raise
    except yaml.MarkedYAMLError as error:
        mark = _yaml_mark(error)
        line = mark.line + 1 if mark else None
        raise PlanInvalid([Problem("", f"is not YAML: {_yaml_words(error, mark)}", line)], str(path)) from error
    except Exception as error:  # its constructors stumble in many ways over a value that does not fit its `!!tag`
        raise PlanInvalid([Problem("", f"is not YAML: {' '.join(str(error).split())}")], str(path)) from error


def _load(loader: Any, path: Path) -> Any:
    """As `yaml.load`, but nothing is made of what aliases make too large or endless."""
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _check_aliases(root, path)
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _check_aliases(root: Any, path: Path) -> None:
    """Each value is counted once and remembered, so that counting is quick where unfolding would never end."""
    sizes: dict[int, int | None] = {}  # None: it is being counted

    def size(node: Any) -> int:
        known = sizes.get(id(node), 0)
        if known is None:
            _refuse(node, path, "holds itself through an alias; write out what is meant")
        elif known:
            return known
        sizes[id(node)] = None
        found = 1
        for child in _children(node):
            found += size(child)
            if found > ALIASED_MAX + len(sizes):
                _refuse(node, path, f"aliases make more than {ALIASED_MAX:,} values of this; write out what is meant")
        sizes[id(node)] = found
        return found

    size(root)


def _children(node: Any) -> list[Any]:
    if node.id == "sequence":
        return node.value
    return [part for pair in node.value for part in pair] if node.id == "mapping" else []


def _refuse(node: Any, path: Path, message: str) -> NoReturn:
    line = node.start_mark.line + 1
    raise PlanInvalid([Problem(f"line {line}", message, line)], str(path))


_YAML_WORDS = {
    "could not find expected ':'": 'expected "name: value"',
    "mapping values are not allowed": 'a ":" where none can be; quote a text that holds ": "',
    "expected <block end>": "the indentation does not fit what stands above",
    "did not find expected key": "the indentation does not fit what stands above, or a quote or bracket is missing",
    "did not find expected '-' indicator": "the indentation does not fit the list above",
    "found character that cannot start any token": "a character that cannot begin a value; quote it, and indent with "
    "spaces, not with tabs",
}


def _yaml_mark(error: Any) -> Any:
    """A name without its ":" is noticed on the line below, and the context knows better."""
    said: str = error.problem or ""
    mark = error.context_mark if said.startswith("could not find expected ':'") else error.problem_mark
    return mark or error.problem_mark or error.context_mark


def _yaml_words(error: Any, mark: Any) -> str:
    """Where, and what for people."""
    said: str = error.problem or error.context or "it cannot be read"
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + next((words for begins, words in _YAML_WORDS.items() if said.startswith(begins)), said)
