"""Durations and moments as people write them."""

from __future__ import annotations

import pytest

from holdfast.core.durations import parse_duration, parse_moment
from holdfast.core.errors import InputInvalid


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("250ms", 0.25), ("1.5s", 1.5), ("5m", 300), ("2h30m", 9000), ("1d", 86400), ("1w", 604800), (7, 7), (0.5, 0.5)],
)
def test_durations_are_read_as_seconds(written: object, seconds: float):
    assert parse_duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["", "5", "5 minutes", "m", "-5s", "5s!", -1, float("nan"), True, None, [], "٣s"])
def test_what_is_no_duration_gets_examples(written: object):
    with pytest.raises(InputInvalid, match='expected a duration such as "250ms", '):
        parse_duration(written)


@pytest.mark.parametrize("written", ["4000d", 10**30, float("inf"), "999999999999999w"])
def test_durations_beyond_ten_years_are_refused(written: object):
    with pytest.raises(InputInvalid, match="at most 3650d"):
        parse_duration(written)


def test_moments_are_whole_microseconds_since_1970():
    assert parse_moment("1970-01-01T00:00:01.000002Z") == 1_000_002
    assert parse_moment("1970-01-01T02:00:00+02:00") == 0
    assert parse_moment("1969-12-31T23:59:59Z") == -1_000_000


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(InputInvalid, match='the string "2026-12-01T08:00:00" has no time zone; end it with "Z"'):
        parse_moment("2026-12-01T08:00:00")


@pytest.mark.parametrize("written", ["tomorrow", 5, None])
def test_what_is_no_moment_gets_an_example(written: object):
    with pytest.raises(InputInvalid, match='expected a time such as "2026-12-01T08:00:00Z"'):
        parse_moment(written)
