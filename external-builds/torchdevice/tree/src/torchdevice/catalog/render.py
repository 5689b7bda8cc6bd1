"""The catalogue as Markdown, JSON or HTML, and what changed between two."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from torchdevice.catalog.measure import Measured, Outcome, Row
from torchdevice.matrix import Status

SCHEMA = "torchdevice.catalog/1"
_UNMEASURED = "not measured here"
_COLUMNS = (
    *("Function", "Category", "CPU", "As cuda, translated", "CUDA", "MPS", "MLX"),
    *("Status", "Arguments", "Return type", "Notes"),
)


def records(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """A dictionary for each row: what JSON has, and what two catalogues are compared by."""
    return [
        {
            "function": row.function.path,
            "category": row.function.category,
            "planned": row.function.planned,
            "cpu": _said(row.cpu),
            "translated": _said(row.cuda),
            "cuda": _UNMEASURED,
            "mps": _UNMEASURED,
            "mlx": _UNMEASURED,
            "status": row.function.status.value,
            "arguments": ", ".join(row.function.arguments),
            "returns": row.function.returns or _returned(row),
            "notes": row.function.note,
        }
        for row in rows
    ]


def _said(measured: Measured) -> str:
    if measured.outcome in (Outcome.RETURNED, Outcome.NOT_CALLED, Outcome.VALUE):
        return str(measured.outcome.value)
    return f"{measured.outcome.value}: {measured.what}"


def _returned(row: Row) -> str:
    found = next((m for m in (row.cuda, row.cpu) if m.outcome is Outcome.RETURNED), None)
    return found.what if found else ""


def summary(rows: list[Row]) -> list[str]:
    """The counts, with what they are counted of; what is refused, and what is not as on the CPU, by name."""
    lines = [f"torch {torch.__version__}, {len(rows)} functions and classes."]
    for title, part in (("the plan", [r for r in rows if r.function.planned]), ("all", rows)):
        absent = [row for row in part if row.function.status is Status.ABSENT]
        here = [row for row in part if row.function.status is not Status.ABSENT]
        refused = [row for row in here if row.cuda.outcome is Outcome.REFUSED]
        counts = Counter(row.cuda.outcome.value for row in here)
        told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        share = (len(here) - len(refused)) / len(here) if here else 1.0
        lines.append(
            f"Of {title}: {len(part)} rows, {len(absent)} absent or of other devices; of {len(here)} called, "
            f"{told}: {share:.1%} not refused."
        )
    worse = [row.function.path for row in rows if _worse(row)]
    lines.append(f"Not as on the CPU: {', '.join(worse) or 'none'}.")
    return lines


def _worse(row: Row) -> bool:
    """Whether a call fails as "cuda" that is right on the CPU."""
    returned = row.cpu.outcome is Outcome.RETURNED
    return returned and row.cuda.outcome in (Outcome.RAISED, Outcome.DIED)


def markdown(rows: list[Row]) -> str:
    """A table under its counts."""
    lines = [*summary(rows), "", _line(_COLUMNS), _line("---" for _ in _COLUMNS)]
    lines += [
        _line(cell.replace("|", "\\|").replace("\n", " ") for cell in _cells(record))
        for record in records(rows)
    ]
    return "\n".join(lines)


def page(rows: list[Row]) -> str:
    """One page of HTML that needs nothing else; typing filters the rows."""
    head = "".join(f"<th>{name}" for name in _COLUMNS)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in _cells(record)) for record in records(rows)
    )
    counts = "".join(f"<p>{html.escape(line)}" for line in summary(rows))
    return f"""<!doctype html><meta charset="utf-8"><title>TorchDevice catalogue</title>
<style>body {{ font: 14px sans-serif }} td, th {{ border: 1px solid #ccc; padding: 2px 6px }}
table {{ border-collapse: collapse }}</style>
<h1>What becomes of torch's functions</h1>{counts}
<p><input placeholder="filter" oninput="for (const row of document.querySelectorAll('tbody tr'))
row.hidden = !row.textContent.includes(this.value)">
<table><thead><tr>{head}</thead><tbody>
{body}
</tbody></table>
"""


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    names = ("category", "cpu", "translated", "cuda", "mps", "mlx", "status", "arguments", "returns", "notes")
    return (f"`{record['function']}`", *(str(record[name]) for name in names))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(rows: list[Row]) -> str:
    """What `difference` reads again."""
    data = {"schema": SCHEMA, "torch": torch.__version__, "functions": records(rows)}
    return json.dumps(data, indent=1)


def read(path: Path) -> dict[str, Any]:
    """A catalogue that `as_json` wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no catalogue, or of another version.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        names = ("function", "status", "cpu", "translated", "arguments", "returns")
        whole = data["schema"] == SCHEMA and "torch" in data
        whole = whole and all(name in row for row in data["functions"] for name in names)
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{path}: this is no {SCHEMA}: {error}") from error
    if not whole:
        raise ValueError(f"{path}: this is no {SCHEMA}")
    found: dict[str, Any] = data
    return found


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is new, gone or otherwise between two catalogues."""
    old, new = ({f["function"]: f for f in data["functions"]} for data in (before, after))
    lines = [f"torch {before['torch']} -> {after['torch']}"]
    lines += [f"+ {path} ({new[path]['status']})" for path in sorted(new.keys() - old.keys())]
    lines += [f"- {path}" for path in sorted(old.keys() - new.keys())]
    for path in sorted(old.keys() & new.keys()):
        for name in ("status", "cpu", "translated", "arguments", "returns"):
            if old[path][name] != new[path][name]:
                lines.append(f"! {path}: {name}: {old[path][name]} -> {new[path][name]}")
    return lines
