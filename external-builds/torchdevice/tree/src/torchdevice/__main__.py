"""`python -m torchdevice [--to DEVICE] [--devices N] [--strict] SCRIPT …`, or `-m MODULE …`, or `--table`."""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import sys
import traceback
import types
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

import torchdevice
from torchdevice import features as flags
from torchdevice import matrix

# By their first word; everything else is a program to run.
_COMMANDS = {"catalog": "torchdevice.catalog.command", "report": "torchdevice.reporting"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a program with torchdevice enabled, as `python` would run it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] and given[0] in _COMMANDS:
        command = importlib.import_module(_COMMANDS[given[0]])
        sys.exit(command.main(given[1:]))
    options = _parser().parse_args(given)
    if options.table:
        print(_table())
        return
    program = options.module or options.program
    if not program:
        _parser().error("name a script, or a module with -m")
    features = _features(options)
    try:
        torchdevice.enable(
            options.to, count=options.devices, strict=options.strict or None, features=features
        )
    except (RuntimeError, ValueError) as error:
        _parser().error(str(error))
    sys.argv = program
    try:
        _run_module(program[0]) if options.module else _run_script(program[0])
    except ImportError as error:
        if not _is_of_runpy(error):
            raise
        sys.exit(f"torchdevice: {error}")


def _run_module(name: str) -> None:
    _look_first_in(str(Path.cwd()))
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_script(name: str) -> None:
    script = Path(name)
    if name == "-":
        _look_first_in("")
        _run_source(sys.stdin.buffer.read(), "<stdin>")
        return
    if not name or not script.exists():
        _parser().error(f"there is no script {name!r}")
    _look_first_in(str(script.resolve().parent))
    if script.is_file() or script.is_dir():
        runpy.run_path(name, run_name="__main__")
    else:  # a pipe, which is read once; runpy looks first whether a file is compiled
        _run_source(script.read_bytes(), name)


def _look_first_in(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _run_source(source: bytes, name: str) -> None:
    program = types.ModuleType("__main__")
    if name != "<stdin>":
        program.__file__ = name
    # Left there, as Python leaves it: threads and exit handlers may run on.
    sys.modules["__main__"] = program
    exec(compile(source, name, "exec"), vars(program))  # noqa: S102 - what it is for


def _is_of_runpy(error: ImportError) -> bool:
    """Whether there is nothing to run: an import that fails in the program is the program's."""
    last = None
    for last, _ in traceback.walk_tb(error.__traceback__):  # noqa: B007 - the last is wanted
        pass
    return last is not None and last.f_globals.get("__name__") == "runpy"


def _features(options: argparse.Namespace) -> str | None:
    features: str | None = options.features
    if options.report is None:
        return features
    os.environ["TORCHDEVICE_REPORT"] = str(options.report.resolve())  # for processes that it spawns, too
    usual = os.environ.get("TORCHDEVICE_FEATURES", "") if features is None else features
    return f"{usual},+monitor"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchdevice",
        usage="torchdevice [--to DEVICE] [--devices N] [--strict] [--report FOLDER] (SCRIPT | -m MODULE) …\n"
        "       torchdevice catalog …\n       torchdevice report FOLDER",
        description='Run a program that says "cuda" on the device there is.',
        epilog="example: torchdevice --to cpu train.py --epochs 1",
    )
    parser.add_argument("--to", metavar="DEVICE", help="cuda, mps or cpu; otherwise the best there is")
    parser.add_argument("--devices", type=int, metavar="N", help="how many devices torch.cuda shows (1)")
    parser.add_argument(
        "--strict", action="store_true", help="have tensors say cuda:0, and mixed devices be PyTorch's errors"
    )
    parser.add_argument("--features", metavar="±NAME,…", help=f"switch off or on: {', '.join(flags.NAMES)}")
    parser.add_argument(
        "--report", type=Path, metavar="FOLDER", help="count calls, for `torchdevice report FOLDER`"
    )
    parser.add_argument(
        "--table", action="store_true", help="show what becomes of which function, as Markdown"
    )
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,  # what follows is the module's
        metavar="MODULE",
        help="run a module, as `python -m` does",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the script and its arguments")
    return parser


def _table() -> str:
    entries = list(matrix.catalogue())
    counts = Counter(entry.status.value for entry in entries)
    summary = ", ".join(f"{counts[status.value]} {status.value}" for status in matrix.Status)
    rows = [f"| `{entry.path}` | {entry.status.value} | {entry.note} |" for entry in entries]
    head = ["| function | status | notes |", "| --- | --- | --- |"]
    return "\n".join(
        [f"{len(entries)} functions and classes of torch {torch.__version__}: {summary}.", "", *head, *rows]
    )


if __name__ == "__main__":
    main()
