"""Text of others in GitHub's Markdown: shown as it is, whatever it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cairn.output import safe_text

# A backslash before punctuation is that character (CommonMark, 2.4), in the tables of GitHub too, where `|`
# begins a cell. `$` begins a formula there.
_SPECIAL = re.compile(r"[\\*`|_<>\[\]#~&!$]")


def text(value: str) -> str:
    """A text in a line or a cell of a table: no markup, no picture, no second line."""
    return _SPECIAL.sub(r"\\\g<0>", safe_text.visible(" ".join(value.split())))


def code(value: str) -> str:
    """A name, such as that of a test.

    Not between backticks, which a name may have too; and in an element, since GitHub makes a picture of the
    `:cat:` in `test_pets.py::cat::test_food` elsewhere.
    """
    return f"<code>{text(value)}</code>"


def table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table, of cells that are Markdown already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
