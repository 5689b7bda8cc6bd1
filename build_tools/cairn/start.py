"""Where every program of Cairn begins and ends, with the one guard against unforeseen errors.

It imports next to nothing, so that an interrupt while all the rest is imported is answered too.
"""

from __future__ import annotations

import gc
import os
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
    _leave_on_interrupt()
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
        if "--debug" in sys.argv:
            raise
        code = _unforeseen(error)
    _leave_on_interrupt()
    gc.freeze()  # the collector looks through everything once more while the interpreter ends, for nothing
    return code


class Interrupts:
    """What interrupts do from now on: raise `KeyboardInterrupt`, as does the SIGTERM of a stopped CI job.

    Attributes:
        came: whether there was one: a module that was being imported may have turned it into an exception of
            a different class.
    """

    def __init__(self) -> None:
        import signal  # noqa: PLC0415 - see `_leave_on_interrupt`

        self.came = False
        if signal.getsignal(signal.SIGINT) is _leave:
            signal.signal(signal.SIGINT, self._raise)
        signal.signal(signal.SIGTERM, self._raise)

    def _raise(self, *_: object) -> None:
        self.came = True
        raise KeyboardInterrupt


def _leave_on_interrupt() -> None:
    # Nothing runs yet, or runs any more, that would have to be ended. An exception could be lost: what
    # is being imported may catch it, and the interpreter prints what comes up while it ends.
    # A shell has its background jobs ignore the signal; that stays.
    try:
        import signal  # noqa: PLC0415 - it takes a third of the time until an interrupt is answered

        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, _leave)
        signal.signal(signal.SIGTERM, _leave)
    except KeyboardInterrupt:
        _leave()


def _leave(*_: object) -> None:
    # Not `print`: the signal may have come while something holds the lock of standard error.
    os.write(2, b"error: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def show_any_text() -> None:
    """Escape characters that the screen's encoding lacks, and bytes of a path that are not text."""
    import io  # noqa: PLC0415 - see `run`

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _end_output(code: int) -> None:
    try:
        _flush()
    except OSError:
        if code == 0:  # otherwise the reason has been said
            raise


def _flush() -> None:
    # What is still unwritten when the interpreter ends is lost, with a traceback.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # otherwise it would be tried again
            raise


def _without_reader() -> int:
    # The reader of our output has gone; nothing more can be said to it, not even what is still in the buffer.
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return EXIT_INTERRUPTED


def _unforeseen(error: Exception) -> int:
    # A missing package of ours is a defect; one that we depend on, an installation that was half removed.
    if isinstance(error, ImportError) and (error.name or "cairn").partition(".")[0] != "cairn":
        tip = "install Cairn again: `pip install -e .` in its folder, or `python3 dev.py check`"
        return _say(f"{error.name}, which Cairn needs, cannot be imported: {error}", EXIT_PREREQUISITE, tip)
    if isinstance(error, OSError | MemoryError):
        reason = getattr(error, "strerror", None) or str(error) or "not enough memory"
        where = getattr(error, "filename", None)
        return _say(f"{reason}: {where}" if where else reason, EXIT_SYSTEM)
    tip = "this is a defect of Cairn: run it again with --debug, and report the traceback it shows"
    return _say(f"internal error: {type(error).__name__}: {str(error)[:300]}", EXIT_INTERNAL, tip)


def _say(message: str, code: int, tip: str | None = None) -> int:
    import contextlib  # noqa: PLC0415 - see `run`

    from cairn.output import console  # noqa: PLC0415 - see `run`

    with contextlib.suppress(OSError):  # standard error may have no reader either
        console.current().error(message, tip=tip)
    return code
