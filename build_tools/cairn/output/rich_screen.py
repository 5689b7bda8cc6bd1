"""Styled lines and a table that is drawn again and again, by way of rich; loaded when first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import rich.console
import rich.live
import rich.table
import rich.text

from cairn.output import safe_text

Styled: TypeAlias = tuple[str, str]
"""A text and rich's name of its style; an empty one for none."""


# For screens that cannot show the signs that we draw with; all else that a screen lacks is escaped.
_IN_ASCII = str.maketrans({"✓": "+", "✗": "x", "→": ">", "…": "...", "·": "-"})


class _Console(rich.console.Console):
    """A console that lets us handle a broken pipe; rich's own exits with 1."""

    def on_broken_pipe(self) -> None:
        """What rich calls while it handles the `BrokenPipeError`."""
        raise  # noqa: PLE0704 - the one that is handled


class Screen:
    """Standard output or standard error, wherever it is put at the moment."""

    def __init__(self, *, stderr: bool, inert: bool) -> None:
        """`inert`: a CI system reads what is written here and must find no command but those of `command`."""
        self._inert = inert
        # emoji=False: what we print may hold `:x:`, and must stay as it is.
        # No file named: where the standard streams are put elsewhere later, we follow them.
        self._console = _Console(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)

    @property
    def redraws(self) -> bool:
        """Whether lines can be drawn again, for all that rich knows."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    @property
    def width(self) -> int:
        """Columns."""
        return self._console.width

    def line(self, *parts: Styled) -> None:
        """Print one line, however long it is."""
        whole = "".join(text for text, _ in parts)
        # A command may begin in one part and end in the next, so the whole is looked at.
        if self._inert and (harmless := safe_text.inert(whole)) != whole:
            parts = ((harmless, parts[0][1]),)
        shown = (self._drawn(text, style) for text, style in parts)
        # A `Text`, since rich reads `[bold]` in a plain string as markup.
        self._console.print(rich.text.Text.assemble(*shown), soft_wrap=True)

    def command(self, text: str) -> None:
        """Print a command to the CI system, whose data is escaped."""
        self._console.print(rich.text.Text(text), soft_wrap=True)

    def _drawn(self, text: str, style: str) -> Styled:
        return (text if self._shows(text) else text.translate(_IN_ASCII)), style

    def _shows(self, text: str) -> bool:
        try:
            text.encode(self._console.encoding, "surrogateescape")
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def live(self, rows: Callable[[], Sequence[Sequence[Styled]]]) -> rich.live.Live:
        """A table below all else that shows what `rows` gives, eight times a second; begun."""
        # rich marks what it cuts off with an ellipsis, which not every screen has.
        cut: Literal["ellipsis", "crop"] = "ellipsis" if self._shows("…") else "crop"

        def table() -> rich.table.Table:
            drawn = rich.table.Table(box=None, pad_edge=False, show_header=False)
            for row in rows():
                cells = (self._drawn(text, style) for text, style in row)
                drawn.add_row(
                    *(rich.text.Text(text, style=style, no_wrap=True, overflow=cut) for text, style in cells)
                )
            return drawn

        live = rich.live.Live(
            get_renderable=table, console=self._console, refresh_per_second=8, transient=True
        )
        live.start()
        return live
