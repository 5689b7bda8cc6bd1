"""The answer of a command: a value for programs, and for people the lines and tables made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeAlias

from cairn.errors import CairnError
from cairn.output import console


@dataclass(frozen=True)
class Table:
    """A table with a header; a cell is shown as text, or as `-` if it is None."""

    head: Sequence[str]
    rows: Iterable[Sequence[object]]


@dataclass(frozen=True)
class Note:
    """A remark about the answer, written to standard error unless --quiet is given."""

    text: str


@dataclass(frozen=True)
class Warn:
    """A warning about the answer, written to standard error."""

    text: str


Piece: TypeAlias = "str | tuple[console.Mark, str] | Table | Note | Warn"
"""A line, a paragraph with its mark, a table, a note, or a warning."""
Result: TypeAlias = "Answer | Iterable[Answer | Piece] | int | None"
"""What a command returns: an answer; several, or pieces that programs get too, each shown as soon as it is
made; or nothing to show, and perhaps an exit code."""


@dataclass(frozen=True)
class Answer:
    """The answer of a command.

    Attributes:
        value: for --json: plain values, and what `datafile.to_plain` makes plain.
        text: the same for people; not made where JSON is printed.
        more: for --json, what `value` has no field for.
        error: why the command fails all the same, reported after the answer.
        exit_code: where the answer itself says what is wrong.
    """

    value: object
    text: Iterable[Piece] = ()
    _: KW_ONLY
    more: Mapping[str, object] = field(default_factory=dict)
    error: CairnError | None = None
    exit_code: int = 0

    def show(self, *, json: bool) -> int:
        """Print the answer; return the exit code.

        Raises:
            CairnError: `error`.
        """
        if json:
            from cairn import datafile

            plain = datafile.to_plain(self.value)
            console.current().json(plain | datafile.to_plain(self.more) if self.more else plain)
        else:
            for piece in self.text:
                _show(piece)
        if self.error is not None:
            raise self.error
        return self.exit_code


def show(result: Result, *, json: bool) -> int:
    """Print what a command returns; return the exit code, the highest one of several answers.

    Raises:
        CairnError: the `error` of an answer.
    """
    if isinstance(result, Answer):
        return result.show(json=json)
    if isinstance(result, Iterable):
        exit_code = 0
        for each in result:
            if isinstance(each, Answer):
                exit_code = max(exit_code, each.show(json=json))
            else:
                _show(each)
        return exit_code
    return result or 0


def _show(piece: Piece) -> None:
    screen = console.current()
    if isinstance(piece, str):
        screen.out(piece)
    elif isinstance(piece, tuple):
        screen.item(*piece)
    elif isinstance(piece, Note):
        screen.info(piece.text)
    elif isinstance(piece, Warn):
        screen.warn(piece.text)
    else:
        screen.table(piece.head, [["-" if cell is None else str(cell) for cell in row] for row in piece.rows])
