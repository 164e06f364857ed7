"""What Holdfast logs, as the command line says everything else beside its answer: `holdfast: …` on stderr, or as JSON.

Only its own words: what tools and libraries log is theirs. Whoever has set up logging of their own in a module of the
project has the last word.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any

from holdfast.cli.output.format import json_line


class _Beside(logging.Handler):
    def __init__(self, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self.as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return  # of somebody who gets it, too
        # Not through what covers stderr while tools run: the record itself was heard, and would be heard twice.
        stream: Any = sys.stderr
        stream = getattr(stream, "covered", stream)
        text = self.format(record)
        with suppress(OSError, ValueError):  # nobody reads it any more
            print(json_line({"note": text}) if self.as_json else f"holdfast: {text}", file=stream, flush=True)


def tell_warnings(as_json: bool) -> None:
    log = logging.getLogger("holdfast")
    for handler in [handler for handler in log.handlers if isinstance(handler, _Beside)]:
        log.removeHandler(handler)
    log.addHandler(_Beside(as_json))
