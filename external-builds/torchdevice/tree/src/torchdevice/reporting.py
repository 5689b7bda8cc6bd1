"""`torchdevice report`: what programs counted (see `monitoring`), as text, JSON or a plot."""

from __future__ import annotations

import argparse
import html
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchdevice.monitoring import SCHEMA


def main(arguments: Sequence[str]) -> int:
    """Print what programs counted that ran with --report."""
    parser = argparse.ArgumentParser(
        prog="torchdevice report",
        description="Show which functions a program called that were translated, how often, and where first.",
        epilog="example: torchdevice --report calls train.py && torchdevice report calls",
    )
    parser.add_argument("folder", type=Path, help="what --report named")
    parser.add_argument("--format", choices=("text", "json", "svg"), default="text")
    options = parser.parse_args(arguments)
    try:
        data = read(options.folder)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print({"text": as_text, "json": as_json, "svg": as_svg}[options.format](data))
    return 0


def read(folder: Path) -> dict[str, Any]:
    """The reports of all processes in a folder, added up.

    Raises:
        ValueError: there is none, or one is of another kind.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(f"{folder} has no reports; run a program with --report {folder} first")
    calls: Counter[str] = Counter()
    fallbacks: Counter[str] = Counter()
    places: dict[str, str] = {}
    for file in files:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is no {SCHEMA}: {error}") from error
        if not _is_report(data):
            raise ValueError(f"{file} is no {SCHEMA}")
        calls.update(data["calls"])
        fallbacks.update(data["fallbacks"])
        places = {**data["first_called"], **places}
    return {
        "schema": SCHEMA,
        "processes": len(files),
        "calls": dict(calls.most_common()),
        "first_called": places,
        "fallbacks": dict(fallbacks.most_common()),
    }


def _is_report(data: Any) -> bool:
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        return False
    kinds = {"calls": int, "fallbacks": int, "first_called": str}
    return all(
        isinstance(data.get(name), dict) and all(isinstance(value, kind) for value in data[name].values())
        for name, kind in kinds.items()
    )


def as_text(data: dict[str, Any]) -> str:
    """Counts, most called first, and where each was called first."""
    lines = [f"{sum(data['calls'].values())} calls of {len(data['calls'])} functions that were translated"]
    lines += [f"{n:>9}  {path}  {data['first_called'].get(path, '')}" for path, n in data["calls"].items()]
    lines += [f"{n:>9}  fell back: {what}" for what, n in data["fallbacks"].items()]
    return "\n".join(lines)


def as_json(data: dict[str, Any]) -> str:
    """What was read, added up."""
    return json.dumps(data, indent=1)


def as_svg(data: dict[str, Any], *, bars: int = 30) -> str:
    """A bar for each of the functions that are called most."""
    rows = list(data["calls"].items())[:bars]
    most = max((count for _, count in rows), default=1)
    size = f'width="800" height="{24 * len(rows) + 8}" font-family="sans-serif" font-size="12"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    for index, (path, count) in enumerate(rows):
        y = 24 * index + 4
        lines.append(f'<text x="320" y="{y + 14}" text-anchor="end">{html.escape(path)}</text>')
        lines.append(f'<rect x="328" y="{y}" width="{400 * count / most:.1f}" height="18" fill="#4878a8"/>')
        lines.append(f'<text x="{334 + 400 * count / most:.1f}" y="{y + 14}">{count}</text>')
    return "\n".join([*lines, "</svg>"])
