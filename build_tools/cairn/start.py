"""The entry and exit of every program of Cairn, with the one guard against unforeseen errors."""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False  # `typing` has one too, and takes as long to import as all that is needed here
if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_PREREQUISITE = 3
EXIT_SYSTEM = 11
EXIT_INTERNAL = 12
EXIT_INTERRUPTED = 130


def run(program: Callable[[], int]) -> int:
    """Call what imports and runs a program, and gives the exit code.

    Whatever it raises becomes one line; with `--debug` on the command line, a traceback.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    # Importing a command makes 100,000 objects and no garbage; with Python's threshold of 700 the collector
    # looks for some again and again, which takes a tenth of the time of a short command.
    gc.set_threshold(100_000, 50, 50)
    try:
        show_any_text()
        try:
            code = program()
        except SystemExit as leaving:  # what argparse does
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        _end_output(code)
    except KeyboardInterrupt:
        code = _say("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        code = _without_reader()
    except Exception as error:  # the one guard: an unforeseen error must not be a page of code
        if "--debug" in sys.argv or os.environ.get("CAIRN_DEBUG"):
            raise
        code = _unforeseen(error)
    gc.freeze()  # the collector looks through everything once more while the interpreter ends, for nothing
    return code


def _interrupt(*_: object) -> None:
    """Take the SIGTERM of a stopped CI job as Ctrl-C: what runs is ended in the same way."""
    raise KeyboardInterrupt


def show_any_text() -> None:
    """Escape characters that the screen's encoding lacks, and bytes of a path that are not text."""
    import io  # noqa: PLC0415 - see `run`

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _end_output(code: int) -> None:
    # What is still unwritten when the interpreter ends is lost, with a traceback.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # otherwise it would be tried again
            if code == 0:  # otherwise the reason has been said
                raise
            return


def _without_reader() -> int:
    # The reader of our output has gone; nothing more can be said to it, not even what is still in the buffer.
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return EXIT_INTERRUPTED


def _unforeseen(error: Exception) -> int:
    # A missing package of ours is a defect; one that we depend on, an installation that was half removed.
    if isinstance(error, ImportError) and (error.name or "cairn").partition(".")[0] != "cairn":
        from cairn import extras  # noqa: PLC0415 - see `run`

        if extra := extras.extra_of(error.name or ""):
            message = f"this needs {error.name}, which the core of Cairn does without"
            return _say(message, EXIT_PREREQUISITE, extras.line(extra))
        tip = "install Cairn again: `pip install -e .` in its folder, or `python3 dev.py check`"
        return _say(f"{error.name}, which Cairn needs, cannot be imported: {error}", EXIT_PREREQUISITE, tip)
    from cairn import errors  # noqa: PLC0415 - see `run`

    if isinstance(error, errors.CairnError):  # before a command runs, as in a page of help
        return _say(str(error), error.exit_code, error.tip)
    if isinstance(error, OSError | MemoryError):
        message, what_to_do = errors.of_system(error)
        return _say(message, EXIT_SYSTEM, what_to_do)
    tip = "this is a defect of Cairn: run it again with --debug, and report the traceback it shows"
    return _say(f"internal error: {type(error).__name__}: {str(error)[:300]}", EXIT_INTERNAL, tip)


def _say(message: str, code: int, tip: str | None = None) -> int:
    import contextlib  # noqa: PLC0415 - see `run`

    from cairn.output import console  # noqa: PLC0415 - see `run`

    with contextlib.suppress(OSError):  # standard error may have no reader either
        console.current().error(message, tip=tip)
    return code
