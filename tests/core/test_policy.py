"""Every limit has a default, and the defaults are the documented ones."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core import policy
from holdfast.core.policy import DEFAULT_POLICY, Approval, Concurrency, Fallback, Retry


def test_defaults_are_as_documented() -> None:
    assert Retry() == Retry(max=3, first_s=1.0, factor=2.0, max_s=60.0)
    assert Approval().expires_s == 7 * 86400
    assert Concurrency(key="gpu").limit == 1
    assert (policy.PAUSE_TIMEOUT_S, policy.INTERRUPT_GRACE_S, policy.PASSIVATE_AFTER_S) == (30 * 86400, 10, 30)
    assert (policy.COMMAND_WAIT_S, policy.NOTE_BYTES_MAX) == (5, 16 * 1024)
    assert (DEFAULT_POLICY.on_error, DEFAULT_POLICY.effect, DEFAULT_POLICY.retry) == ("fail", None, None)


def test_every_limit_is_positive_and_a_value_fits_inline_before_it_fits_at_all() -> None:
    limits = {name: value for name, value in vars(policy).items() if name.isupper() and isinstance(value, int | float)}
    assert len(limits) >= 15
    assert all(value > 0 for value in limits.values())
    assert policy.INLINE_BYTES_MAX < policy.VALUE_BYTES_MAX


@pytest.mark.parametrize("kind", [Retry, Fallback, Approval, Concurrency])
def test_a_mistyped_setting_is_not_silently_ignored(kind: type[msgspec.Struct]) -> None:
    known = {"tool": "t"} if kind is Fallback else {"key": "k"} if kind is Concurrency else {}
    assert msgspec.convert(known, kind)
    with pytest.raises(msgspec.ValidationError, match="unknown field `maxx`"):
        msgspec.convert({**known, "maxx": 1}, kind)
