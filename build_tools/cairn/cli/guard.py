"""Run one command, and turn every failure into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence

from cairn import errors, start
from cairn.errors import BuildError, CairnError, GateError, ProblemsError, ProcessError, UsageError
from cairn.output import console

_CUT = "…"  # between the causes of a failed build and the end of its log


def guarded(options: argparse.Namespace) -> int:
    """Run the command that `options` hold, and report its failure so that a user can act on it.

    Raises:
        Exception: an unforeseen failure; `cairn.start` has the guard for those.
    """
    start.show_any_text()
    quiet, verbose = (getattr(options, name, False) for name in ("quiet", "verbose"))
    console.use(console.Console(quiet=quiet, verbose=verbose))
    try:
        return int(options.run(options) or 0)
    except KeyboardInterrupt:
        # A second interrupt cuts the waiting short: what is left then is killed.
        with contextlib.suppress(KeyboardInterrupt):
            _end_programs()
        console.current().error("interrupted", tip="run the same command again: finished steps are kept")
        return start.EXIT_INTERRUPTED
    except (CairnError, argparse.ArgumentTypeError) as error:
        _end_programs()
        if getattr(options, "debug", False):
            raise
        program = getattr(options, "program", None)
        if not isinstance(error, CairnError):  # of a word that the command itself converts
            error = UsageError(str(error), tip=f"`{program} --help` shows how to use it")
        _report(error, program)
        return error.exit_code
    except (OSError, MemoryError) as error:
        _end_programs()
        if getattr(options, "debug", False) or isinstance(error, BrokenPipeError):
            raise
        message, tip = errors.of_system(error)
        console.current().error(message, tip=tip)
        return start.EXIT_SYSTEM
    except Exception:
        _end_programs()
        raise


def _end_programs() -> None:
    from cairn import process

    process.terminate_all()


def _report(error: CairnError, program: str | None) -> None:
    tip = _tip_of(error)
    if tip is None and isinstance(error.__cause__, OSError):
        _, tip = errors.of_system(error.__cause__)
    if tip is None and isinstance(error, UsageError) and "--" in str(error) and program:
        tip = f"`{program} --help` shows how to use it"
    console.current().error(str(error), tip=tip, lines=_details_of(error))


def _tip_of(error: CairnError) -> str | None:
    if not isinstance(error, BuildError) or error.log is None:
        return error.tip
    return f"{error.tip}; the whole log is {error.log}" if error.tip else f"read the whole log: {error.log}"


def _details_of(error: CairnError) -> Sequence[str]:
    """What is shown above an error; of several problems, each with what is shown above it."""
    if isinstance(error, BuildError):
        return (*error.causes, _CUT, *error.tail) if error.causes else error.tail
    if isinstance(error, ProcessError):
        return error.output.splitlines()
    if isinstance(error, GateError):
        return error.reasons
    lines: list[str] = []
    for problem in error.problems if isinstance(error, ProblemsError) else ():
        # The line that brings what is missing is in that of all together.
        tip = None if getattr(problem, "line", None) else _tip_of(problem)
        lines += [*_details_of(problem), f"{problem} ({tip})" if tip else str(problem)]
    return lines
