"""Repairing wheels for Windows by delvewheel, on any system."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cairn import isolation, process
from cairn.errors import ProcessError, WheelError
from cairn.wheels.contents import manylinux, windows_dlls
from cairn.wheels.contents.binaries import Binary, shipped

TIMEOUT = 3600.0
# Both tools give every file in the wheel this time, so that repairing again gives the same bytes: 1980-01-01,
# the earliest that a ZIP archive can say.
FIXED_TIME = {"SOURCE_DATE_EPOCH": "315532800"}


def missing_libraries(binaries: Iterable[Binary], exclude: Sequence[str]) -> tuple[str, ...]:
    """The DLLs that the binaries of a wheel need and that neither it, nor others, nor Windows have."""
    dlls = [binary for binary in binaries if binary.format == "pe"]
    patterns = [pattern.lower() for pattern in exclude]
    own = shipped(dlls)
    needed = {(name, dll.machine) for dll in dlls for name in dll.needed if name not in own}
    missing = {
        name
        for name, machine in needed
        if not manylinux.matches(name, patterns) and not windows_dlls.on_system(name, machine)
    }
    return tuple(sorted(missing))


def run_delvewheel(wheel: Path, folder: Path, *, exclude: Sequence[str], search: Sequence[Path]) -> None:
    """Write the wheel with the DLLs that it lacks into `folder`.

    Raises:
        WheelError: a DLL cannot be found.
    """
    # -u, unbuffered: so that the traceback that ends it is the last thing in its output.
    # --ignore-existing: a DLL that the wheel ships is neither bundled again nor renamed.
    # --analyze-existing: what such a DLL needs is bundled all the same.
    command = [sys.executable, "-u", "-m", "delvewheel", "repair", "--ignore-existing", "--analyze-existing"]
    command += ["--wheel-dir", str(folder)]
    if exclude:
        command += ["--exclude", os.pathsep.join(exclude)]
    if search:
        command += ["--add-path", os.pathsep.join(map(str, search))]
    try:
        process.run(
            [*command, str(wheel)],
            env=isolation.variables(isolation.Isolation.TOOL) | FIXED_TIME,
            timeout=TIMEOUT,
        )
    except ProcessError as error:
        # The last line of a traceback: the kind of the error and what it says.
        last = " ".join(process.tail(error.output, 1)).removeprefix("FileNotFoundError: ")
        raise WheelError(
            f"delvewheel cannot repair {wheel.name}: {last}",
            tip="exclude the DLLs that other wheels supply, and say where the others are: --library-path",
        ) from error
