import pytest

from cairn.build.inputs import variables
from cairn.errors import UsageError


def test_placeholders_are_replaced_and_other_braces_stay() -> None:
    values = {"version": "2.9.0+rocm7", "version:torch": "1", "requirements": "a|b"}
    text = "{version} {version:torch} {requirements} ${HOME} {} {0}"
    assert variables.expand(text, {**values, "HOME": "h"}, where="x") == "2.9.0+rocm7 1 a|b $h {} {0}"


def test_a_value_is_not_expanded_again() -> None:
    assert variables.expand("{a}", {"a": "{b}", "b": "no"}, where="x") == "{b}"


def test_an_unknown_placeholder_names_the_place() -> None:
    with pytest.raises(UsageError, match=r"environment of torch, USE_X.*\{nope\}"):
        variables.expand_all({"USE_X": "{nope}"}, {}, where="environment of torch")
