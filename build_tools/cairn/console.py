"""Progress, tables and fold groups in CI; the only place that writes to the screen.

Results go to standard output, everything else to standard error, so that output can be piped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import rich.console
import rich.live
import rich.table
import rich.text

from cairn import redact

_LINE = 120  # characters of a program's last line that are shown
# CSI sequences (ECMA-48) and other control characters: a program may think that it has the screen to itself.
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_HEARTBEAT = 15.0  # seconds between signs of life where nothing can be redrawn


@dataclass(kw_only=True, eq=False)
class Stage:
    """One thing under way: its name, when it began and the last line its programs wrote."""

    name: str
    started: float = field(default_factory=time.monotonic)
    line: str = ""

    def update(self, line: str) -> None:
        """Show `line` as the latest sign of life, without the colours and moves of the program it is from."""
        self.line = _CONTROLS.sub("", line)

    @property
    def seconds(self) -> float:
        """Wall time since the stage began."""
        return time.monotonic() - self.started


class Console:
    """Where people read what Cairn does."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        # emoji=False: what we print may hold `:x:`, and must stay as it is.
        self._out = rich.console.Console(file=sys.stdout, highlight=False, soft_wrap=True, emoji=False)
        self._err = rich.console.Console(file=sys.stderr, highlight=False, soft_wrap=True, emoji=False)
        self._in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
        # rich takes FORCE_COLOR, which CI sets, for a terminal; lines can be drawn again on a real one only.
        self._redraws = sys.stderr.isatty() and self._err.is_terminal and not self._err.is_dumb_terminal
        self._group: Stage | None = None  # the stage whose fold group is open in GitHub Actions
        self._stages: list[Stage] = []
        self._live: rich.live.Live | None = None
        self._lock = threading.RLock()

    def out(self, text: str) -> None:
        """Print a result."""
        self._out.print(redact.mask(text), markup=False)

    def json(self, value: object) -> None:
        """Print a result for a program to read."""
        # ASCII alone is JSON in every encoding that standard output may have.
        self._out.print(redact.mask(json.dumps(value, indent=2)), markup=False)

    def info(self, text: str) -> None:
        """Say what is done."""
        if not self.quiet:
            self._err.print(redact.mask(text), markup=False)

    def warn(self, text: str) -> None:
        """Say what is not right but does not stop us."""
        self._err.print(rich.text.Text(f"warning: {redact.mask(text)}", style="yellow"))

    def error(self, text: str, *, tip: str | None = None, lines: Sequence[str] = ()) -> None:
        """Say why we stop, the last lines that led to it, and what to do next."""
        for line in lines:
            self._err.print(rich.text.Text(f"  | {redact.mask(line)}", style="dim"))
        self._err.print(rich.text.Text(f"error: {redact.mask(text)}", style="bold red"))
        if tip:
            self._err.print(f"  what to do: {redact.mask(tip)}", markup=False)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a head as a result; a row is one line, however narrow the screen."""
        cells = [[redact.mask(cell) for cell in row] for row in (head, *rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        for number, row in enumerate(cells):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            self._out.print(rich.text.Text(line, style="bold" if number == 0 else ""), soft_wrap=True)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Show that `name` is under way until the block ends; stages may run side by side in threads."""
        stage = Stage(name=name)
        self._begin(stage)
        try:
            yield stage
        except BaseException:
            self._end(stage, "✗", "red")
            raise
        self._end(stage, "✓", "green")

    def _begin(self, stage: Stage) -> None:
        with self._lock:
            self._stages.append(stage)
            if self.quiet:
                return
            if not self._redraws:
                self._announce(stage)
                threading.Thread(target=self._beat, args=(stage,), daemon=True).start()
            elif self._live is None:
                self._live = rich.live.Live(
                    get_renderable=self._running, console=self._err, refresh_per_second=8, transient=True
                )
                self._live.start()

    def _announce(self, stage: Stage) -> None:
        # GitHub Actions cannot nest groups: one is folded only while its stage runs alone.
        self._close_group()
        alone = len(self._stages) == 1
        if self._in_actions and alone:
            self._group = stage
        self._err.print(f"{'→ ' if self._group is None else '::group::'}{stage.name}", markup=False)

    def _close_group(self) -> None:
        if self._group is not None:
            self._group = None
            self._err.print("::endgroup::", markup=False)

    def _end(self, stage: Stage, sign: str, style: str) -> None:
        with self._lock:
            self._stages.remove(stage)
            if self._live is not None and not self._stages:
                self._live.stop()
                self._live = None
            if self.quiet:
                return
            if stage is self._group:
                self._close_group()
            self._err.print(
                rich.text.Text.assemble((sign, style), f" {stage.name} ", (clock(stage.seconds), "dim"))
            )

    def _running(self) -> rich.table.Table:
        table = rich.table.Table(box=None, pad_edge=False, show_header=False)
        for stage in list(self._stages):
            table.add_row(
                rich.text.Text("…", style="cyan"),
                rich.text.Text(stage.name),
                rich.text.Text(clock(stage.seconds), style="dim"),
                rich.text.Text(
                    stage.line[: max(20, self._err.width - len(stage.name) - 14)], style="dim", no_wrap=True
                ),
            )
        return table

    def _beat(self, stage: Stage) -> None:
        next_at = _HEARTBEAT
        while stage in self._stages:
            time.sleep(0.25)
            if stage.seconds >= next_at and stage in self._stages:
                next_at += _HEARTBEAT
                self._err.print(
                    redact.mask(f"  {stage.name} {clock(stage.seconds)}  {stage.line[:_LINE]}"), markup=False
                )


def clock(seconds: float) -> str:
    """A duration as people read it: `3.2 s`, `4 min 05 s`."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def size(count: int) -> str:
    """A number of bytes as people read it: `812 B`, `3.4 MB` (powers of 1000, as package indexes have it)."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":  # noqa: PLR2004 - the step between units
            break
        value /= 1000
    return f"{int(value)} {unit}" if unit == "B" else f"{value:.1f} {unit}"


_console: Console | None = None


def current() -> Console:
    """The program's console."""
    global _console  # noqa: PLW0603 - made when first asked for, so that importing does nothing
    if _console is None:
        _console = Console()
    return _console


def use(console: Console) -> None:
    """Make `console` the program's console."""
    global _console  # noqa: PLW0603 - see `current`
    _console = console
