"""TOML that others wrote: refused in one line, and in a time in proportion to its length."""

import pytest

from cairn import tomlfile
from cairn.errors import UsageError


@pytest.mark.parametrize("text", ["{} = 1", "[{}]", "x = {{ {} = 1 }}"])
def test_a_key_of_very_many_parts_is_refused(text: str) -> None:
    # tomllib takes the square of its length in time, and gives a table too deep to be used.
    with pytest.raises(UsageError, match="over 2000 dots"):
        tomlfile.loads(text.format(".".join("a" * 3_000)).encode(), name="pyproject.toml")


def test_long_texts_are_read() -> None:
    text = "A sentence. " * 500
    assert tomlfile.loads(f'x = "{text}"\ny = """\n{text}\n{text}"""'.encode(), name="a.toml")["x"] == text


@pytest.mark.parametrize(
    "data", [b"a", b"\xff = 1", b"a = 1\na = 2", b"x = " + b"[" * 5_000, b"n = " + b"9" * 5_000]
)
def test_what_is_no_toml_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"a\.toml is not TOML"):
        tomlfile.loads(data, name="a.toml")
