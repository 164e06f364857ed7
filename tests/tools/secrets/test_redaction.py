"""Credentials that the settings of a tool name: what of them is masked, and what stays readable."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.tools.mcp import transport
from holdfast.tools.secrets.redaction import cover, cover_address, cover_literal, masks


def test_key_is_masked_also_without_the_word_before_it() -> None:
    cover("KEY", "Bearer sk-live-9f8e7d6c")
    assert masks.text("Bearer sk-live-9f8e7d6c; sk-live-9f8e7d6c") == "[secret KEY]; [secret KEY]"


@pytest.mark.parametrize(
    "value", ["true", "eu-west", "/usr/bin/env", "/usr/bin:/not/there", "~/", "./tests", "http://host/a"]
)
def test_what_looks_like_no_credential_stays_readable(value: str) -> None:
    cover("SETTING", value)
    assert masks.text(f"at {value}") == f"at {value}"


@pytest.mark.parametrize("value", ["/9j4AAQSkZJRgABA", "~tilde-key-77", ".dotted.key.41", "/with\0a-nul-byte"])
def test_credential_that_only_begins_like_a_path_is_masked(value: str) -> None:
    cover("KEY", value)
    assert masks.text(f"leak {value}") == "leak [secret KEY]"


@pytest.mark.parametrize(
    ("name", "value", "is_masked"),
    [
        ("API_TOKEN", "correct-horse", True),
        ("Authorization", "Bearer correct-horse", True),
        ("X-Custom", "sk-live-9f8e7d6c5b4a", True),
        ("Accept", "application/json", False),
        ("NODE_ENV", "production", False),
        ("PASSWORD", "test", False),
    ],
)
def test_value_in_the_settings_is_masked_if_its_name_or_its_looks_say_so(
    name: str, value: str, is_masked: bool
) -> None:
    cover_literal(name, value)
    assert (value not in masks.text(f"a {value}")) == is_masked


def test_short_password_of_an_address_does_not_spoil_every_text_that_holds_it() -> None:
    cover_address("mail", "mailto://user:test@mail.example.org")
    assert masks.text("the tests passed; latest attestation") == "the tests passed; latest attestation"
    cover_address("mail", "mailto://user:long-enough@mail.example.org")
    assert masks.text("it is long-enough") == "it is [secret mail]"


def test_password_and_tokens_of_an_address_are_masked_and_its_host_is_not() -> None:
    cover_address("ops", "jsons://ann:pass%2Fword@hooks2.example-company.org/hook/T0123456789ABCDEF?to=me")
    said = "pass/word pass%2Fword hooks2.example-company.org /hook T0123456789ABCDEF to=me"
    assert masks.text(said) == "[secret ops] [secret ops] hooks2.example-company.org /hook [secret ops] to=me"
    cover_address("chat", "tgram://123456789:AAbbCCddEEffGGhh11/4711")
    assert "AAbb" not in masks.text("sending as 123456789:AAbbCCddEEffGGhh11 to 4711")


def test_address_that_is_none_is_left_alone() -> None:
    cover_address("ops", "json://[broken")
    assert not masks.active


def test_value_that_is_declared_as_a_secret_has_the_name_of_it() -> None:
    cover("VARIABLE", "sk-live-9f8e7d6c")
    masks.add("TOKEN", "sk-live-9f8e7d6c")
    cover("VARIABLE", "sk-live-9f8e7d6c")
    assert masks.text("sk-live-9f8e7d6c") == "[secret TOKEN]"


@pytest.mark.parametrize("before", [5, 285, 290])
@pytest.mark.parametrize("after", [0, 285, 5000])
async def test_what_an_mcp_server_complains_is_masked_before_it_is_cut(before: int, after: int) -> None:
    masks.add("TOKEN", "correct-horse-battery")
    stderr, outage = asyncio.StreamReader(), transport.Outage()
    stderr.feed_data(b"x" * before + b"correct-horse")
    reading = asyncio.ensure_future(transport._read_stderr(cast("Any", SimpleNamespace(stderr=stderr)), outage))
    await asyncio.sleep(0)  # it has read a part of the line
    stderr.feed_data(b"-battery" + b"y" * after)
    stderr.feed_eof()
    await reading
    assert not any(piece in line for line in outage.stderr for piece in ("corr", "orse", "batt", "tery"))
