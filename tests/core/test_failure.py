"""Categories and decisions: what an exception means, and every branch of what follows from it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import concurrent.futures.process
import errno
import http.client
import sqlite3
import subprocess

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import errors
from holdfast.core.exception_category import LINKS_MAX
from holdfast.core.failure import (
    MESSAGE_CHARS_MAX,
    RETRY_AFTER_S_MAX,
    AskForCorrection,
    AttemptCounts,
    Category,
    Decision,
    Doubt,
    Failure,
    FallBack,
    GiveUp,
    Happened,
    RecoveryOptions,
    RefreshAndRetry,
    RetryLater,
    RunReduced,
    decide,
    describe,
)
from holdfast.core.policy import RATE_LIMIT_WAIT_S, RATE_LIMIT_WAITS_MAX, RETRIES, Effect, Retry

# ---- what an exception means ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "category", "happened"),
    [
        (TimeoutError(), "timeout", "unknown"),
        (ConnectionResetError("gone"), "transient", "unknown"),
        (ConnectionRefusedError("closed"), "transient", "nothing"),
        (BrokenPipeError(), "transient", "unknown"),
        (PermissionError(errno.EACCES, "no"), "permission", "known"),
        (MemoryError(), "resource", "known"),
        (OSError(errno.ENOSPC, "full"), "resource", "known"),
        (OSError(errno.EMFILE, "too many files"), "resource", "known"),
        (OSError(errno.EIO, "bad sector"), "transient", "unknown"),
        (FileNotFoundError(errno.ENOENT, "nowhere"), "configuration", "known"),
        (NotADirectoryError(), "configuration", "known"),
        (IsADirectoryError(), "configuration", "known"),
        (ModuleNotFoundError("no module"), "configuration", "known"),
        (ValueError("7 is not a day"), "logic", "known"),
        (ZeroDivisionError(), "logic", "known"),
        (asyncio.CancelledError(), "unknown", "unknown"),
        (SystemExit(3), "unknown", "unknown"),
        (errors.ToolError("bad"), "tool", "known"),
        (errors.ToolError("bad", without_effect=True), "tool", "nothing"),
        (errors.Transient("down"), "transient", "unknown"),
        (errors.Transient("down", without_effect=True), "transient", "nothing"),
        (errors.RateLimited("later"), "rate_limit", "nothing"),
        (errors.RateLimited("later", without_effect=False), "rate_limit", "known"),
        (errors.ResourceShort("disk"), "resource", "known"),
        (errors.NotPermitted("key"), "permission", "nothing"),
        (errors.Misconfigured("file"), "configuration", "nothing"),
        (errors.InvalidCall("url"), "logic", "nothing"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_exceptions_become_failures(error: BaseException, category: Category, happened: Happened) -> None:
    failure = describe(error)
    assert (failure.category, failure.happened, failure.error) == (category, happened, type(error).__name__)
    assert failure.message


class ReadTimeout(Exception): ...  # such as clients raise: no TimeoutError, and nothing that says so but its name


class ServerDisconnectedError(Exception): ...


class ConnectionStringInvalid(ValueError): ...


def raised(error: BaseException, *, while_handling: BaseException, hidden: bool = False) -> BaseException:
    try:
        try:
            raise while_handling
        except BaseException:
            if hidden:
                raise error from None
            raise error  # noqa: B904 -- it is the context that is wanted here
    except BaseException as caught:
        return caught


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "category", "happened"),
    [
        (ReadTimeout("slow"), "timeout", "unknown"),
        (ServerDisconnectedError(), "transient", "unknown"),
        (subprocess.TimeoutExpired("pay", 1), "timeout", "unknown"),
        (http.client.IncompleteRead(b""), "transient", "unknown"),
        (asyncio.IncompleteReadError(b"", 1), "transient", "unknown"),
        (concurrent.futures.process.BrokenProcessPool("died"), "transient", "unknown"),
        (concurrent.futures.CancelledError(), "transient", "unknown"),
        (subprocess.CalledProcessError(1, "pay"), "logic", "known"),
        (sqlite3.OperationalError("no such table: t"), "logic", "known"),
        (ConnectionStringInvalid("no host"), "logic", "known"),
        (RuntimeError("declined"), "logic", "known"),
        (caused(RuntimeError("failed"), TimeoutError()), "timeout", "unknown"),
        (caused(RuntimeError("failed"), caused(RuntimeError("inner"), ConnectionResetError())), "transient", "unknown"),
        (raised(RuntimeError("failed"), while_handling=TimeoutError()), "timeout", "unknown"),
        (raised(RuntimeError("failed"), while_handling=TimeoutError(), hidden=True), "timeout", "unknown"),
        (raised(KeyError("status"), while_handling=ReadTimeout()), "logic", "unknown"),
        (raised(ValueError("7"), while_handling=FileNotFoundError()), "logic", "known"),
        (raised(ConnectionRefusedError(), while_handling=TimeoutError()), "transient", "unknown"),
        (raised(ConnectionRefusedError(), while_handling=ConnectionRefusedError()), "transient", "nothing"),
        (ExceptionGroup("both", [ValueError("7"), ReadTimeout()]), "timeout", "unknown"),
        (ExceptionGroup("both", [ValueError("7")]), "logic", "known"),
    ],
    ids=repr,
)
def test_what_smells_of_the_network_leaves_open_what_happened_and_a_mistake_does_not(
    error: BaseException, category: Category, happened: Happened
) -> None:
    failure = describe(error)
    assert (failure.category, failure.happened) == (category, happened)


def test_what_the_caller_was_handling_says_nothing_of_the_tool() -> None:
    handled = TimeoutError("of the program")
    error = raised(RuntimeError("declined"), while_handling=handled)
    assert (describe(error, handled).happened, describe(error).happened) == ("known", "unknown")


def test_a_chain_of_errors_without_end_is_looked_at_and_left() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__context__, second.__context__ = second, first
    assert describe(first).happened == "known"
    long: BaseException = TimeoutError()
    for number in range(LINKS_MAX * 2):
        long = caused(RuntimeError(number), long)
    assert describe(long).category == "logic"


def test_only_a_tools_own_word_or_a_refused_connection_means_that_nothing_happened() -> None:
    ordinary = [FileNotFoundError(), PermissionError(), ValueError(), KeyError("x"), RuntimeError(), OSError()]
    assert all(describe(error).happened != "nothing" for error in ordinary)


def test_an_empty_message_is_replaced_by_the_errors_name() -> None:
    assert describe(ValueError()).message == "ValueError"
    assert describe(ValueError(" \n ")).message == "ValueError"


def test_messages_keep_their_lines_tidy_and_have_a_bounded_length() -> None:
    assert describe(ValueError("a\n\n  b\tc")).message == "a\nb c"
    message = describe(ValueError("x" * 10_000)).message
    assert len(message) == MESSAGE_CHARS_MAX + 1
    assert message.endswith("…")


def test_a_message_with_an_undecodable_file_name_can_still_be_journaled() -> None:
    failure = describe(FileNotFoundError("no such file: caf\udce9"))
    assert failure.message == "no such file: caf?"
    msgspec.json.encode(failure)


def test_a_rate_limits_own_time_is_kept() -> None:
    assert describe(errors.RateLimited("later", retry_after_s=7.5)).retry_after_s == 7.5


def test_a_failed_step_inside_a_function_keeps_its_failure() -> None:
    inner = Failure(category="permission", message="no key")
    assert describe(errors.StepFailed("fetch", inner)) is inner


# ---- what follows -------------------------------------------------------------------------------------------------


def failure(category: Category, happened: Happened = "known", retry_after_s: float | None = None) -> Failure:
    return Failure(category=category, message="m", happened=happened, retry_after_s=retry_after_s)


ONCE, IDEMPOTENT, READ = (RecoveryOptions(effect=effect) for effect in ("once", "idempotent", "read"))
WRITTEN = Retry(max=2, first_s=4.0)
INSISTS = RecoveryOptions(effect="once", retry=WRITTEN, repeats_known=True)
FIRST = RetryLater(0.5)  # half of one second is certain, the other half is the jitter, which is 0 here

DECISIONS: list[tuple[str, Failure, RecoveryOptions, AttemptCounts, Decision]] = [
    # rule 5: an unknown outcome of a `once` step is never guessed, whatever its policy
    ("once, unknown", failure("transient", "unknown"), ONCE, AttemptCounts(), Doubt()),
    (
        "once, unknown, retry and fallback written",
        failure("timeout", "unknown"),
        RecoveryOptions(effect="once", retry=WRITTEN, fallbacks=1, can_reduce=True, can_refresh=True),
        AttemptCounts(),
        Doubt(),
    ),
    ("once, cancelled", failure("unknown", "unknown"), ONCE, AttemptCounts(), Doubt()),
    # rule 5: without effect, it may be repeated and fall back
    ("once, nothing", failure("transient", "nothing"), ONCE, AttemptCounts(), FIRST),
    (
        "once, nothing, used up, falls back",
        failure("transient", "nothing"),
        RecoveryOptions(effect="once", fallbacks=1),
        AttemptCounts(retries=RETRIES),
        FallBack(0),
    ),
    ("once, rate limited", failure("rate_limit", "nothing", 2.0), ONCE, AttemptCounts(), RetryLater(2.0)),
    # rule 5: a known failure is repeated only because its author wrote `retry:`, and never falls back
    ("once, known", failure("tool"), ONCE, AttemptCounts(), GiveUp()),
    ("once, known transient", failure("transient"), ONCE, AttemptCounts(), GiveUp()),
    ("once, known, written", failure("tool"), INSISTS, AttemptCounts(), RetryLater(2.0)),
    ("once, known, used up", failure("tool"), INSISTS, AttemptCounts(retries=2), GiveUp()),
    (
        "once, known, only the tool wrote it",
        failure("tool"),
        RecoveryOptions(effect="once", retry=WRITTEN),
        AttemptCounts(),
        GiveUp(),
    ),
    ("once, a mistake, written", failure("logic"), INSISTS, AttemptCounts(), GiveUp()),
    ("once, misconfigured, written", failure("configuration"), INSISTS, AttemptCounts(), GiveUp()),
    ("once, known, fallback", failure("tool"), RecoveryOptions(effect="once", fallbacks=2), AttemptCounts(), GiveUp()),
    (
        "once, known, reduce",
        failure("resource"),
        RecoveryOptions(effect="once", can_reduce=True),
        AttemptCounts(),
        GiveUp(),
    ),
    (
        "once, known, refresh",
        failure("permission"),
        RecoveryOptions(effect="once", can_refresh=True),
        AttemptCounts(),
        GiveUp(),
    ),
    # rule 9: transient errors and time-outs back off
    ("idempotent, unknown", failure("transient", "unknown"), IDEMPOTENT, AttemptCounts(), FIRST),
    ("read, timeout", failure("timeout", "unknown"), READ, AttemptCounts(), FIRST),
    ("second retry", failure("transient", "unknown"), READ, AttemptCounts(retries=1), RetryLater(1.0)),
    ("last retry", failure("transient", "unknown"), READ, AttemptCounts(retries=2), RetryLater(2.0)),
    ("retries used up", failure("transient", "unknown"), READ, AttemptCounts(retries=3), GiveUp()),
    (
        "no retries wanted",
        failure("transient", "unknown"),
        RecoveryOptions(effect="read", retry=Retry(max=0)),
        AttemptCounts(),
        GiveUp(),
    ),
    ("transient, told when", failure("transient", "unknown", 7.0), READ, AttemptCounts(), RetryLater(7.0)),
    ("transient, told sooner", failure("transient", "unknown", 0.0), READ, AttemptCounts(), FIRST),
    ("once, told when", failure("transient", "unknown", 7.0), RecoveryOptions(effect="once"), AttemptCounts(), Doubt()),
    # rule 9: a rate limit waits as it was told and is not counted among the retries
    ("rate limit, told", failure("rate_limit", "nothing", 12.5), READ, AttemptCounts(retries=99), RetryLater(12.5)),
    ("rate limit, not told", failure("rate_limit"), READ, AttemptCounts(), RetryLater(RATE_LIMIT_WAIT_S)),
    ("rate limit, told nonsense", failure("rate_limit", "nothing", -5.0), READ, AttemptCounts(), RetryLater(0.0)),
    (
        "rate limit, for ever",
        failure("rate_limit", "nothing", 1e12),
        READ,
        AttemptCounts(),
        RetryLater(RETRY_AFTER_S_MAX),
    ),
    ("rate limit, no number", failure("rate_limit", "nothing", float("nan")), READ, AttemptCounts(), RetryLater(0.0)),
    (
        "rate limit, without end",
        failure("rate_limit"),
        READ,
        AttemptCounts(rate_limit_waits=RATE_LIMIT_WAITS_MAX),
        GiveUp(),
    ),
    # rule 9: resources once more, reduced; permission once after the refresh
    (
        "resource, reducible",
        failure("resource"),
        RecoveryOptions(effect="read", can_reduce=True),
        AttemptCounts(),
        RunReduced(),
    ),
    (
        "resource, reduced",
        failure("resource"),
        RecoveryOptions(effect="read", can_reduce=True),
        AttemptCounts(reduced=True),
        GiveUp(),
    ),
    ("resource", failure("resource"), READ, AttemptCounts(), GiveUp()),
    ("permission", failure("permission"), READ, AttemptCounts(), GiveUp()),
    (
        "refreshable",
        failure("permission"),
        RecoveryOptions(effect="read", can_refresh=True),
        AttemptCounts(),
        RefreshAndRetry(),
    ),
    (
        "refreshed",
        failure("permission"),
        RecoveryOptions(effect="read", can_refresh=True),
        AttemptCounts(refreshed=True),
        GiveUp(),
    ),
    (
        "once, refreshable",
        failure("permission", "nothing"),
        RecoveryOptions(effect="once", can_refresh=True),
        AttemptCounts(),
        RefreshAndRetry(),
    ),
    # a tool's own failure is repeated only if that is written
    ("tool", failure("tool"), READ, AttemptCounts(), GiveUp()),
    ("tool, written", failure("tool"), RecoveryOptions(effect="read", retry=WRITTEN), AttemptCounts(), RetryLater(2.0)),
    ("unknown", failure("unknown", "unknown"), READ, AttemptCounts(), GiveUp()),
    # rule 9: configuration and logic never; a person corrects, if the step asks for one
    ("logic", failure("logic"), RecoveryOptions(effect="read", retry=WRITTEN), AttemptCounts(), GiveUp()),
    ("configuration", failure("configuration"), READ, AttemptCounts(), GiveUp()),
    (
        "logic, ask",
        failure("logic"),
        RecoveryOptions(effect="read", on_error="ask"),
        AttemptCounts(),
        AskForCorrection(),
    ),
    (
        "configuration, ask",
        failure("configuration", "nothing"),
        RecoveryOptions(effect="once", on_error="ask"),
        AttemptCounts(),
        AskForCorrection(),
    ),
    (
        "transient, ask",
        failure("transient"),
        RecoveryOptions(effect="read", on_error="ask"),
        AttemptCounts(retries=3),
        GiveUp(),
    ),
    # fallbacks one after the other, before anybody is asked
    (
        "first fallback",
        failure("logic"),
        RecoveryOptions(effect="read", fallbacks=2, on_error="ask"),
        AttemptCounts(),
        FallBack(0),
    ),
    (
        "second fallback",
        failure("logic"),
        RecoveryOptions(effect="read", fallbacks=2),
        AttemptCounts(fallbacks_used=1),
        FallBack(1),
    ),
    (
        "no fallback left",
        failure("logic"),
        RecoveryOptions(effect="read", fallbacks=2),
        AttemptCounts(fallbacks_used=2),
        GiveUp(),
    ),
]


@pytest.mark.parametrize(
    ("failed", "means", "tally", "decision"), [row[1:] for row in DECISIONS], ids=[row[0] for row in DECISIONS]
)
def test_what_follows_from_a_failure(
    failed: Failure, means: RecoveryOptions, tally: AttemptCounts, decision: Decision
) -> None:
    assert decide(failed, means, tally, 0.0) == decision


categories = st.sampled_from(
    ["transient", "rate_limit", "timeout", "resource", "permission", "configuration", "logic", "tool", "unknown"]
)


@given(
    category=categories,
    happened=st.sampled_from(["known", "unknown"]),
    retry=st.none() | st.builds(Retry, max=st.integers(0, 5)),
    tally=st.builds(AttemptCounts, retries=st.integers(0, 5), rate_limit_waits=st.integers(0, 200)),
    fallbacks=st.integers(0, 3),
)
def test_a_once_step_is_repeated_only_without_effect_or_by_its_authors_word(
    category: Category, happened: Happened, retry: Retry | None, tally: AttemptCounts, fallbacks: int
) -> None:
    means = RecoveryOptions(effect="once", retry=retry, fallbacks=fallbacks, can_reduce=True, can_refresh=True)
    decision = decide(failure(category, happened), means, tally, 0.5)
    if happened == "unknown":
        assert decision == Doubt()
    elif retry is None:
        assert isinstance(decision, GiveUp)
    else:
        assert isinstance(decision, GiveUp | RetryLater)


@given(
    category=categories,
    effect=st.sampled_from(["read", "idempotent", "once"]),
    happened=st.sampled_from(["nothing", "known", "unknown"]),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_no_step_is_tried_for_ever(category: Category, effect: Effect, happened: Happened, jitter: float) -> None:
    means = RecoveryOptions(effect=effect, retry=WRITTEN, fallbacks=2, can_reduce=True, can_refresh=True)
    tally = AttemptCounts()
    for _ in range(RATE_LIMIT_WAITS_MAX + 3 * (WRITTEN.max + 3)):
        match decide(failure(category, happened), means, tally, jitter):
            case RetryLater() if category == "rate_limit" and tally.rate_limit_waits < RATE_LIMIT_WAITS_MAX:
                tally.rate_limit_waits += 1
            case RetryLater():
                tally.retries += 1
            case RunReduced():
                tally.reduced = True
            case RefreshAndRetry():
                tally.refreshed = True
            case FallBack():
                tally.fallbacks_used += 1
                tally.retries = 0
            case _:
                return
    raise AssertionError("it never gave up")


@given(retries=st.integers(0, 9), jitter=st.floats(0, 1, exclude_max=True))
def test_a_delay_grows_to_its_limit_and_half_of_it_is_certain(retries: int, jitter: float) -> None:
    retry = Retry(max=10, first_s=1.0, factor=3.0, max_s=20.0)
    decision = decide(
        failure("transient"), RecoveryOptions(effect="read", retry=retry), AttemptCounts(retries=retries), jitter
    )
    full = min(20.0, 3.0**retries)
    assert isinstance(decision, RetryLater)
    assert full / 2 <= decision.delay_s <= full


def test_a_very_long_row_of_retries_stays_at_the_longest_delay() -> None:
    means = RecoveryOptions(effect="read", retry=Retry(max=10_000, factor=10.0))
    assert decide(failure("transient"), means, AttemptCounts(retries=9_000), 0.0) == RetryLater(30.0)


class HTTPStatusError(Exception):
    """As the client httpx raises it."""

    __module__ = "httpx"

    def __init__(self, status: int) -> None:
        self.response = type("Response", (), {"status_code": status, "headers": {}})()


def test_a_failure_knows_the_status_that_the_other_side_answered_with():
    assert describe(errors.ToolError("gone", status=410)).status == 410
    assert describe(HTTPStatusError(404)).status == 404
    assert describe(ValueError("no answer at all")).status == 0
