"""Where a wheel's sources came from, in the words of its bill of materials."""

from __future__ import annotations

from pathlib import Path

from cairn.sources import inspection, urls
from cairn.sources.repository import UPSTREAM_TAG, root_at
from cairn.stack import Project
from cairn.wheels.sbom import Source


def sources_of(project: Project, checkout: Path) -> tuple[Source, ...]:
    """The project's repository, then its submodules.

    Raises:
        SourceError: the folder is no finished checkout.
    """
    found = inspection.inspect(project, checkout)
    modules = (Source(name=m.path, commit=m.commit, origin=_public(m.origin)) for m in found.submodules)
    return (Source(name=project.name, commit=found.commit, origin=_public(found.origin)), *modules)


def upstream_commit(checkout: Path) -> str:
    """The upstream commit that a checkout stands on; empty where it has none yet."""
    root = root_at(checkout)
    return root.tag(UPSTREAM_TAG) or root.head() or ""


def _public(origin: str) -> str | None:
    """An origin that means something elsewhere too; a path would only give this machine away."""
    return None if urls.is_local(origin) or origin.lower().startswith("file:") else origin
