"""The source manifests of ROCm/TheRock: which commit of which repository a night was built from.

A JSON object with `schema_version` 1 and an object for each project, by the folder of its checkout
(`pytorch`, `pytorch_audio`, `pytorch_vision`, `triton`, `apex`; `therock` is TheRock itself):
`repo`, `commit`, and where they are known `branch` and `version`. Early manifests have no `schema_version`.
Source: build_tools/github_actions/generate_pytorch_source_manifest.py and
external-builds/pytorch/checkout_from_manifest.py there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cairn import datafile
from cairn.errors import UsageError
from cairn.sources.git.command import COMMIT_ID
from cairn.stack import Project, Stack

_VERSION = 1
_FIELDS = ("repo", "commit", "branch", "version")
_OWN = "therock"


@dataclass(frozen=True, kw_only=True)
class UpstreamSource:
    """One project of a manifest.

    Attributes:
        name: what the manifest calls it: the folder of its checkout.
        repo: the repository's URL.
        commit: its full id.
        branch: the branch or tag that it was taken from; None where only the commit is known.
        version: of the wheel that was built from it; None where the manifest does not say.
    """

    name: str
    repo: str
    commit: str
    branch: str | None = None
    version: str | None = None


def recognise(path: Path) -> bool:
    """Whether a file is such a manifest, well-formed or not, and neither one of Cairn's nor unreadable."""
    try:
        data = datafile.read_json(path)
    except UsageError:
        return False
    if not isinstance(data, dict) or "schema" in data:
        return False
    # Cairn's manifests have `schema`, and TheRock's early ones had no version at all.
    return "schema_version" in data or any(
        isinstance(entry, dict) and {"repo", "commit"} & entry.keys() for entry in data.values()
    )


def read(path: Path) -> tuple[UpstreamSource, ...]:
    """The projects of a manifest, without the entry of TheRock itself.

    Raises:
        UsageError: it cannot be read, is of a different version, or entries are malformed (all are named).
    """
    data = datafile.read_json(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a manifest of TheRock's: it must be a JSON object")
    version = data.get("schema_version", _VERSION)
    if type(version) is not int or version != _VERSION:
        raise UsageError(f"{path} has schema_version {version!r}, expected {_VERSION}")
    entries = {name: entry for name, entry in data.items() if name not in ("schema_version", _OWN)}
    if problems := [problem for name, entry in entries.items() for problem in _problems(name, entry)]:
        raise UsageError(f"{path}: {'; '.join(problems)}")
    return tuple(
        UpstreamSource(
            name=name,
            repo=entry["repo"],
            commit=entry["commit"],
            branch=entry.get("branch") or None,
            version=entry.get("version") or None,
        )
        for name, entry in entries.items()
    )


def projects(
    stack: Stack, upstreams: Collection[UpstreamSource], names: Collection[str] = ()
) -> tuple[tuple[Project, UpstreamSource], ...]:
    """The stack's projects that a manifest has, in the order of checking out: torch first.

    Args:
        stack: the manifest names its projects by their checkout folders.
        upstreams: the manifest.
        names: the manifest's names of the projects to take; all when empty.

    Raises:
        UsageError: the manifest has none of the stack's projects, or not all that were named.
    """
    by_folder = {project.checkout_dir: project for project in stack.projects}
    sources = {source.name: source for source in upstreams if source.name in by_folder}
    if missing := sorted(set(names) - sources.keys()):
        raise UsageError(
            f"the manifest does not have {', '.join(missing)}",
            tip=f"it has {', '.join(sources) or 'no project of the stack'}",
        )
    if not sources:
        raise UsageError(
            f"the manifest has no project of the stack {stack.name}",
            tip=f"a project goes by the folder of its checkout: {', '.join(by_folder)}",
        )
    selected = [(by_folder[name], source) for name, source in sources.items() if not names or name in names]
    # The project without a pin is torch, which has the pins of the others.
    return tuple(sorted(selected, key=lambda pair: pair[0].pin is not None))


def _problems(name: str, entry: object) -> list[str]:
    if not isinstance(entry, dict):
        return [f"{name} is not an object"]
    problems = [f"{name}: {f} is not text" for f in _FIELDS if not isinstance(entry.get(f, ""), str)]
    problems += [f"{name} has no {f}" for f in ("repo", "commit") if not entry.get(f)]
    commit, repo = entry.get("commit"), entry.get("repo")
    if isinstance(commit, str) and commit and not COMMIT_ID.fullmatch(commit):
        problems.append(f"{name}: {commit[:60]!r} is not a full commit id")
    if isinstance(repo, str) and repo.startswith("-"):
        problems.append(f"{name}: {repo[:60]!r} is not a repository URL")
    return problems
