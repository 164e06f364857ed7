"""Every error Holdfast raises on purpose. Each one says whose fault it is, what happened and what to do now.

BaseException
├── Suspended                 a program is put to sleep; user code must not catch it
└── Cancelled                 a branch of `ctx.gather` ends, because another one failed
Exception
└── HoldfastError
    ├── UsageError            the caller's mistake; nothing was changed (exit code 2)
    │   ├── PlanInvalid           every mistake in a plan at once, each with its place
    │   ├── InputInvalid          an input or argument of the wrong type
    │   ├── SettingsInvalid       holdfast.toml, environment or flags
    │   ├── NotFound              no execution, program, tool, step or request of that name
    │   ├── BundleInvalid         a file that is not what was exported, or that a newer Holdfast wrote
    │   ├── Refused               an illegal move, such as resuming a completed execution
    │   ├── ResumeMismatch        the world changed since the execution was recorded
    │   ├── ImportMismatch        the world is another one than it was recorded in
    │   └── Divergence            a function asked for another step than it recorded
    ├── JournalError          the store cannot do what it must (exit code 1)
    │   ├── StoreUnavailable      read-only, full, locked or gone
    │   ├── StoreCorrupted        bytes that do not match their digests
    │   ├── SchemaTooNew          written by a newer Holdfast
    │   └── Fenced                another driver has taken this execution over
    ├── ExecutionEnded        result() of an execution that did not complete
    │   ├── ExecutionFailed
    │   └── ExecutionStopped
    ├── StepFailed            what a function sees when one of its steps failed for good
    ├── RecordedTrace         why ExecutionFailed was raised: the traceback of what the function raised
    └── ToolError             raised by tools; carries a category and whether there was an effect
        ├── Transient             network, unavailable, time-out before anything was sent
        ├── RateLimited           come back later
        ├── ResourceShort         memory, disk
        ├── NotPermitted          credentials or rights
        ├── Misconfigured         a setting, file or program is missing
        ├── InvalidCall           the arguments make no sense to the tool
        └── RaisedApart           whatever a tool raised in a process of its own
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from holdfast.core.differences import Difference
    from holdfast.core.failure import Category, Failure


class Suspended(BaseException):
    """The program was put to sleep and will be replayed when there is something to do."""


class Cancelled(BaseException):
    """Another branch of the same ctx.gather failed: this one ends at its next ctx call."""

    def __init__(self) -> None:
        super().__init__((type(self).__doc__ or "").strip())


class HoldfastError(Exception):
    """Something went wrong in Holdfast."""

    what: str = ""  # happened
    todo: str = ""  # to put it right, if it was given by itself; the text of the error holds both

    def __init__(self, message: str = "", *, todo: str = "") -> None:
        self.what = message or (type(self).__doc__ or "").strip()
        self.todo = todo
        super().__init__(f"{self.what}; {todo}" if todo else self.what)


class UsageError(HoldfastError):
    """What was asked for cannot be done as asked; nothing was changed."""


class Problem(NamedTuple):
    """One mistake: where it is and what to do about it."""

    place: str
    message: str
    line: int | None = None  # in its file, where only the parser knows it
    missing_tool: str = ""  # the name of a tool that is not there

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class Trouble(NamedTuple):
    """What is wrong or missing, and what to do about it; as a text both in one sentence."""

    what: str
    todo: str = ""

    def __str__(self) -> str:
        return f"{self.what}; {self.todo}" if self.todo else self.what

    @staticmethod
    def of(error: HoldfastError) -> Trouble:
        return Trouble(error.what or str(error), error.todo)


class PlanInvalid(UsageError):
    """The plan has mistakes; nothing was started."""

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems = list(problems)
        self.source = source
        count = len(self.problems)
        heading = f"{source or 'the plan'} has {count} mistake{'' if count == 1 else 's'}; nothing was started"
        super().__init__("\n".join([heading, *(f"  {problem}" for problem in self.problems)]))


class InputInvalid(UsageError):
    """A value has the wrong type."""

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = ()) -> None:
        self.problems = list(problems)
        super().__init__(message)


class SettingsInvalid(UsageError):
    """The settings have a mistake."""


class NotFound(UsageError):
    """There is nothing of that name."""


class BundleInvalid(UsageError):
    """The file does not hold an execution as it was exported; nothing was changed."""


class Refused(UsageError):
    """The command makes no sense in this state; nothing was changed."""


class ResumeMismatch(UsageError):
    """The world changed since this execution was recorded."""

    def __init__(
        self, differences: Sequence[Difference], home: str = "", *, imported: bool = False, only_folder: bool = False
    ) -> None:
        """`home`: the folder it was started in, if that is another one, still there, and no other copy's."""
        self.differences = list(differences)
        lines = ["this execution was recorded under other circumstances:", *(f"  {line}" for line in differences)]
        if home:
            lines.append(f"it can go on where it was started, with -C {home}")
        if imported:
            lines.append("it was imported, and where it was started the original may go on: resume only one of the two")
        accept = "--other-folder" if only_folder else "--force"
        super().__init__("\n".join([*lines, f"put them back, or resume with {accept} to go on regardless"]))


class ImportMismatch(UsageError):
    """The world is another one than the execution was recorded in."""

    def __init__(self, differences: Sequence[Difference], *, only_folder: bool = False) -> None:
        """`only_folder`: nothing else is another one, and that can be accepted by itself."""
        self.differences = list(differences)
        lines = ["this execution was recorded under other circumstances:", *(f"  {line}" for line in differences)]
        accept = "--other-folder" if only_folder else "--force"
        super().__init__("\n".join([*lines, f"nothing was changed; put them right, or import it with {accept}"]))


class Divergence(UsageError):
    """The function asked for another step than the one recorded under this path."""

    def __init__(self, message: str = "", *, path: str = "", recorded: str = "", attempted: str = "") -> None:
        self.path, self.recorded, self.attempted = path, recorded, attempted
        super().__init__(message)


class JournalError(HoldfastError):
    """The journal cannot be read or written."""


class StoreUnavailable(JournalError):
    """The store cannot be written now; what was durable is still there."""


class StoreCorrupted(JournalError):
    """Stored bytes do not match their digests."""

    def __init__(self, message: str = "", *, todo: str = "", execution_id: str = "") -> None:
        """`execution_id` is the one that the message names, if it names one."""
        self.execution_id = execution_id
        super().__init__(message, todo=todo)


class SchemaTooNew(JournalError):
    """The store was written by a newer Holdfast; upgrade this one."""


class Fenced(JournalError):
    """Another driver has taken this execution over; this one let go."""


class ExecutionEnded(HoldfastError):
    """The execution ended without a result."""


class ExecutionFailed(ExecutionEnded):
    """The execution failed."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class ExecutionStopped(ExecutionEnded):
    """The execution was stopped."""


class StepFailed(HoldfastError):
    """A step failed for good."""

    def __init__(self, path: str, failure: Failure) -> None:
        self.path = path
        self.failure = failure
        super().__init__(f"{path}: {failure.message}")


class RecordedTrace(HoldfastError):
    """The traceback of what a function raised in its own body, as it was recorded."""


class ToolError(HoldfastError):
    """The tool failed.

    `without_effect` is the tool's word that nothing happened in the world, which lets Holdfast try a `once` step again.
    """

    category: Category = "tool"
    without_effect: bool = False
    status: int = 0
    has_returned: bool = False  # it did its work, and only its answer is missing: what it did, nobody here knows

    def __init__(
        self,
        message: str = "",
        *,
        without_effect: bool | None = None,
        retry_after_s: float | None = None,
        todo: str = "",
        status: int = 0,
    ) -> None:
        """`status`: the HTTP status of the other side, or the exit code of a command."""
        self.status = status
        if without_effect is not None:
            self.without_effect = without_effect
        self.retry_after_s = retry_after_s
        super().__init__(message, todo=todo)


class Transient(ToolError):
    """The other side could not be reached or was not available."""

    category: Category = "transient"


class RateLimited(ToolError):
    """The other side asked to come back later."""

    category: Category = "rate_limit"
    without_effect = True


class ResourceShort(ToolError):
    """There was not enough memory or disk space."""

    category: Category = "resource"
    limit: str = ""  # twice the limit that it met, as `--resource` takes it; "" if it met none


class NotPermitted(ToolError):
    """The credentials or rights do not allow this."""

    category: Category = "permission"
    without_effect = True


class Misconfigured(ToolError):
    """A setting, file or program that the tool needs is missing."""

    category: Category = "configuration"
    without_effect = True


class InvalidCall(ToolError):
    """The arguments make no sense to the tool."""

    category: Category = "logic"
    without_effect = True


class RaisedApart(ToolError):
    """The tool raised something in a process of its own: all that is known of it here is its description."""

    def __init__(self, failure: Failure, trace: str = "") -> None:
        self.failure = failure
        self.category = failure.category
        self.trace = trace
        super().__init__(
            failure.message, without_effect=failure.happened == "nothing", retry_after_s=failure.retry_after_s
        )
