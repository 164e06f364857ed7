"""Which addresses tools may reach: public ones, and those that were named."""

from __future__ import annotations

import pytest

from holdfast.core.errors import SettingsInvalid
from holdfast.tools.net.address_policy import Reach

HIDDEN = [
    ("127.0.0.1", "this machine"),
    ("127.1.2.3", "this machine"),
    ("::1", "this machine"),
    ("0.0.0.0", "a private address"),
    ("::", "a private address"),
    ("10.0.0.1", "a private address"),
    ("172.16.0.1", "a private address"),
    ("192.168.1.1", "a private address"),
    ("fd00::1", "a private address"),
    ("169.254.169.254", "a link-local address"),
    ("fe80::1", "a link-local address"),
    ("fe80::1%eth0", "a link-local address"),
    ("100.64.0.1", "not a public address"),
    ("224.0.0.1", "not a public address"),
    ("ff02::1", "not a public address"),
    ("255.255.255.255", "a private address"),
    ("::ffff:127.0.0.1", "this machine"),
    ("::ffff:10.0.0.1", "a private address"),
    ("64:ff9b::7f00:1", "this machine"),
    ("2002:7f00:1::", "this machine"),
    ("64:ff9b:1::1", ""),
    ("3fff::1", ""),
    ("fec0::1", ""),
    ("192.0.0.8", ""),
    ("192.0.0.9", ""),
    ("192.0.0.10", ""),
    ("::ffff:192.0.0.9", ""),
]


@pytest.mark.parametrize(("address", "kind"), HIDDEN)
def test_what_is_not_public_is_refused(address: str, kind: str) -> None:
    refusal = Reach().refusal("somewhere.test", 80, address)
    assert refusal.startswith(f"somewhere.test is {address}, which is {kind}")
    assert refusal.endswith(
        '; only public addresses are reached, and what tools.http.allow names: add "somewhere.test:80" there if '
        "that is meant"
    )


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_what_is_public_may_be_reached(address: str) -> None:
    assert Reach().refusal("somewhere.test", 443, address) == ""


@pytest.mark.parametrize(
    "allow", ["127.0.0.1", "127.0.0.0/8", "localhost", "LOCALHOST", "localhost:8080", "127.0.0.1:8080"]
)
def test_what_is_named_may_be_reached(allow: str) -> None:
    assert Reach([allow]).refusal("localhost", 8080, "127.0.0.1") == ""


def test_a_named_port_or_host_opens_nothing_else() -> None:
    assert Reach(["localhost:8080"]).refusal("localhost", 22, "127.0.0.1")
    assert Reach(["intranet"]).refusal("elsewhere.test", 80, "10.0.0.1")
    assert Reach(["10.1.0.0/16"]).refusal("elsewhere.test", 80, "10.2.0.1")


@pytest.mark.parametrize("wrong", ["", "10.0.0.0/99", "a b", "host:port", "http://host/"])
def test_an_entry_that_means_nothing_is_refused(wrong: str) -> None:
    with pytest.raises(SettingsInvalid, match=r'allow: expected a host, "host:port", an address or a network such as'):
        Reach([wrong])
