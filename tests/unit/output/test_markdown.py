from __future__ import annotations

import pytest

from cairn.output import safe_text


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
