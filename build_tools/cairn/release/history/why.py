"""Why an installer gets one version of a project from an index, and not another."""

from __future__ import annotations

import platform as this_machine
from collections.abc import Iterator
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from cairn.errors import StoreError
from cairn.output.wording import short_id
from cairn.release.index import keys
from cairn.release.index.generation import FileEntry, version_of
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index, existing, missing
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import ban_of, withdrawn_from
from cairn.store.protocol import Store
from cairn.wheels.metadata.wheel_info import split_label


def explain(store: Store, index: str, requirement: str) -> tuple[dict[str, Any], ...]:
    """Return each file of a project that the store knows, newest version first, with why it is passed over.

    Args:
        store: the store.
        index: the index that an installer is given.
        requirement: `PROJECT`, or `PROJECT==VERSION`.

    Returns:
        For each: `version`, `file`, `index` (None where the index does not offer it), and `reasons`; without
        any, this Python on this machine takes it. `taken` is the one that is.

    Raises:
        StoreError: there is no such index, one cannot be read, or the store knows no such file.
    """
    name, _, version = (word.strip() for word in requirement.partition("=="))
    project = canonicalize_name(name)
    current = read_current(Index(store, index))
    if not current.exists:
        raise missing(store, index)
    offered = {file.filename: file for file in current.project(project).files}
    files = [_row(file, index, list(_passed_over(file))) for file in offered.values()]
    ledger, elsewhere = Ledger(store), dict[str, FileEntry]()
    for sibling in existing(store):
        for file in read_current(Index(store, sibling)).project(project).files if sibling != index else ():
            if file.filename not in offered and file.filename not in elsewhere:
                elsewhere[file.filename] = file
                files.append(_row(file, None, list(_left_out(ledger, file, index, sibling))))
    scopes = {keys.scope_of(index)}
    for filename in ledger.published(project, scopes) - offered.keys() - elsewhere.keys():
        reasons = [f"published once, and in no index by now: cairn release log --index {index}"]
        files.append({"version": version_of(filename), "file": filename, "index": None, "reasons": reasons})
    rows = [row for row in files if not version or Version(row["version"]) == Version(version)]
    if not rows:
        raise StoreError(
            f"no index of {store.url} has ever had {requirement}",
            tip="see what was staged: cairn release log",
        )
    rows.sort(key=lambda row: (Version(row["version"]), row["file"]), reverse=True)
    taken = next((row for row in rows if not row["reasons"]), None)
    return tuple(row | {"taken": row is taken} for row in rows)


def _row(file: FileEntry, index: str | None, reasons: list[str]) -> dict[str, Any]:
    return {"version": file.version, "file": file.filename, "index": index, "reasons": reasons}


def _passed_over(file: FileEntry) -> Iterator[str]:
    """Why pip or uv by this Python pass over a file that the index offers."""
    if file.yanked is not None:
        yield f"yanked: {file.yanked}"
    python = this_machine.python_version()
    if file.requires_python and not SpecifierSet(file.requires_python).contains(python, prereleases=True):
        yield f"Requires-Python {file.requires_python}, and this is {python}"
    if file.filename.endswith(".whl"):
        tags = parse_wheel_filename(split_label(file.filename)[0])[3]
        if tags.isdisjoint(sys_tags()):
            yield f"its platform is {', '.join(sorted(map(str, tags)))}, which this Python does not take"
    if Version(file.version).is_prerelease:
        yield "a pre-release: installers take it with --pre, or by its exact version"


def _left_out(ledger: Ledger, file: FileEntry, index: str, other_index: str) -> Iterator[str]:
    """Why a file is in another index of the store, and not in this one."""
    for set_id in file.sets:
        history = ledger.history(set_id)
        if ban := ban_of(history):
            yield f"set {short_id(set_id)} was yanked by {ban.who} on {ban.when[:10]}: {ban.why}"
        if event := withdrawn_from(history, index):
            when = event.when[:10]
            yield f"set {short_id(set_id)} was rolled back off {index} by {event.who} on {when}: {event.why}"
    marks = ", ".join(filter(None, (file.untested and f"untested: {file.untested}", file.failed)))
    since = f" since {file.upload_time[:10]}" if file.upload_time else ""
    yield f"never promoted: it is in {other_index}{since}{f' ({marks})' if marks else ''}"
