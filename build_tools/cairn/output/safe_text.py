"""Make foreign text safe to show: no passwords in URLs, terminal escapes or CI commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cairn.errors import UsageError

# user:password@ or token@ in a URL of any scheme, up to the last @, since a password may hold one; the host
# that follows stays readable. The search starts at `://`: looking for the scheme first takes a time that
# grows with the square of the length of a line such as `a.a.a.…`, where each `a` may begin one.
_USERINFO = re.compile(r"(?<=[a-zA-Z0-9+.-]://)[^/\s'\"]+@")
# Control sequences of ECMA-48 (colours, moves) and of xterm (titles, links), in 7 bits and in 8.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
)
UNSEEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""C0, C1, and what turns the direction (UAX #9), breaks the line, has no width or no ink in Unicode."""
# `##[error]`, which GitHub's runner takes for a command anywhere in a line, as Azure does `##vso[…]`.
_ANYWHERE = re.compile(r"##(?=\w*\[)")
# A backslash before punctuation is that character (CommonMark, 2.4), in the tables of GitHub too, where `|`
# begins a cell. `$` begins a formula there.
_SPECIAL = re.compile(r"[\\*`|_<>\[\]#~&!$]")


def visible(text: str) -> str:
    """Return a text as one line with invisible characters escaped."""
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def require_lines(*texts: str, what: str, tip: str) -> None:
    """Refuse a name, or a reason, that a page or a terminal would not show as it is, or that is blank.

    Args:
        texts: them.
        what: what needs them, such as `a bypass needs a name and a reason`.
        tip: what to type.

    Raises:
        UsageError: one is.
    """
    if not all(text.strip() and text.isprintable() and not UNSEEN.search(text) for text in texts):
        raise UsageError(f"{what}, each on one line without control characters", tip=tip)


def without_moves(line: str) -> str:
    """Strip colours, cursor moves and other control sequences from a program's output."""
    return UNSEEN.sub("", _SEQUENCES.sub("", line))


def inert(line: str) -> str:
    r"""Defuse CI commands in a line: one character of each is written as `\x3a` or `\x23`.

    GitHub's runner obeys `::name::data` at the beginning of a line, white space before it aside, and
    `##[name]data` anywhere (actions/runner, `ActionCommand.TryParseV2` and `TryParse`).
    """
    line = _ANYWHERE.sub(r"#\\x23", line)
    start = len(line) - len(line.lstrip())
    return f"{line[:start]}:\\x3a{line[start + 2 :]}" if line.startswith("::", start) else line


def inert_json(text: str) -> str:
    """The same for JSON, whose meaning does not change: such characters are in its strings alone."""
    return _ANYWHERE.sub(r"#\\u0023", text)


def command_data(text: str) -> str:
    """A text as the data of a command to GitHub's runner (actions/toolkit, `escapeData`)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def markdown(value: str) -> str:
    """A text in a line or a cell of a table: no markup, no picture, no second line."""
    return _SPECIAL.sub(r"\\\g<0>", visible(" ".join(value.split())))


def markdown_code(value: str) -> str:
    """A name, such as that of a test.

    Not between backticks, which a name may have too; and in an element, since GitHub makes a picture of the
    `:cat:` in `test_pets.py::cat::test_food` elsewhere.
    """
    return f"<code>{markdown(value)}</code>"


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table, of cells that are Markdown already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def mask(text: str) -> str:
    """`text` with the user information of every URL in it replaced by `***`; in time linear in its length."""
    return _USERINFO.sub("***@", text)
