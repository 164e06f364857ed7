"""Which network addresses a tool may reach: everything public, and of the rest only what the settings name.

Owns the judgement of one resolved address. It is asked about the very address a connection is made to, so that neither
a redirect nor a name that changes its mind between two look-ups leads anywhere else. Refuses to look names up itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from holdfast.core.error_text import describe_value
from holdfast.core.errors import InvalidCall, NotPermitted, SettingsInvalid

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Blocks of IPv6 that carry an IPv4 address: judged by what they carry, where a gateway would take them.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")
# Not for the public, though not every Python knows: for documentation, for a site, and between protocols.
_NOT_PUBLIC = tuple(ipaddress.ip_network(block) for block in ("3fff::/20", "fec0::/10", "192.0.0.0/24"))


def check_url(url: str) -> None:
    """An address of the web at all, by its text alone."""
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_fine = False
    if not is_fine:
        raise InvalidCall(f'url: expected an address such as "https://example.org", got "{url}"')


class Reach:
    """`allow` names what may be reached although it is not public: hosts (`intranet`), hosts with a port
    (`localhost:8080`), addresses and networks (`10.0.0.0/8`). `setting` is where the settings say so."""

    def __init__(self, allow: Sequence[str] = (), setting: str = "tools.http.allow") -> None:
        self._setting = setting
        self._hosts: set[tuple[str, int | None]] = set()
        self._networks: list[Network] = []
        for entry in allow:
            self._allow(entry)

    def _allow(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]")))
            return
        except ValueError:
            pass
        host, colon, port = entry.rpartition(":")
        if not colon:
            host, port = entry, ""
        if not host or "/" in host or any(c.isspace() for c in entry) or (colon and not port.isdigit()):
            expected = 'a host, "host:port", an address or a network such as "10.0.0.0/8"'
            raise SettingsInvalid(f"allow: expected {expected}, got {describe_value(entry)}")
        self._hosts.add((host.strip("[]").lower(), int(port) if port else None))

    def check_literal(self, url: str) -> None:
        """Refuses an address that is written out and may not be reached; names are looked up when they are needed."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        address = "127.0.0.1" if host.rstrip(".") == "localhost" else host
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            refused = self.refusal(host, port, address)
        except ValueError:  # a name, or a port that is none
            return
        if refused:
            raise NotPermitted(f"url: {refused}")

    def refusal(self, host: str, port: int, address: str) -> str:
        """Why this address may not be connected to; "" if it may."""
        ip = ipaddress.ip_address(address.partition("%")[0])
        if _is_public(ip):
            return ""
        name = host.lower().rstrip(".")
        if {(name, None), (name, port), (str(ip), port)} & self._hosts or any(ip in net for net in self._networks):
            return ""
        shown = host if host == address else f"{host} is {address}, which"
        named = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return (
            f"{shown} is {_kind(ip)}; only public addresses are reached, and what {self._setting} names: "
            f'add "{named}" there if that is meant'
        )


def _is_public(ip: Address) -> bool:
    carried = _carried(ip)
    if carried is not None:
        return _is_public(carried)
    if ip in _NAT64_LOCAL or any(ip in block for block in _NOT_PUBLIC):
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


def _carried(ip: Address) -> ipaddress.IPv4Address | None:
    if isinstance(ip, ipaddress.IPv4Address):
        return None
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo is not None else None)


def _kind(ip: Address) -> str:
    ip = _carried(ip) or ip
    if ip.is_loopback:
        return "this machine"
    if ip.is_link_local:
        return "a link-local address"
    if ip.is_private:
        return "a private address"
    return "not a public address"
