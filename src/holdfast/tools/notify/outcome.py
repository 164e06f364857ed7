"""What became of a message that was handed to apprise: taken, certainly not sent, refused, or nobody knows.

| what was heard (response_capture.py) | category | effect |
|---|---|---|
| the one connection that was tried was refused, or its host not found | transient | none |
| HTTP 401, 403, 407 | permission | none |
| HTTP 404, 410 | configuration | none |
| HTTP 408, 425 | transient | none |
| HTTP 429 | rate_limit, by its Retry-After | none |
| other HTTP refusals: 4xx | tool | none |
| a mail server's 530, 534, 535, 538: who sends is not known there | permission | none |
| it cannot do what the address asks for, such as STARTTLS | configuration | none |
| its 4xx: not now | transient | none |
| its 5xx about a recipient | configuration | none |
| its other 5xx | tool | none |
| anything else: HTTP 5xx, a redirect, a connection that broke off, no answer in time | transient | unknown |

A refusal counts only if nothing else was heard: of a message to several people, or in several parts, one may have gone.
"""

# sentences of others: apprise

from __future__ import annotations

import errno
import re
import smtplib
from typing import Any

from holdfast.core.errors import Misconfigured, NotPermitted, RateLimited, ToolError, Transient
from holdfast.tools.net.answers import retry_after
from holdfast.tools.notify.response_capture import Answered, Ears
from holdfast.tools.secrets.redaction import masks

WORDS_CHARS_MAX = 300  # of what a mail server says about an error
_UNKNOWN_SENDER = frozenset({530, 534, 535, 538})
# From the beginning: what the other side answered may hold any words. A negative number is one of the look-up.
_NEVER_CONNECTED = re.compile(
    rf"Socket Exception: (\[Errno (-\d+|{errno.ECONNREFUSED})\] "
    r"|HTTPS?ConnectionPool\(host='[^']*', port=\d+\): Max retries exceeded with url: \S* "
    r"\(Caused by (NameResolutionError|NewConnectionError)\()"
)


def failure_of(channel: str, result: Any, is_unmatched: bool, heard: Ears) -> ToolError:
    said = "; ".join(dict.fromkeys(str(entry.message) for entry in result.logs())) or "no reason given"
    text = f'the channel "{channel}" did not confirm: {said}'
    if is_unmatched:
        return Misconfigured(text)
    if heard.has_sent or result.timeout_count:
        return Transient(text)
    return _refused(text, heard) or Transient(text, without_effect=_never_connected(heard))


def _never_connected(heard: Ears) -> bool:
    others = heard.statuses or heard.mail_errors
    return not others and len(heard.broke) == 1 and bool(_NEVER_CONNECTED.match(heard.broke[0]))


def _refused(text: str, heard: Ears) -> ToolError | None:
    """The first refusal as ours, if all that was heard are refusals."""
    found = [_by_status(text, answer) for answer in heard.statuses]
    found += [_by_mail(text, error) for error in heard.mail_errors]
    return found[0] if found and None not in found and not heard.broke else None


def _by_status(text: str, answer: Answered) -> ToolError | None:
    match answer.status:
        case 401 | 403 | 407:
            return NotPermitted(f"{text}; check the credentials in its address")
        case 404 | 410:
            return Misconfigured(f"{text}; there is nothing at its address, correct it")
        case 408 | 425:
            return Transient(text, without_effect=True)
        case 429:
            return RateLimited(text, retry_after_s=retry_after(answer.headers))
        case status if 400 <= status < 500:
            return ToolError(text, without_effect=True)
        case _:
            return None


def _by_mail(text: str, error: smtplib.SMTPException) -> ToolError | None:
    if isinstance(error, smtplib.SMTPNotSupportedError):  # which is found out before anything is sent
        return Misconfigured(f"{text}: {_words(error)}; correct its address")
    for code, words, is_recipient in _said_by_mail(error):
        told = f"{text}: {code} {words}".rstrip()
        if code in _UNKNOWN_SENDER:
            return NotPermitted(f"{told}; check the credentials in its address")
        if 400 <= code < 500:
            return Transient(told, without_effect=True)
        if 500 <= code < 600:
            return Misconfigured(told) if is_recipient else ToolError(told, without_effect=True)
    return None


def _said_by_mail(error: smtplib.SMTPException) -> list[tuple[int, str, bool]]:
    """Code and words of its refusals, and whether they are about a recipient: none if it never said no."""
    match error:
        case smtplib.SMTPRecipientsRefused():
            return [(code, _words(said), True) for code, said in error.recipients.values()]
        case smtplib.SMTPResponseException():
            return [(error.smtp_code, _words(error.smtp_error), False)]
        case _:
            return []


def _words(said: Any) -> str:
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return " ".join(masks.beginning(text, WORDS_CHARS_MAX).split())
