"""One class per kind of failure, each with its exit code and what to do next."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path


class CairnError(Exception):
    """A failure that the user can act on.

    Attributes:
        exit_code: what the program exits with; see the table in `docs/reference/exit-codes.md`.
        tip: one sentence that says what to do next, or None.
        usual_tip: the tip of those of the kind that are given none.
    """

    exit_code = 1
    usual_tip: str | None = None

    def __init__(self, message: str, *, tip: str | None = None) -> None:
        super().__init__(message)
        self.tip = tip or self.usual_tip


class UsageError(CairnError):
    """The request is invalid: a wrong flag, an unknown target, a malformed file."""

    exit_code = 2


class OtherVersionError(UsageError):
    """A file was written by a different version of Cairn."""


class PrerequisiteError(CairnError):
    """A program, a package or hardware that the machine must have is missing.

    Attributes:
        line: what to type so that it is there; None where no line alone does it.
    """

    exit_code = 3

    def __init__(self, message: str, *, tip: str | None = None, line: str | None = None) -> None:
        super().__init__(message, tip=tip or line)
        self.line = line


class SourceError(CairnError):
    """A repository, hashtag, pin or checkout is not what it must be."""

    exit_code = 4


class NetworkError(CairnError):
    """A remote resource could not be reached; trying again may help."""

    exit_code = 5


class BuildError(CairnError):
    """A project could not be built into a wheel.

    Attributes:
        log: the whole output of the failed step, or None.
        tail: its last lines.
        causes: the first lines that give a cause, with their numbers, if they are not among the last.
    """

    exit_code = 6

    def __init__(
        self,
        message: str,
        *,
        tip: str | None = None,
        log: Path | None = None,
        tail: tuple[str, ...] = (),
        causes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, tip=tip)
        self.log = log
        self.tail = tail
        self.causes = causes


class WheelError(CairnError):
    """A wheel is malformed, incomplete, or not what was asked for."""

    exit_code = 7


class TestsFailedError(CairnError):
    """Tests ran and did not pass, or too few of them ran."""

    __test__ = False  # pytest would collect the name
    exit_code = 8


class StoreError(CairnError):
    """A store or an index cannot be read or written, or was changed by someone else meanwhile."""

    exit_code = 9


class GateError(CairnError):
    """Promotion was refused.

    Attributes:
        reasons: every demand that does not hold.
    """

    exit_code = 10

    def __init__(self, message: str, *, reasons: tuple[str, ...] = (), tip: str | None = None) -> None:
        super().__init__(message, tip=tip)
        self.reasons = reasons


class SystemFailureError(CairnError):
    """The operating system refused: no disk space left, no permission, a port in use."""

    exit_code = 11


class ProblemsError(CairnError):
    """Several problems, all reported at once.

    Attributes:
        problems: each with its own tip; the first one gives the exit code.
        tip: one line that brings all programs and packages that are missing, if some are.
    """

    def __init__(self, message: str, *, problems: Sequence[CairnError]) -> None:
        lines = [each.line for each in problems if isinstance(each, PrerequisiteError) and each.line]
        super().__init__(message, tip=" && ".join(dict.fromkeys(lines)) or None)
        self.problems = tuple(problems)
        self.exit_code = self.problems[0].exit_code


class ProcessError(CairnError):
    """A program that was run failed, and nothing gives its failure a more exact error.

    Attributes:
        returncode: its exit status; negative for a signal.
        output: the last of what it wrote.
    """

    def __init__(self, message: str, *, returncode: int, output: str = "", tip: str | None = None) -> None:
        super().__init__(message, tip=tip)
        self.returncode = returncode
        self.output = output


def of_system(error: OSError | MemoryError) -> tuple[str, str | None]:
    """What the operating system refused, and what to do; no tip where its own message is enough."""
    if isinstance(error, MemoryError):
        return "not enough memory", "end other programs, or use a larger machine"
    if error.errno == errno.ENOENT and not error.filename:  # what `getcwd` raises
        return "the current folder is gone", "change to one that is there: cd ~"
    path = f" {error.filename}" if isinstance(error.filename, str | Path) else ""
    permission = f"take a folder of your own, or have its owner let you in: see `ls -ld{path}`"
    tip = {
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
    return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", tip
