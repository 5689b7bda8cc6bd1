"""Index pages made from state: HTML (PEP 503) and JSON (PEP 691) that say the same.

Also carried: yanked files (PEP 592), metadata sidecars (PEP 658 with the names of PEP 714), versions,
sizes and upload times (PEP 700), the status of a project (PEP 792). What HTML has no agreed attribute
for is in `data-` attributes of our own and in readable text. The same state gives the same bytes.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from cairn.release.index import project_html
from cairn.release.index.generation import (
    PUBLISHED,
    FileEntry,
    ProjectState,
    VariantsFile,
    project_of,
    variants_of,
    version_of,
)
from cairn.release.index.project_html import API_VERSION, file_url, provenance_url
from cairn.wheels.wheelset import WheelSet

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page in both formats."""

    html: bytes
    json: bytes


def project_page(project: ProjectState, *, prefix: str) -> Page:
    """The page of a project in the index that lies at `prefix`."""
    plain = _json(_project_json(project, prefix))
    return Page(html=project_html.project_html(project, prefix=prefix), json=plain)


def set_projects(wheel_set: WheelSet) -> tuple[ProjectState, ...]:
    """What the index of exactly a set holds: all that its `set.json` names, and nothing else."""
    by_project: dict[str, list[FileEntry]] = collections.defaultdict(list)
    for file in wheel_set.files:
        name = project_of(file.file_name)
        entry = FileEntry(
            filename=file.file_name,
            sha256=file.sha256,
            size=file.size,
            version=version_of(file.file_name),
            build=PUBLISHED,
            requires_python=file.requires_python,
            metadata_sha256=file.metadata_sha256,
        )
        by_project[name].append(entry)
    return tuple(
        ProjectState(name=name, files=()).with_files(tuple(entries))
        for name, entries in sorted(by_project.items())
    )


def root_page(names: Iterable[str], *, serial: int = 0) -> Page:
    """The page that lists every project; `serial` is of the generation that last changed which there are."""
    ordered = sorted(names)
    plain = {"meta": _api(serial), "projects": [{"name": name} for name in ordered]}
    return Page(html=project_html.root_html(ordered, serial=serial), json=_json(plain))


def _api(serial: int) -> dict[str, Any]:
    return {"_last-serial": serial, "api-version": API_VERSION} if serial else {"api-version": API_VERSION}


def _project_json(project: ProjectState, prefix: str) -> dict[str, Any]:
    status: dict[str, str] = {"status": project.status}
    if project.status_reason:
        status["reason"] = project.status_reason
    return {
        "meta": _api(project.serial),
        "name": project.name,
        "project-status": status,
        "versions": list(project.versions),
        "files": [
            *(_file_json(file, prefix) for file in project.files),
            *(_variants_json(file, prefix) for file in variants_of(project.files)),
        ],
    }


def _variants_json(file: VariantsFile, prefix: str) -> dict[str, Any]:
    return {
        "filename": file.filename,
        "url": file_url(file, prefix),
        "hashes": {"sha256": file.sha256},
        "size": file.size,
    }


def _file_json(file: FileEntry, prefix: str) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "filename": file.filename,
        "url": file_url(file, prefix),
        "hashes": {"sha256": file.sha256},
        "size": file.size,
        "core-metadata": {"sha256": file.metadata_sha256} if file.metadata_sha256 else False,
        # PEP 691: the reason, or true where none was given.
        "yanked": file.yanked or file.yanked is not None,
    }
    if file.upload_time is not None:
        plain["upload-time"] = file.upload_time
    if file.provenance is not None:
        name = "provenance" if file.provenance_kind == "pep740" else "_key-provenance"
        plain[name] = provenance_url(file, prefix)
    if file.requires_python is not None:
        plain["requires-python"] = file.requires_python
    if file.untested is not None:
        # PEP 691 leaves names that begin with an underscore to the index.
        plain["_untested"] = file.untested
    if file.failed is not None:
        plain["_failed"] = file.failed
    return plain


def _json(plain: dict[str, Any]) -> bytes:
    # Short, since the pages of large projects have thousands of files; the same state gives the same bytes.
    return msgspec.json.encode(plain) + b"\n"
