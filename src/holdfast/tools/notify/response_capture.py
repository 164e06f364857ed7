"""What a service of apprise says and is told while it sends: the only way to know more than its yes or no.

apprise catches every error of its services and answers False, so what the other side said is listened to where it
arrives: in the log of the service, in the answers to its web requests, and in the errors of its mail server. Nothing is
changed on the way, and whoever sends without Holdfast is not listened to.
"""

# sentences of others: apprise

from __future__ import annotations

import logging
import re
import smtplib
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

_BROKE = "Socket Exception"  # how every service of apprise begins to tell of a connection that failed
_STATUS = re.compile(r"\berror=(\d{3})\b")  # how it ends to tell of an answer that is no
_ASKING = frozenset({"GET", "HEAD", "OPTIONS"})
_VERBS = ("request", "get", "post", "put", "patch", "delete", "head", "options")

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

_ears: ContextVar[Ears | None] = ContextVar("holdfast_ears", default=None)  # apprise hands the context to its threads


class Answered(NamedTuple):
    """The answer of a web service to something it was sent."""

    status: int
    headers: Mapping[str, str]  # by their names in small letters


class Ears(_Adapter):
    """Stands in for the log of one service while it sends, hears what it says, and passes it on."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})
        self.broke: list[str] = []  # connections that failed, in its own words
        self.answers: list[Answered] = []
        self.mail_errors: list[smtplib.SMTPException] = []
        self.has_sent = False
        self._told: list[Answered] = []  # as its log tells them, if nobody saw the answers themselves

    @contextmanager
    def listening(self) -> Generator[None]:
        """In this task, and in the threads that apprise starts for it."""
        token = _ears.set(self)
        try:
            yield
        finally:
            _ears.reset(token)

    @property
    def statuses(self) -> list[Answered]:
        return self.answers or self._told

    def log(self, level: int, msg: object, *args: object, **others: Any) -> None:
        self.hear(level, str(msg) % args if args else str(msg))
        super().log(level, msg, *args, **others)

    def hear(self, level: int, told: str) -> None:
        error = sys.exc_info()[1]  # it is told of where it was caught
        if isinstance(error, smtplib.SMTPException):
            if error not in self.mail_errors:
                self.mail_errors.append(error)
        elif told.startswith(_BROKE):
            self.broke.append(told)
        elif level == logging.INFO:
            self.has_sent = True  # "Sent …": with several people, or a text in several parts, one of them was told
        elif found := _STATUS.findall(told):
            self._told.append(Answered(int(found[-1]), {}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logger, name)  # apprise has levels of its own


def overhear(service: Any) -> Ears:
    """Ears for one service, which is about to send."""
    for kind in type(service).__mro__:
        module: Any = sys.modules[kind.__module__]
        if kind.__module__.startswith("apprise.") and _is_plain(getattr(module, "requests", None)):
            module.requests = _Requests(module.requests)
    mail: Any = sys.modules.get("apprise.plugins.email.smtp")
    if mail is not None and not isinstance(mail.logger, _MailLog):
        mail.logger = _MailLog(mail.logger)
    service.logger = Ears(service.logger)
    return service.logger


def _is_plain(requests: Any) -> bool:
    return requests is not None and not isinstance(requests, _Requests)


class _Requests:
    """Stands in for `requests` in a module of apprise: the answers are heard by whoever is listening there."""

    def __init__(self, requests: Any) -> None:
        self._requests = requests
        for verb in _VERBS:
            setattr(self, verb, self._heard(getattr(requests, verb)))

    @staticmethod
    def _heard(ask: Any) -> Any:
        def asked(*args: Any, **others: Any) -> Any:
            answer = ask(*args, **others)
            ears = _ears.get()
            if ears is not None and str(answer.request.method).upper() not in _ASKING:
                headers = {name.lower(): value for name, value in answer.headers.items()}
                ears.answers.append(Answered(int(answer.status_code), headers))
            return answer

        return asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._requests, name)


class _MailLog(_Adapter):
    """Stands in for the log of apprise's mail connection, which is one for all channels."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})

    def log(self, level: int, msg: object, *args: object, **others: Any) -> None:
        ears = _ears.get()
        if ears is not None:
            ears.hear(level, str(msg) % args if args else str(msg))
        super().log(level, msg, *args, **others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logger, name)
