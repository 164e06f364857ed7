"""The address of a PostgreSQL store: `postgresql://user@host:port/database?schema=name&lease_s=10`.

Owns what is ours in it (schema and lease) and the form that may be shown: no message ever holds a password. Everything
else is handed to libpq as it is. Needs no driver, so that settings can be checked without one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from holdfast.core.errors import SettingsInvalid, StoreUnavailable

if TYPE_CHECKING:
    from holdfast.journal.postgres.store import PostgresStore

SCHEMES = ("postgresql", "postgres")
SCHEMA = "holdfast"
LEASE_S = 10.0
LEASE_S_MIN, LEASE_S_MAX = 0.1, 3600.0
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")  # its channel for notifications is longer, and has 63 characters at most
_HOSTS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:@/\[\],]*)(:[0-9]*)?(,(\[[0-9a-fA-F:.]+\]|[^:@/\[\],]*)(:[0-9]*)?)*")


@dataclass(frozen=True, kw_only=True)
class PostgresAddress:
    """`libpq` is what the driver is given, password included; `shown` is for people."""

    libpq: str = field(repr=False)
    shown: str
    schema: str = SCHEMA
    lease_s: float = LEASE_S


def is_postgres(store: str) -> bool:
    return store.partition("://")[0] in SCHEMES and "://" in store


def open_postgres(url: str) -> PostgresStore:
    """Connects to nothing yet. The driver is imported here and nowhere before."""
    try:
        from holdfast.journal.postgres.store import PostgresStore
    except ImportError as error:
        text = f"a store in PostgreSQL needs psycopg, which cannot be imported ({error}); pip install 'psycopg[binary]'"
        raise StoreUnavailable(text) from error
    return PostgresStore(url)


def parse_address(url: str) -> PostgresAddress:
    """Raises SettingsInvalid, without repeating what may be part of a password."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise SettingsInvalid(_UNREADABLE) from None
    login, _, hosts = parts.netloc.rpartition("@")
    if not _HOSTS.fullmatch(hosts) or parts.fragment or not url.isprintable():
        raise SettingsInvalid(_UNREADABLE)
    schema = options.pop("schema", SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise SettingsInvalid(
            f"schema={schema}: expected small letters, digits and underscores, at most 48, not beginning with a digit "
            "or with pg_"
        )
    lease_s = _read_lease(options.pop("lease_s", str(LEASE_S)))
    libpq = f"postgresql://{parts.netloc}{parts.path}" + f"?{urlencode(options, quote_via=quote)}" * bool(options)
    user = login.partition(":")[0] or options.get("user", "")
    place = f"{user}@" * bool(user) + (hosts or options.get("host", "")) + parts.path
    shown = f"postgresql://{place}" + f"?schema={schema}" * (schema != SCHEMA)
    return PostgresAddress(libpq=libpq, shown=shown, schema=schema, lease_s=lease_s)


def _read_lease(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEASE_S_MIN <= seconds <= LEASE_S_MAX:
        raise SettingsInvalid(f"lease_s={text}: expected a number of seconds from {LEASE_S_MIN:g} to {LEASE_S_MAX:g}")
    return seconds


_UNREADABLE = (
    "expected postgresql://user:password@host:port/database?schema=name, and this is none; "
    "special characters in the user's name and the password are written as %40 for @, %2F for /, %3A for :"
)
