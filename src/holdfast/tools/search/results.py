"""What comes back from a search provider, made fit to be read: checked, cleaned, cut, each page once."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any, TypedDict, cast
from urllib.parse import urlsplit

from holdfast.core.errors import ToolError
from holdfast.tools.runtime.invisible_text import has_unseen, without_unseen

TITLE_CHARS_MAX = 300
SNIPPET_CHARS_MAX = 1000
URL_CHARS_MAX = 2000
WEB = ("http", "https")
FILES = ("file",)  # only our own index may name files: what a server names is no file of ours
# A comment, or a tag, whose quoted values may hold a ">"; each also if it never ends. Every beginning finds an end, so
# the time is linear. (Python's own parser hands unfinished tags on as text, or not, depending on its version.)
_TAG = re.compile(
    r"""<!--.*?(?:-->|\Z) | <(?:/?[a-zA-Z]|[!?]) (?: =\s*"[^"]*(?:"|\Z) | =\s*'[^']*(?:'|\Z) | [^>] )* (?:>|\Z)""",
    re.VERBOSE | re.DOTALL,
)


class Result(TypedDict):
    title: str
    url: str
    snippet: str


def results_in(answer: Any, place: tuple[str, ...], snippet: str, provider: str) -> list[dict[str, Any]]:
    """The list of results in a provider's answer; an answer of another shape is told as such."""
    found = answer
    for key in place:
        found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    if found is None and isinstance(answer, dict) and len(place) > 1:
        return []  # Brave leaves the part out when nothing was found
    if not isinstance(found, list):
        raise ToolError(f"{provider} answered with something else than search results; check its address")
    kept = [cast("dict[str, Any]", one) for one in cast("list[Any]", found) if isinstance(one, dict)]
    return [{"title": one.get("title"), "url": one.get("url"), "snippet": one.get(snippet)} for one in kept]


def cleaned(found: Iterable[dict[str, Any]], limit: int, schemes: tuple[str, ...]) -> list[Result]:
    """Only what can be shown and followed: no markup, no unseen characters, no odd addresses, no twins."""
    kept: dict[str, Result] = {}
    for one in found:
        url = one.get("url")
        if not isinstance(url, str) or not _is_address(url, schemes) or url in kept:
            continue
        title = _text(one.get("title"), TITLE_CHARS_MAX)
        kept[url] = {"title": title or url, "url": url, "snippet": _text(one.get("snippet"), SNIPPET_CHARS_MAX)}
        if len(kept) >= limit:
            break
    return list(kept.values())


def _is_address(url: str, schemes: tuple[str, ...]) -> bool:
    if len(url) > URL_CHARS_MAX or has_unseen(url) or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in schemes and bool(parts.netloc or parts.scheme == "file")
    except ValueError:
        return False


def _text(value: Any, chars_max: int) -> str:
    if not isinstance(value, str):
        return ""
    # Twice: what was escaped, or had something unseen in it, is markup again without that.
    plain = html.unescape(_TAG.sub(" ", value[: chars_max * 4]))
    plain = " ".join(_TAG.sub(" ", without_unseen(plain)).split())
    return plain if len(plain) <= chars_max else plain[: chars_max - 1] + "…"
