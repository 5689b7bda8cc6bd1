"""The console: progress, tables, and fold groups in CI, for users and programs.

Results go to standard output, everything else to standard error, so that output can be piped.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cairn.output import safe_text

if TYPE_CHECKING:
    from rich.live import Live

    from cairn.output.rich_screen import Screen, Styled

_LINE = 120  # characters of a program's last line that are shown
_HEARTBEAT = 15.0  # seconds between signs of life where nothing can be redrawn

Mark = Literal["done", "failed", "kept", "bypassed", "skipped"]
"""How something ended: `kept` is of an earlier run and still holds, `bypassed` was vouched for by name,
`skipped` never began."""
_SIGNS: Mapping[Mark, tuple[str, str]] = {
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "kept": ("=", "cyan"),
    "bypassed": ("!", "bold yellow"),
    "skipped": ("-", "yellow"),
}


@dataclass(kw_only=True, eq=False)
class Stage:
    """One thing under way: its name, when it began and the last line its programs wrote.

    Attributes:
        on_line: where each line is shown, not the last one alone.
        step: its number in a run of several, such as `[3/12] `; empty outside of one.
        mark: how it ends unless it fails.
        note: said behind its name at the end.
    """

    name: str
    started: float = field(default_factory=time.monotonic)
    line: str = ""
    on_line: Callable[[str], None] | None = None
    step: str = ""
    mark: Mark = "done"
    note: str = ""

    def end_as(self, mark: Mark, note: str) -> None:
        """Show the end with this mark and note instead of plainly done."""
        self.mark, self.note = mark, note

    def update(self, line: str, *, shown: str | None = None) -> None:
        """Show `line` as the latest sign of life, without the colours and moves of the program it is from.

        Args:
            line: what the program wrote.
            shown: what is shown of it, where there is not room for every line.
        """
        plain = safe_text.without_moves(line)
        self.line = plain if shown is None else safe_text.without_moves(shown)
        if self.on_line is not None:
            self.on_line(plain)

    @property
    def seconds(self) -> float:
        """Wall time since the stage began."""
        return time.monotonic() - self.started


class Console:
    """The console that users read."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self.quiet = quiet
        self.verbose = verbose
        self._in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
        self._group: Stage | None = None  # the stage whose fold group is open in GitHub Actions
        self._stages: list[Stage] = []
        self._live: Live | None = None  # the table at the bottom of a terminal while any stage runs
        self._lock = threading.RLock()
        self._steps: tuple[int, int] | None = None  # how many have begun, of how many

    @contextlib.contextmanager
    def steps(self, total: int) -> Iterator[None]:
        """Number the stages that begin in this block, as there will be `total` of them."""
        self._steps = (0, total)
        try:
            yield
        finally:
            self._steps = None

    def _next_step(self) -> str:
        if self._steps is None:
            return ""
        begun, total = self._steps
        self._steps = (begun + 1, total)
        return f"[{begun + 1:>{len(str(total))}}/{total}] "

    def out(self, text: str) -> None:
        """Print a result, which is one line whatever it holds."""
        line = _one_line(text)
        _write(safe_text.inert(line) if _in_ci() else line)

    def json(self, value: object) -> None:
        """Print a result for a program to read."""
        import json  # noqa: PLC0415 - no help needs it

        # ASCII alone is JSON in every encoding that standard output may have.
        _write(safe_text.inert_json(safe_text.mask(json.dumps(value, indent=2))))

    def info(self, text: str) -> None:
        """Print progress information."""
        if not self.quiet:
            for line in text.split("\n"):
                self._err.line((_one_line(line), ""))

    def warn(self, text: str) -> None:
        """Print a warning, which does not stop the run."""
        self._err.line((f"warning: {_one_line(text)}", "yellow"))

    def error(self, text: str, *, tip: str | None = None, lines: Sequence[str] = ()) -> None:
        """Print an error, the last lines that led to it, and what to do next."""
        for line in lines:
            self._err.line((f"  | {_one_line(line)}", "dim"))
        self._err.line((f"error: {_one_line(text)}", "bold red"))
        if tip:
            self._err.line((f"  what to do: {_one_line(tip)}", ""))

    def can_ask(self) -> bool:
        """Whether somebody sits before a terminal who can answer."""
        return sys.stdin.isatty() and sys.stderr.isatty() and not _in_ci()

    def ask(self, question: str, default: str) -> str:
        """Ask for one word; an empty answer is the default."""
        sys.stderr.write(f"{_one_line(question)} [{default}]: ")
        sys.stderr.flush()
        return sys.stdin.readline().strip() or default

    def item(self, mark: Mark, text: str) -> None:
        """Print a marked paragraph as a result; on a terminal its lines stand below each other."""
        sign, style = _SIGNS[mark]
        lines = [_one_line(text)]
        if sys.stdout.isatty():
            lines = textwrap.wrap(lines[0], max(20, self._out.width - 4), break_on_hyphens=False)
        for number, line in enumerate(lines):
            self._out.line(("  ", ""), (sign if number == 0 else " ", style), (f" {line}", ""))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a head as a result, a row in a line.

        On a terminal that is too narrow the first cell of a row has a line to itself, and the others follow.
        """
        cells = [[_one_line(cell) for cell in row] for row in (head, *rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        narrow = sys.stdout.isatty() and sum(widths) + 2 * (len(head) - 1) > self._out.width
        for number, row in enumerate(cells):
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            lines = [row[0], "  " + "  ".join(padded[1:])] if narrow else ["  ".join(padded)]
            for line in lines:
                self._out.line((line.rstrip(), "bold" if number == 0 else ""))

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Show that `name` is under way until the block ends; stages may run side by side in threads."""
        stage = Stage(name=_one_line(name), on_line=self._show_line if self.verbose else None)
        self._begin(stage)
        try:
            yield stage
        except BaseException:
            stage.end_as("failed", "")
            raise
        finally:
            self._end(stage)

    def say_kept(self, name: str, note: str) -> None:
        """Say that a stage need not begin, since what it did before still holds."""
        self._not_begun(name, "kept", note)

    def skipped(self, name: str, note: str) -> None:
        """Say that a stage does not begin, and why."""
        self._not_begun(name, "skipped", note)

    def fold(self, name: str, lines: Iterable[str]) -> None:
        """Print a whole log below its name, folded, in a CI system that can fold."""
        if not self._in_actions or self.quiet:
            return
        with self._lock:  # what other stages say meanwhile comes behind it
            self._close_group()
            self._err.command(f"::group::{safe_text.command_data(_one_line(name))}")
            for line in lines:
                self._show_line(line)
            self._err.command("::endgroup::")

    def _not_begun(self, name: str, mark: Mark, note: str) -> None:
        with self._lock:
            step = self._next_step()
            if not self.quiet:
                self._say_ended(step, _one_line(name), mark, note)

    def _show_line(self, line: str) -> None:
        self._err.line((f"  | {_one_line(line)}", "dim"))

    def _begin(self, stage: Stage) -> None:
        with self._lock:
            stage.step = self._next_step()
            self._stages.append(stage)
            if self.quiet:
                return
            # On a terminal one table shows all stages and is drawn again; elsewhere each begins with a line,
            # and a line from time to time says that it still runs: CI ends jobs that are silent for long.
            if not self._redraws:
                self._announce(stage)
                threading.Thread(target=self._beat, args=(stage,), daemon=True).start()
            elif self._live is None:
                self._live = self._err.live(self._running)

    def _announce(self, stage: Stage) -> None:
        # GitHub Actions cannot nest groups: one is folded only while its stage runs alone.
        self._close_group()
        alone = len(self._stages) == 1
        if self._in_actions and alone:
            self._group = stage
        if self._group is None:
            self._err.line((f"{stage.step}→ {stage.name}", ""))
        else:
            self._err.command(f"::group::{safe_text.command_data(stage.step + stage.name)}")

    def _close_group(self) -> None:
        if self._group is not None:
            self._group = None
            self._err.command("::endgroup::")

    def _end(self, stage: Stage) -> None:
        with self._lock:
            self._stages.remove(stage)
            # Stopped before the last stage's end is said, or the line would go where the table was.
            if self._live is not None and not self._stages:
                self._live.stop()
                self._live = None
            if self.quiet:
                return
            if stage is self._group:
                self._close_group()
            self._say_ended(stage.step, stage.name, stage.mark, stage.note, clock(stage.seconds))

    def _say_ended(self, step: str, name: str, mark: Mark, note: str, taken: str = "") -> None:
        sign, style = _SIGNS[mark]
        line = ((step, "dim"), (sign, style), (f" {name}", ""), (f" {taken}" if taken else "", "dim"))
        ending = f"{mark}: {_one_line(note)}" if note else ""
        if self._redraws and sum(len(text) for text, _ in line) + 2 + len(ending) > self._err.width:
            self._err.line(*line)
            margin = " " * (len(step) + 2)
            for part in textwrap.wrap(ending, max(20, self._err.width - len(margin)), break_on_hyphens=False):
                self._err.line((f"{margin}{part}", style))
        else:
            self._err.line(*line, (f"  {ending}" if ending else "", style))

    def _running(self) -> list[tuple[Styled, ...]]:
        return [
            (
                ("…", "cyan"),
                (f"{stage.step}{stage.name}", ""),
                (clock(stage.seconds), "dim"),
                # 14: the mark, the clock and the gaps between the columns
                (stage.line[: max(20, self._err.width - len(stage.step + stage.name) - 14)], "dim"),
            )
            for stage in list(self._stages)
        ]

    def _beat(self, stage: Stage) -> None:
        # Looks often, so that the thread of a stage that has ended is gone soon.
        next_at = _HEARTBEAT
        while stage in self._stages:
            time.sleep(0.25)
            if stage.seconds >= next_at and stage in self._stages:
                next_at += _HEARTBEAT
                shown = f"  {stage.step}{stage.name} {clock(stage.seconds)}  {stage.line[:_LINE]}"
                self._err.line((safe_text.mask(shown), ""))

    @functools.cached_property
    def _out(self) -> Screen:
        return _screen(stderr=False)

    @functools.cached_property
    def _err(self) -> Screen:
        return _screen(stderr=True)

    @functools.cached_property
    def _redraws(self) -> bool:
        # rich takes FORCE_COLOR, which CI sets, for a terminal; lines can be drawn again on a real one only.
        return sys.stderr.isatty() and self._err.redraws


def _screen(*, stderr: bool) -> Screen:
    # Loaded here because many commands print a result only, and rich takes as long to load as they run.
    from cairn.output import rich_screen  # noqa: PLC0415

    return rich_screen.Screen(stderr=stderr, inert=_in_ci())


def _in_ci() -> bool:
    """Whether something may read our lines for commands; most systems set `CI`, Azure `TF_BUILD`."""
    return any(
        os.environ.get(name, "false") not in ("", "0", "false")
        for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD")
    )


def _write(text: str) -> None:
    # While lines are drawn again, what is written to standard output would go where they are drawn.
    stream = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
    stream.write(f"{text}\n")
    stream.flush()


def _one_line(text: str) -> str:
    """A text as one line to show: secrets masked, invisible characters escaped."""
    return safe_text.mask(safe_text.visible(text))


def clock(seconds: float) -> str:
    """A duration for users to read: `3.2 s`, `4 min 05 s`."""
    if round(seconds, 1) < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(max(60, int(seconds)), 60)
    return f"{minutes} min {rest:02d} s"


def size(count: int) -> str:
    """A number of bytes for users to read: `812 B`, `3.4 MB` (powers of 1000, as package indexes have it)."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if round(value, 1) < 1000 or unit == "TB":  # noqa: PLR2004 - the step between units
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
