"""Labels: one rule and one wording, wherever they come from."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InputInvalid
from holdfast.core.labels import check_labels


@pytest.mark.parametrize("name", ["team", "a.b/c_d-e", "9", "x" * 63])
def test_good_names(name: str) -> None:
    assert check_labels({name: "any text, ümlauts too"}) == {name: "any text, ümlauts too"}


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"te am": "a"}, 'a label\'s name is 1 to 63 letters, digits and . _ - /, not "te am"'),
        ({"": "a"}, 'not ""'),
        ({"x" * 64: "a"}, "a label's name is 1 to 63 letters"),
        ({"für": "a"}, 'not "für"'),
        ({3: "a"}, "not the number 3"),
        ({"a": "x" * 257}, "the label a has 257 characters, 256 are allowed"),
        ({"a": "b\nc"}, 'the label a holds a control character: "b\\nc"'),
        ({"a": 3}, "the label a must be a text, not the number 3"),
        ({f"n{i}": "" for i in range(101)}, "there are 101 labels, 100 are allowed"),
    ],
)
def test_bad_labels(labels: dict[Any, Any], said: str) -> None:
    with pytest.raises(InputInvalid, match="the labels do not fit:") as raised:
        check_labels(labels)
    assert said in str(raised.value)
