"""Run one command, and turn every failure into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import errno
from collections.abc import Sequence
from pathlib import Path

from cairn import start
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
    except CairnError as error:
        _end_programs()
        if getattr(options, "debug", False):
            raise
        _report(error, getattr(options, "program", None))
        return error.exit_code
    except (OSError, MemoryError) as error:
        _end_programs()
        if getattr(options, "debug", False) or isinstance(error, BrokenPipeError):
            raise
        _report_system(error)
        return start.EXIT_SYSTEM
    except Exception:
        _end_programs()
        raise


def _end_programs() -> None:
    from cairn import process

    process.terminate_all()


def _report(error: CairnError, program: str | None) -> None:
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
    if tip is None and isinstance(error.__cause__, OSError):
        tip = _system_tip(error.__cause__)
    if tip is None and isinstance(error, UsageError) and "--" in str(error) and program:
        tip = f"`{program} --help` shows how to use it"
    console.current().error(str(error), tip=tip, lines=lines)


def _report_system(error: OSError | MemoryError) -> None:
    if isinstance(error, MemoryError):
        console.current().error("not enough memory", tip="end other programs, or use a larger machine")
        return
    if error.errno == errno.ENOENT and not error.filename:  # what `getcwd` raises
        console.current().error("the current folder is gone", tip="change to one that is there: cd ~")
        return
    where = f": {error.filename}" if error.filename else ""
    console.current().error(f"{error.strerror or error}{where}", tip=_system_tip(error))


def _system_tip(error: OSError) -> str | None:
    """Return a tip for an error of the operating system; None if its own message is enough."""
    path = f" {error.filename}" if isinstance(error.filename, str | Path) else ""
    permission = f"take a folder of your own, or have its owner let you in: see `ls -ld{path}`"
    return {
        errno.ENOSPC: "free some space and run the same command again",
        errno.EDQUOT: "free some of your quota and run the same command again",
        errno.EFBIG: "name a folder that takes larger files, or raise the limit of this shell: ulimit -f",
        errno.EACCES: permission,
        errno.EPERM: permission,
        errno.EROFS: "that file system is read-only: name a folder on a different one",
        errno.EMFILE: "allow more open files and run the same command again: ulimit -n 4096",
        errno.ENFILE: "the system has too many open files: end other programs and run the same command again",
        errno.ENOENT: "name one that is there",
        errno.EISDIR: "name a file in it",
        errno.ENOTDIR: "part of the path is a file: name a folder",
        errno.ENAMETOOLONG: "name a folder with a shorter path",
    }.get(error.errno or 0)
