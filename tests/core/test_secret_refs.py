"""References that stand for secrets, data that only looks like one, and masks over every form of a value."""

from __future__ import annotations

import base64
import html
import itertools
import json
from urllib.parse import quote, quote_plus

import msgspec
import pytest

from holdfast.core.errors import InputInvalid, InvalidCall, UsageError
from holdfast.core.failure import Failure
from holdfast.core.masking import MASKS_MAX, Masks
from holdfast.core.secret_refs import marked, put_in, read_sources, secret, taken_out

VALUE = "tök\"en/a+b c\\d'e"


def masks(value: str = VALUE) -> Masks:
    made = Masks()
    made.add("TOKEN", value)
    return made


def test_reference_becomes_the_value_and_nothing_else_does() -> None:
    names: set[str] = set()
    asked = marked({"header": "Bearer " + secret("TOKEN") + "!", "count": 3, "list": ["plain"]}, names)
    assert asked == {"header": "Bearer ${{ secrets.TOKEN }}!", "count": 3, "list": ["plain"]}
    assert names == {"TOKEN"}
    assert put_in(asked, {"TOKEN": "abcd"}) == {"header": "Bearer abcd!", "count": 3, "list": ["plain"]}


@pytest.mark.parametrize(
    "data", ["${{ secrets.TOKEN }}", "$\\{{ secrets.TOKEN }}", "$${{ secrets.A }}$\\\\{{ secrets.B }}"]
)
def test_data_that_looks_like_a_reference_stays_data(data: str) -> None:
    asked = marked({"data": data, "both": data + secret("TOKEN") + data}, set())
    assert put_in(asked, {"TOKEN": "abcd"}) == {"data": data, "both": f"{data}abcd{data}"}


def test_two_pieces_of_data_do_not_make_a_reference_of_each_other() -> None:
    whole = secret("A") + "${{ secrets." + "TOKEN }}"
    assert put_in(marked(whole, set()), {"A": "aaaa", "TOKEN": "abcd"}) == "aaaa${{ secrets.TOKEN }}"


@pytest.mark.parametrize("value", ["abcd", "secrets.", "TOKEN", "${{ secrets.TOKEN }}"])
def test_value_that_is_taken_out_is_put_in_again(value: str) -> None:
    data = {"plain": f"x{value}y{value}", "looks so": "${{ secrets.TOKEN }}", "number": 3}
    asked = taken_out(marked(data, set()), {"TOKEN": value})
    assert put_in(asked, {"TOKEN": value}) == data
    assert taken_out("abcd ${{ secrets.A }}", {"B": "abcd"}) == "${{ secrets.B }} ${{ secrets.A }}"


def test_reference_to_a_secret_that_the_step_does_not_use_is_refused() -> None:
    with pytest.raises(InvalidCall, match="does not use the secret OTHER"):
        put_in("${{ secrets.OTHER }}", {"TOKEN": "abcd"})


def test_secret_in_an_f_string_is_refused_with_the_way_that_works() -> None:
    with pytest.raises(UsageError, match=r'"Bearer " \+ ctx\.secret'):
        f"Bearer {secret('TOKEN')}"
    assert repr(secret("TOKEN")) == "<secret TOKEN>"
    with pytest.raises(UsageError, match="only texts"):
        secret("TOKEN") + 3  # pyright: ignore[reportUnusedExpression]


@pytest.mark.parametrize(
    "shown",
    [
        VALUE,
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps({"inner": VALUE})),
        quote(VALUE, safe=""),
        VALUE.encode().hex(),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
        repr([VALUE]),
        quote(VALUE, safe="")
        .replace("%2F", "%2f")
        .replace("%2B", "%2b")
        .replace("%C3%B6", "%c3%b6")
        .replace("%5C", "%5c"),
        json.dumps(VALUE)[1:-1].replace("/", "\\/"),
        html.escape(VALUE),
        html.escape(VALUE).replace("&#x27;", "&#39;"),
        html.escape(VALUE).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    ],
)
def test_every_form_of_a_value_is_masked(shown: str) -> None:
    masked = masks().text(f"before {shown} after")
    assert "[secret TOKEN]" in masked
    assert shown not in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")


ODD = 'Zk!8^qW{7}pL"x'


@pytest.mark.parametrize(
    "shown",
    [
        "http://h/x?key=Zk!8^qW{7}pL%22x",  # Chromium and httpx, in a query
        "http://me:Zk!8%5EqW%7B7%7DpL%22x@h/",  # both, as a password
        "http://h/Zk!8%5eqW%7b7%7dpL%22x/y",  # in a path, by somebody who writes small letters
        "http://h/#Zk%218^qW{7}pL%22x",  # a mixture
        quote(ODD, safe="") + quote_plus(ODD),
    ],
)
def test_value_is_masked_however_much_of_it_is_encoded_in_a_url(shown: str) -> None:
    made = _named("K", ODD)
    for masked in (made.text(shown), msgspec.json.decode(made.json(msgspec.json.encode([shown])))[0]):
        assert "[secret K]" in masked
        assert "Zk" not in masked
        assert "pL" not in masked
    assert (made.found_in(shown), made.names_in(shown)) == ("K", {"K"})


@pytest.mark.parametrize("value", ["?a%41 b&c", "tök~en.a-b_c", "a#b/c?d", '"qu\\oted"', "50%25 off", "plain7"])
def test_every_mixture_of_encoded_and_plain_characters_is_masked(value: str) -> None:
    made = _named("K", value)
    ways = [(c,) if c.isascii() and c.isalnum() else (c, "".join(f"%{b:02X}" for b in c.encode())) for c in value]
    for written in map("".join, itertools.product(*ways)):
        assert made.text(f"<{written}>") == "<[secret K]>"
        masked = made.json(msgspec.json.encode({"url": f"<{written}>"}))
        assert msgspec.json.decode(masked) == {"url": "<[secret K]>"}


def test_beginning_of_an_encoded_value_is_held_back_for_its_rest() -> None:
    made, written = _named("K", ODD), "Zk!8%5EqW{7%7dpL%22x"
    for length in range(1, len(written) + 1):
        assert made.held_back(f"see {written[:length]}") == length
        assert made.beginning(f"see {written}", 4 + length) == "see [secret K]"[: 4 + length]
    assert made.held_back(f"see {written}.") == 0
    assert made.held_back("see Zk!8%5D") == 0


def test_value_that_begins_like_another_leaves_nothing_of_it_in_a_url() -> None:
    made = _named("LONG", "ab!cd!ef")
    made.add("SHORT", "ab!c")
    assert made.text("ab%21cd!ef ab%21c ab!cd%21ef") == "[secret LONG] [secret SHORT] [secret LONG]"


@pytest.mark.parametrize("user", ["a", "ab", "abc", "abcd"])
def test_value_inside_a_longer_base64_is_masked_wherever_it_begins(user: str) -> None:
    header = base64.b64encode(f"{user}:s3cret-pass-word".encode()).decode()
    assert "[secret P]" in (m := _named("P", "s3cret-pass-word").text(f"Basic {header}"))
    assert len(m) < len(f"Basic {header}") + len("[secret P]")


def _named(name: str, value: str) -> Masks:
    made = Masks()
    made.add(name, value)
    return made


def test_json_is_masked_in_texts_names_and_long_numbers_and_stays_json() -> None:
    made = _named("PIN", "48213765")
    value = {"48213765": [48213765, 1.5, True, None, "x48213765x", "\n48213765"], "other": {"a": 482137650}}
    masked = msgspec.json.decode(made.json(msgspec.json.encode(value)))
    mark = "[secret PIN]"
    assert masked == {mark: [mark, 1.5, True, None, f"x{mark}x", f"\n{mark}"], "other": {"a": 482137650}}
    untouched = msgspec.json.encode({"a": "nothing here"})
    assert made.json(untouched) is untouched


def test_number_that_is_as_short_as_a_year_stays_a_number() -> None:
    assert _named("PIN", "2024").json(b'[2024,20241,2024.5,"in 2024"]') == b'[2024,20241,2024.5,"in [secret PIN]"]'


def test_value_after_an_escape_leaves_valid_json() -> None:
    made = _named("N", "nabcd")
    assert msgspec.json.decode(made.json(b'["\\nabcd nabcd"]')) == ["\nabcd [secret N]"]


def test_lines_of_a_key_are_masked_one_by_one() -> None:
    made = _named("KEY", "-----BEGIN KEY-----\nMIIEvQIBADANBg\nab\n-----END KEY-----")
    assert made.text("read MIIEvQIBADANBg") == "read [secret KEY]"


def test_message_that_was_cut_does_not_end_in_the_beginning_of_a_secret() -> None:
    failure = Failure(category="tool", message="long text with abcdef…")
    assert _named("T", "abcdefgh").failure(failure).message == "long text with …"


def test_without_a_value_nothing_is_looked_at() -> None:
    made = Masks()
    assert not made.active
    assert made.text("anything") == "anything"
    assert made.found_in("anything") == ""
    assert made.held_back("anything") == 0


def test_masks_are_bounded() -> None:
    made = Masks()
    for number in range(MASKS_MAX + 1):
        made._values[f"value-{number}"] = "T"
    made.add("T", "the newest")
    assert len(made._values) == MASKS_MAX
    assert made.text("the newest") == "[secret T]"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"MY-TOKEN": {"env": "X"}}, "MY-TOKEN: expected a name of letters, digits and _"),
        ({"T": "abc"}, 'T: expected one of {env = "NAME"}'),
        ({"T": {}}, "T: expected one of"),
        ({"T": {"env": "A", "file": "b"}}, "T: expected one of"),
        ({"T": {"envv": "A"}}, 'did you mean "env"'),
        ({"T": {"env": 3}}, "T.env: expected a text, got"),
        ({"T": {"command": "pass show t"}}, "T.command: expected a list of a program and its arguments"),
        ({"T": {"command": []}}, "T.command: expected a list"),
    ],
)
def test_wrong_declaration_is_named(table: dict[str, object], said: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        read_sources(table)
    assert said in str(caught.value)


def test_two_secrets_of_one_value_are_one_mask() -> None:
    made = _named("FIRST", "same-value")
    pattern = made._pattern
    made.add("SECOND", "same-value")
    made.add("FIRST", "same-value")
    assert made._pattern is pattern
    assert made.text("same-value") == "[secret FIRST]"


@pytest.mark.parametrize("before", range(20, 41))
def test_text_is_masked_before_it_is_cut(before: int) -> None:
    made, text = _named("T", "correct-horse"), "x" * before + "correct-horse" + "y" * before
    for cut in (made.beginning(text, 40), made.ending(text, 40)):
        assert len(cut) <= 40
        assert not any(piece in cut for piece in ("cor", "orr", "rse", "ors", "hor"))


def test_value_that_was_cut_inside_of_a_message_is_not_shown() -> None:
    failure = Failure(category="logic", message='expected a number, got the string "correct-ho…"')
    assert _named("T", "correct-horse").failure(failure).message == 'expected a number, got the string "…"'
