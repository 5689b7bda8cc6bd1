"""Runs a project's hipify program as a user would, and notes which files it reads.

Run by path, in whatever interpreter hipify needs: it must import nothing that is not of Python itself.

    python watch_script.py NOTES build_amd.py PARENT     a program of the tree
    python watch_script.py NOTES --torch-utils PARENT    what the extension builder of its torch does

NOTES becomes a JSON file: `read`, the files that were opened below the current folder, as paths from there;
`unsupported`, from the mapping table that the program used, the names it writes that HIP does not have, each
with the CUDA name it stands for. It ends when the process PARENT does. Of a file that is not UTF-8, where
Python's error names none, the last line of output has name and line.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

_TABLES = "cuda_to_hip_mappings"
_MARK = "HIP_UNSUPPORTED"  # of torch/utils/hipify/constants.py, up to torch 2.9


_PDEATHSIG = 1  # of prctl(2): the signal that we get when what has started us ends


def main(notes: str, program: str, parent: str) -> None:
    """Run one program; the notes are written if it succeeds."""
    _end_with(parent)
    opened: dict[tuple[str, str], None] = {}  # the newest last

    def hook(event: str, args: tuple[object, ...]) -> None:
        # sys.addaudithook(3): `open` has the path, the mode (None for os.open) and the flags.
        if event == "open" and isinstance(args[0], str) and isinstance(args[1], str) and "r" in args[1]:
            place = os.getcwd(), args[0]  # noqa: PTH109 - os.path is far cheaper, and this runs often
            opened.pop(place, None)
            opened[place] = None

    here = os.path.realpath(".")
    sys.addaudithook(hook)
    try:
        if program == "--torch-utils":
            _torch_utils()
        else:
            _script(os.path.abspath(program))  # noqa: PTH100 - links stay: the program finds its tree by its own path
    except UnicodeDecodeError as error:
        if (line := _undecoded(here, [*opened], error)) is None:
            raise
        traceback.print_exc()
        sys.exit(line)
    read = sorted(_below(here, opened))
    text = json.dumps({"read": read, "unsupported": dict(_unsupported())})
    Path(notes).write_text(text, encoding="utf-8")


def _end_with(parent: str) -> None:
    # On Linux the kernel sees to it at once; elsewhere the guard of what has started us does
    # (`cairn.platforms`), which takes a moment.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        if not os.path.exists(f"/proc/{parent}"):  # noqa: PTH110 - it has ended before
            sys.exit("what started hipify has ended")


def _script(path: str) -> None:
    """As `python path` does: its folder first on the path, itself the main module."""
    sys.argv = [path]
    sys.path[0] = os.path.dirname(path)  # noqa: PTH120
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


def _torch_utils() -> None:
    # As torch/utils/cpp_extension.py, CUDAExtension, for every file of the tree. Only the tree's own files
    # are taken, so nothing of the environment is rewritten.
    hipify_python = importlib.import_module("torch.utils.hipify.hipify_python")
    here = os.getcwd()  # noqa: PTH109 - hipify takes text
    hipify_python.hipify(
        project_directory=here,
        output_directory=here,
        header_include_dirs=sorted(d for d in ("csrc", "include", "src") if os.path.isdir(d)),  # noqa: PTH112
        show_detailed=False,
        is_pytorch_extension=True,
    )


def _undecoded(here: str, opened: list[tuple[str, str]], error: UnicodeDecodeError) -> str | None:
    """Name file and line of a text that could not be decoded: the newest file with these very bytes."""
    for folder, name in reversed(opened):
        path = os.path.join(folder, name)  # noqa: PTH118
        with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            data = file.read()
            # A reader may give its decoder one piece of a file at a time.
            if (begin := data.find(error.object)) >= 0:
                number = data.count(b"\n", 0, begin + error.start) + 1
                byte = error.object[error.start]
                return f"{os.path.relpath(path, here)}:{number}: not UTF-8, by the byte 0x{byte:02x}"
    return None


def _below(here: str, opened: Iterable[tuple[str, str]]) -> set[str]:
    """Files of the tree, less the program's own modules."""
    loaded = {os.path.realpath(f) for m in list(sys.modules.values()) if (f := getattr(m, "__file__", None))}
    loaded |= {os.path.realpath(argument) for argument in sys.argv[:1]}
    names = set()
    for folder, name in opened:
        path = os.path.realpath(os.path.join(folder, name))  # noqa: PTH118
        inside = path.startswith(here + os.sep)
        if inside and path not in loaded and not path.endswith(".pyc"):
            names.add(path[len(here) + 1 :].replace(os.sep, "/"))
    return {name for name in names if not name.startswith(".git/")}


def _unsupported() -> Iterator[tuple[str, str]]:
    tables = next((m for name, m in list(sys.modules.items()) if name.endswith(_TABLES)), None)
    mark = getattr(tables, _MARK, None)
    if tables is None or mark is None:
        return
    for table in getattr(tables, "CUDA_TO_HIP_MAPPINGS", ()):
        for cuda, meaning in table.items():
            if isinstance(meaning, tuple) and mark in meaning[1:]:
                yield meaning[0], cuda


if __name__ == "__main__":
    main(*sys.argv[1:4])
