"""Repairing wheels for Windows by delvewheel, on any system."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cairn import process
from cairn.errors import ProcessError, WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import manylinux, windows_dlls

_TIMEOUT = 3600.0


def missing_libraries(wheel: Path, exclude: Sequence[str]) -> tuple[str, ...]:
    """The DLLs that a wheel needs and that neither it, nor others, nor Windows have.

    Raises:
        WheelError: the wheel or a binary in it cannot be read.
    """
    patterns = tuple(pattern.lower() for pattern in exclude)
    with Archive.open(wheel) as archive:
        libraries = windows_dlls.read_libraries(archive)
    own = windows_dlls.shipped(libraries)
    needed = {(name, library.pe.machine) for library in libraries for name in library.needed}
    return tuple(
        sorted(
            name
            for name, machine in needed
            if name not in own
            and not manylinux.matches(name, patterns)
            and not windows_dlls.on_system(name, machine)
        )
    )


def run_delvewheel(wheel: Path, folder: Path, *, exclude: Sequence[str], search: Sequence[Path]) -> None:
    """Write the wheel with the DLLs that it lacks into `folder`.

    Raises:
        WheelError: a DLL is not to be found.
    """
    # Unbuffered: what it prints must not come after the error that ends it.
    command = [sys.executable, "-u", "-m", "delvewheel", "repair", "--ignore-existing", "--analyze-existing"]
    command += ["--wheel-dir", str(folder)]
    if exclude:
        command += ["--exclude", os.pathsep.join(exclude)]
    if search:
        command += ["--add-path", os.pathsep.join(map(str, search))]
    epoch = {"SOURCE_DATE_EPOCH": "315532800"}  # 1980-01-01, the earliest time that a ZIP archive can say
    try:
        process.run([*command, str(wheel)], env={**epoch, **os.environ}, timeout=_TIMEOUT)
    except ProcessError as error:
        # The last line of a traceback: the kind of the error and what it says.
        last = " ".join(process.tail(error.output, 1)).removeprefix("FileNotFoundError: ")
        raise WheelError(
            f"delvewheel cannot repair {wheel.name}: {last}",
            tip="exclude the DLLs that other wheels supply, and say where the others are: --library-path",
        ) from error
