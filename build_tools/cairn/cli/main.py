"""The entry point: parses, runs one command, turns every failure into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import sys
import threading
from collections.abc import Collection, Sequence

from cairn import __version__, process, start
from cairn.cli import completers
from cairn.cli.parser import Parser
from cairn.errors import BuildError, CairnError, GateError, ProblemsError, ProcessError
from cairn.output import console

# Command groups, which are the modules beside this one, in the order --help shows them.
_GROUPS = {
    "checkout": "check projects out, hipify them and tag what upstream gave",
    "manifest": "freeze what a build is made from; make and compare it again",
    "patches": "explain, export and apply what a checkout has beyond upstream",
    "rocm": "make and install ROCm SDK packages",
    "build": "build wheels from checkouts",
    "wheel": "look at, compare, check and change wheels",
    "test": "smoke-test wheels, read test results",
    "index": "serve, publish, audit, verify or mirror an index",
    "release": "promote sets",
    "ci": "run a stack end to end",
}
_CUT = "…"  # between the causes of a failed build and the end of its log


def main(argv: Sequence[str] | None = None) -> int:
    """Run `cairn` with these arguments (default: the command line's).

    Returns:
        The exit code: 0 only on success.
    """
    words = sys.argv[1:] if argv is None else argv
    # One group alone is loaded where it is named: all of them together take longer than many a command.
    line = completers.words() if completers.asked() else words
    first = next((word for word in line if not word.startswith("-")), "")
    return guarded(make_parser((first,)).parse_args(words))


def make_parser(groups: Collection[str] = tuple(_GROUPS)) -> argparse.ArgumentParser:
    """The parser of the program; of commands that are not among `groups` it knows no more than the names."""
    parser = Parser(
        prog="cairn",
        description="Build, test and promote PyTorch wheels for AMD GPUs (ROCm).",
        epilog="example: cairn ci run --stack external-builds/sample/stack.toml",
    )
    parser.add_argument("--version", action="version", version=f"cairn {__version__}")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for group, text in _GROUPS.items():
        if group in groups:
            importlib.import_module(f"cairn.cli.{group}").register(subparsers)
        else:
            subparsers.add_parser(group, help=text)
    return parser


def guarded(options: argparse.Namespace) -> int:
    """Run the command that `options` hold, and report its failure as a person can use it.

    Raises:
        Exception: a failure that nobody foresaw; `cairn.start` has the guard for those.
    """
    start.show_any_text()
    quiet, verbose = (getattr(options, name, False) for name in ("quiet", "verbose"))
    console.use(console.Console(quiet=quiet, verbose=verbose))
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        start.take_interrupts()
    try:
        return int(options.run(options) or 0)
    except KeyboardInterrupt:
        # A second one cuts the waiting short: what is left then is killed.
        with contextlib.suppress(KeyboardInterrupt):
            process.terminate_all()
        console.current().error("interrupted", tip="run the same command again: finished steps are kept")
        return start.EXIT_INTERRUPTED
    except CairnError as error:
        process.terminate_all()
        if getattr(options, "debug", False):
            raise
        _report(error)
        return error.exit_code
    except (OSError, MemoryError) as error:
        process.terminate_all()
        if getattr(options, "debug", False) or isinstance(error, BrokenPipeError):
            raise
        _report_system(error)
        return start.EXIT_SYSTEM
    except Exception:
        process.terminate_all()
        raise


def _report(error: CairnError) -> None:
    lines: Sequence[str] = ()
    tip = error.tip
    if isinstance(error, BuildError):
        lines = (*error.causes, _CUT, *error.tail) if error.causes else error.tail
        if error.log is not None:
            tip = f"{tip}; the whole log is {error.log}" if tip else f"read the whole log: {error.log}"
    elif isinstance(error, ProcessError):
        lines = error.output.splitlines()
    elif isinstance(error, GateError):
        lines = error.reasons
    elif isinstance(error, ProblemsError):
        lines = [f"{problem} ({problem.tip})" if problem.tip else str(problem) for problem in error.problems]
    console.current().error(str(error), tip=tip, lines=lines)


def _report_system(error: OSError | MemoryError) -> None:
    if isinstance(error, MemoryError):
        console.current().error("not enough memory", tip="end other programs, or use a larger machine")
        return
    where = f": {error.filename}" if error.filename else ""
    tip = "free some space and run the same command again" if error.errno == errno.ENOSPC else None
    console.current().error(f"{error.strerror or error}{where}", tip=tip)
