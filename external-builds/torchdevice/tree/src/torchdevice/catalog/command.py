"""`torchdevice catalog`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from torchdevice.catalog import calls, functions, measure, render


def main(arguments: Sequence[str]) -> int:
    """Measure, write, compare; 0 where at least 95 of 100 rows are not refused."""
    options = _parser().parse_args(arguments)
    before = None
    if options.diff:  # read first: measuring takes minutes
        try:
            before = render.read(options.diff)
        except (OSError, ValueError) as error:
            _parser().error(str(error))
    wanted = [f for f in functions.functions() if f.path.startswith(options.only)]
    calls.prepare()
    rows = list(measure.measure(wanted))
    writers = {"markdown": render.markdown, "json": render.as_json, "html": render.page}
    text = writers[options.format](rows)
    if options.output:
        options.output.write_text(f"{text}\n", encoding="utf-8")
        print("\n".join(render.summary(rows)))
    elif before is None:
        print(text)
    if before is not None:
        print("\n".join(render.difference(before, json.loads(render.as_json(rows)))))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchdevice catalog",
        description="Show what becomes of each function of the torch that is installed, by calling it.",
        epilog="example: torchdevice catalog --format json --output catalog.json   (some minutes)",
    )
    parser.add_argument("--format", choices=("markdown", "json", "html"), default="markdown")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there, and print the counts")
    parser.add_argument(
        "--only", default="", metavar="PREFIX", help="those whose names start so: torch.cuda."
    )
    parser.add_argument(
        "--diff", type=Path, metavar="FILE", help="show what changed since a catalogue in JSON"
    )
    return parser
