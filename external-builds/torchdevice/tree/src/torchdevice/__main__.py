"""`python -m torchdevice [--to DEVICE] [--devices N] [--strict] SCRIPT …`, or `-m MODULE …`, or `--table`."""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import sys
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
    if options.module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        return
    script = Path(program[0])
    if not script.exists():
        _parser().error(f"there is no {script}")
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


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
