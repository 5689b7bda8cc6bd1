import pytest

from cairn.output import safe_text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://u:p@h/x", "https://***@h/x"),
        ("fetch https://token@h/x and ssh://git@h/y", "fetch https://***@h/x and ssh://***@h/y"),
        ("https://h/x@v1", "https://h/x@v1"),
        ("git@github.com:a/b", "git@github.com:a/b"),
        ("HTTPS://u:p%40q@h", "HTTPS://***@h"),
        ("git+ssh://u@h/x://q@z", "git+ssh://***@h/x://***@z"),
        ("https://a:p@ss@h", "https://***@h"),
        ("://nobody@h and /x@y", "://nobody@h and /x@y"),
    ],
)
def test_user_information_goes_and_the_rest_stays(text: str, masked: str) -> None:
    assert safe_text.mask(text) == masked
