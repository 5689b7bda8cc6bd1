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


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain text, 3.5 (ok): x-y/z", "plain text, 3.5 (ok): x-y/z"),
        ("a|b", r"a\|b"),
        ("a `b`", r"a \`b\`"),
        ("<img src=x>&amp;", r"\<img src=x\>\&amp;"),
        ("![x](y)", r"\!\[x\](y)"),
        ("back\\slash", r"back\\slash"),
        ("two\n\n# lines\r\n", r"two \# lines"),
        ("$x$ ~~y~~ *z* __w__", r"\$x\$ \~\~y\~\~ \*z\* \_\_w\_\_"),
        ("\x1b[31mred\u202e", r"\\x1b\[31mred\\u202e"),
    ],
)
def test_a_text_is_shown_as_it_is(value: str, written: str) -> None:
    # What is escaped as unseen is escaped once more as Markdown, so that its backslash is shown.
    assert safe_text.markdown(value) == written


def test_a_name_in_a_table() -> None:
    cells = (safe_text.markdown_code("a.py::cat::t[x|`y`]"), "")
    row = r"| <code>a.py::cat::t\[x\|\`y\`\]</code> |  |"
    assert safe_text.markdown_table(("name", "why"), [cells]) == ["| name | why |", "| --- | --- |", row]
