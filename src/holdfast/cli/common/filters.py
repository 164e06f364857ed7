"""Filters: the one set of options that says which executions are meant, for every command that takes more than one.

What is asked for together must all be so. Refuses to guess: a filter that cannot be read, or that is empty because a
shell's variable was not set, is a clear error, never "everything".
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import completions
from holdfast.cli.output.format import STATUS_COLOURS
from holdfast.core.durations import parse_duration, parse_moment
from holdfast.core.error_text import did_you_mean, quoted
from holdfast.core.errors import InputInvalid, NotFound, UsageError
from holdfast.core.labels import name_problem, value_problem

if TYPE_CHECKING:
    from holdfast.journal.store import Query, Store

NO_VALUE = "\n"  # no label can have it: what asks for it matches nothing
FITTING_MAX = 20  # ids that one part of an id may fit


@dataclass(frozen=True, kw_only=True)
class Filters:
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--execution",
            metavar="ID",
            help="Only with an id that begins or ends so. Repeatable.",
            autocompletion=completions.parts_of_ids,
        ),
    ] = None
    status: Annotated[
        list[str] | None,
        typer.Option(help="Only with this status. Repeatable.", autocompletion=completions.statuses),
    ] = None
    held: Annotated[
        bool,
        typer.Option("--held", help="Only what nobody drives before you resume it: imported, restored, handed in."),
    ] = False
    name: Annotated[str | None, typer.Option(help="Only of this program.", autocompletion=completions.names)] = None
    owner: Annotated[str | None, typer.Option(help="Only of this owner.", autocompletion=completions.owners)] = None
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K[=V]",
            help="Only with this label, or with any value of it. Repeatable.",
            autocompletion=completions.labels,
        ),
    ] = None
    failed_step: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="Only what failed at this step.", autocompletion=completions.failed_steps),
    ] = None
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="Only what failed with this in its error.")] = None
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only created since: a while ago, as 2h, or a moment.")
    ] = None
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only created before: as --since.")] = None
    text: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Only with these words in id, name, title, owner, labels or error."),
    ] = None

    def __post_init__(self) -> None:
        for field in fields(Filters):
            said = getattr(self, field.name)
            if isinstance(said, str) and not said.strip():
                raise UsageError(f"{_option(field.name)} is empty; give it a value, or leave it out to mean any")
        if "held" in (self.status or ()):  # what lists print in the place of the status
            if len(set(self.status or ())) > 1:
                raise UsageError("--status held stands alone: what is held has another status as well; ask with --held")
            object.__setattr__(self, "status", None)
            object.__setattr__(self, "held", True)

    @property
    def are_given(self) -> bool:
        return any(getattr(self, field.name) for field in fields(Filters))

    def check(self) -> None:
        """Refuse what cannot be read, whether or not there is anything it could be asked of."""
        self._statuses()
        self._labels()
        for option, said in (("--since", self.since), ("--until", self.until)):
            _moment(said, 0, option)

    def as_typed(self) -> str:
        """The filters as a person types them, for sentences."""
        parts: list[str] = []
        for field in fields(Filters):
            said = getattr(self, field.name)
            option = _option(field.name)
            if said is True:
                parts.append(option)
                continue
            parts += [f"{option} {one if one.isprintable() and ' ' not in one else quoted(one)}" for one in
                      ([said] if isinstance(said, str) and said else said or ())]  # fmt: skip
        return " ".join(parts)

    async def query(
        self, store: Store, now_us: int, *, limit: int, status: tuple[str, ...] = (), words: str = ""
    ) -> Query:
        """What to ask the store for; `status` counts where none is asked for. Raises NotFound for a part of no id."""
        from holdfast.journal.store import Query

        return Query(
            ids=await self._whole_ids(store),
            status=self._statuses() or status,
            held=self.held,
            name=self.name or "",
            owner=self.owner or "",
            labels=self._labels(),
            failed_step=self.failed_step or "",
            error=self.error or "",
            text=f"{self.text or ''} {words}".strip(),
            created_after=_moment(self.since, now_us, "--since"),
            created_before=_moment(self.until, now_us, "--until"),
            limit=limit,
        )

    def _statuses(self) -> tuple[str, ...]:
        for wanted in self.status or ():
            if wanted not in STATUS_COLOURS:
                known = did_you_mean(wanted, STATUS_COLOURS) or f"; there are: {', '.join(STATUS_COLOURS)}"
                raise UsageError(f'--status: there is no status "{wanted}"{known}')
        return tuple(self.status or ())

    def _labels(self) -> dict[str, str | None]:
        found: dict[str, list[str | None]] = {}
        for said in self.label or ():
            name, equals, value = said.partition("=")
            problem = name_problem(name) or value_problem(name, value)
            if problem:
                raise InputInvalid(f"--label {quoted(said)}: {problem}")
            found.setdefault(name, []).append(value if equals else None)
        return {name: _one_value(values) for name, values in found.items()}

    async def _whole_ids(self, store: Store) -> tuple[str, ...]:
        found: list[str] = []
        for fragment in self.ids or ():
            fitting = await store.find(fragment, FITTING_MAX + 1) if fragment else []
            if not fitting:
                raise NotFound(f"--execution {quoted(fragment)}: there is no execution with such an id")
            if len(fitting) > FITTING_MAX:
                raise UsageError(f"--execution {quoted(fragment)} fits more than {FITTING_MAX} ids; give more of it")
            found += fitting
        return tuple(dict.fromkeys(found))


ANY = Filters()


def _option(field: str) -> str:
    return "--execution" if field == "ids" else f"--{field.replace('_', '-')}"


def _one_value(values: list[str | None]) -> str | None:
    """A label has one value: of several that are asked for, all must be so, and a name alone is true of any."""
    wanted = {value for value in values if value is not None}
    return NO_VALUE if len(wanted) > 1 else wanted.pop() if wanted else None


def _moment(text: str | None, now_us: int, option: str) -> int | None:
    """`2h` is two hours ago; anything else must be a moment with its zone."""
    if text is None:
        return None
    try:
        return now_us - round(parse_duration(text) * 1e6)
    except InputInvalid as no_duration:
        try:
            return parse_moment(text)
        except InputInvalid as no_moment:
            said = str(no_moment) if "zone" in str(no_moment) else f"{no_duration}; or a time as 2026-12-01T08:00:00Z"
            raise InputInvalid(f"{option}: {said}") from None
