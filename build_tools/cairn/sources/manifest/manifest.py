"""Every input of a build, frozen: commits, trees after hipify, submodules, SDK, targets, toolchain.

Also read: the manifests that TheRock writes, which have commits only. Such a one is a JSON object with
`schema_version` 1 and an object for each project, by the folder of its checkout (`pytorch`, `pytorch_audio`,
`pytorch_vision`, `triton`, `apex`; `therock` is TheRock itself): `repo`, `commit`, and where they are known
`branch` and `version`. Early ones have no `schema_version`. Source:
build_tools/github_actions/generate_pytorch_source_manifest.py and
external-builds/pytorch/checkout_from_manifest.py there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.errors import CairnError, SourceError, UsageError
from cairn.sources.checkout.describe import Checkout, describe
from cairn.sources.git.command import COMMIT_ID
from cairn.stack import HipifyKind, Origin, Project, Stack

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")  # neither `..` nor an option of a command line


class SubmoduleSource(datafile.Value):
    """A submodule.

    Attributes:
        path: from the root, with `/`.
        origin: where it came from, without credentials.
        commit: what upstream names; never a commit of hipify.
        tree: git's id of its files after hipify.
    """

    path: str
    origin: str
    commit: str
    tree: str


class ProjectSource(datafile.Value):
    """One project's sources.

    Attributes:
        name: in the stack.
        distribution: of its wheel.
        origin: where it came from, without credentials.
        hashtag: what was asked for.
        commit: what that was at its origin; never a commit of hipify.
        tree: git's id of its files after hipify, with local edits.
        hipify: who hipified them; `none` where they are not hipified, whatever the stack says.
        version: base version; None where only the built wheel tells it.
        submodules: by path.
        checkout_dir: default folder of its checkout, below that of the stack; None in early manifests.
        again: how many earlier manifests have its version (`cairn.wheels.metadata.rocm_version.again`).
    """

    name: str
    distribution: str
    origin: str
    hashtag: str
    commit: str
    tree: str
    hipify: HipifyKind = "none"
    version: str | None = None
    submodules: tuple[SubmoduleSource, ...] = ()
    checkout_dir: str | None = None
    again: int = 0

    def __post_init__(self) -> None:
        if self.again < 0:
            raise UsageError(f"{self.name} is build {self.again} of its version, which is below 0")

    @property
    def folder(self) -> str:
        """The default folder of the project's checkout."""
        return self.checkout_dir or self.name


class DownloadSource(datafile.Value):
    """A file that a build takes from elsewhere: whose, its name in the stack, address and sha256."""

    project: str
    name: str
    url: str
    sha256: str


class Manifest(datafile.Value, tag_field="schema", tag="cairn.manifest/1"):
    """The frozen inputs that a set was built from.

    Attributes:
        stack: its name.
        line: release line.
        projects: in the order of building.
        targets: GPU targets, or `cpu`.
        pythons: versions of the interpreters, `3.11`.
        platform: tag of the machine, `linux_x86_64`.
        sdk_version: of the ROCm SDK; None without one.
        rocm_index_url: the index of its packages, with `{family}` for the family and without credentials;
            None where the stack makes it, or nobody froze where it comes from.
        toolchain: versions of the tools that make the bytes, by name.
        build_env: variables given to the builds, by `NAME` or `project:NAME`, besides those of the stack.
        downloads: files that upstream's builds would fetch by themselves.
        off_line: the projects of which somebody chose a commit that is not the line's, by name.
        platforms: every platform of a night that is built on several; empty where `platform` is the only one.
        recipe: the digest of the stack's files (`cairn.stack.recipe`).
    """

    stack: str
    line: str
    projects: tuple[ProjectSource, ...]
    targets: tuple[str, ...]
    pythons: tuple[str, ...]
    platform: str
    sdk_version: str | None = None
    rocm_index_url: str | None = None
    toolchain: Mapping[str, str] = msgspec.field(default_factory=dict)
    build_env: Mapping[str, str] = msgspec.field(default_factory=dict)
    platforms: tuple[str, ...] = ()
    downloads: tuple[DownloadSource, ...] = ()
    off_line: tuple[str, ...] = ()
    recipe: str = ""

    @property
    def every_platform(self) -> tuple[str, ...]:
        """The platforms that sets of this manifest may be built for."""
        return tuple(dict.fromkeys((self.platform, *self.platforms)))

    def numbered(self, numbers: Mapping[str, int]) -> Manifest:
        """Return this manifest with other numbers (`ProjectSource.again`), by project; 0 for the rest."""
        projects = (structs.replace(p, again=numbers.get(p.name, 0)) for p in self.projects)
        return structs.replace(self, projects=tuple(projects))

    def digest(self) -> str:
        """The sha256, in hex, of the manifest in its canonical spelling."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def canonical(self) -> bytes:
        """The manifest in one spelling: keys sorted, no white space, UTF-8."""
        plain = datafile.to_plain(self)
        # Sealed sets name digests of manifests that were written before these fields existed.
        for field in ("build_env", "platforms", "downloads", "off_line", "rocm_index_url", "recipe"):
            if not plain[field]:
                del plain[field]
        for project in plain["projects"]:
            if project["checkout_dir"] is None:
                del project["checkout_dir"]
            if not project["again"]:
                del project["again"]
        # As RFC 8785 (JCS) has it for what occurs here: neither floats nor keys beyond the basic plane.
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def create(  # noqa: PLR0913 - each is one independent input of a build
    checkouts: Sequence[Checkout],
    *,
    stack: str,
    line: str,
    targets: Sequence[str],
    pythons: Sequence[str],
    platform: str,
    sdk_version: str | None = None,
    rocm_index_url: str | None = None,
    toolchain: Mapping[str, str] | None = None,
    build_env: Mapping[str, str] | None = None,
    platforms: Sequence[str] = (),
    downloads: Sequence[DownloadSource] = (),
    off_line: Sequence[str] = (),
    recipe: str = "",
) -> Manifest:
    """Freeze the inputs of a build; the arguments are the fields of `Manifest`."""
    return Manifest(
        stack=stack,
        line=line,
        projects=tuple(_source(checkout) for checkout in checkouts),
        targets=tuple(targets),
        pythons=tuple(pythons),
        platform=platform,
        sdk_version=sdk_version,
        rocm_index_url=rocm_index_url,
        toolchain=dict(toolchain or {}),
        build_env=dict(build_env or {}),
        platforms=tuple(platforms),
        downloads=tuple(downloads),
        off_line=tuple(off_line),
        recipe=recipe,
    )


def write(path: Path, manifest: Manifest) -> None:
    """Write a manifest atomically."""
    datafile.write(path, manifest)


def read(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        UsageError: it is missing, malformed or of another version.
    """
    if is_of_therock(path):
        raise UsageError(
            f"{path} is a manifest of TheRock's, which has commits only, neither trees nor submodules",
            tip="make its checkouts with `cairn manifest checkout`, and freeze them: `cairn manifest create`",
        )
    manifest = datafile.read(path, Manifest)
    for project in manifest.projects:
        # A name becomes a folder. A commit must be a full id: a branch would be a different commit tomorrow.
        if not _NAME.fullmatch(project.name):
            raise UsageError(f"{path} has a project with the name {project.name!r}")
        if not COMMIT_ID.fullmatch(project.commit):
            raise UsageError(f"{path}: {project.commit!r} of {project.name} is not a full commit id")
        # Backslashes too: the folder may be made on Windows.
        folder = PurePosixPath(project.folder)
        if folder.is_absolute() or {"..", "\\"} & {*folder.parts, *project.folder} or not folder.parts:
            raise UsageError(
                f"{path}: {project.name} would be checked out to {project.checkout_dir!r}, outside"
            )
    return manifest


def verify(manifest: Manifest, checkouts: Mapping[str, Path]) -> tuple[str, ...]:
    """Return the differences of the checkouts from the manifest; empty if there are none.

    Args:
        manifest: what must hold.
        checkouts: folders by project name; a project without one is a problem too.
    """
    problems: list[str] = []
    for project in manifest.projects:
        folder = checkouts.get(project.name)
        problems += (
            [f"{project.name}: no checkout given"] if folder is None else _differences(project, folder)
        )
    return tuple(problems)


def require(manifest: Manifest, name: str, folder: Path) -> None:
    """Refuse a tree that differs from what a manifest froze for its project.

    Raises:
        SourceError: it is not; or the manifest does not have the project.
    """
    source = next((project for project in manifest.projects if project.name == name), None)
    problems = [f"it has no {name}"] if source is None else _differences(source, folder)
    if problems:
        raise SourceError(
            f"{folder} is not what the manifest froze: {'; '.join(problems)}",
            tip="it was moved or edited since it was checked out: run again, in a work folder of its own",
        )


def _differences(source: ProjectSource, folder: Path) -> list[str]:
    try:
        checkout = _source(describe(project_of(source), folder))
    except CairnError as error:
        return [f"{source.name}: {error}"]
    pairs = [("commit", source.commit, checkout.commit), ("tree", source.tree, checkout.tree)]
    others = {module.path: module for module in checkout.submodules}  # what the manifest does not have stays
    for module in source.submodules:
        actual = others.pop(module.path, None)
        pairs.append((f"commit of {module.path}", module.commit, actual.commit if actual else "nothing"))
        pairs.append((f"tree of {module.path}", module.tree, actual.tree if actual else "nothing"))
    pairs += [(f"commit of {path}", "nothing", module.commit) for path, module in others.items()]
    return [f"{source.name}: {field} is {is_}, expected {must}" for field, must, is_ in pairs if must != is_]


def project_of(source: ProjectSource) -> Project:
    """Return the minimal project that checking out and inspecting need, without a stack."""
    return Project(
        name=source.name,
        distribution=source.distribution,
        checkout_dir=source.folder,
        origin=Origin(url=source.origin),
        hashtag=source.hashtag,
        hipify=source.hipify,
        version_file="",
    )


def _source(checkout: Checkout) -> ProjectSource:
    return ProjectSource(
        name=checkout.project.name,
        distribution=checkout.project.distribution,
        origin=checkout.origin,
        hashtag=checkout.hashtag,
        commit=checkout.commit,
        tree=checkout.tree,
        hipify=checkout.project.hipify if checkout.is_hipified else "none",
        version=checkout.version,
        submodules=tuple(
            SubmoduleSource(path=m.path, origin=m.origin, commit=m.commit, tree=m.tree)
            for m in checkout.submodules
        ),
        checkout_dir=checkout.project.checkout_dir,
    )


_VERSION = 1
_FIELDS = ("repo", "commit", "branch", "version")
_OWN = "therock"


class UpstreamSource(msgspec.Struct, frozen=True, kw_only=True):
    """One project of a TheRock manifest.

    Source: ROCm/TheRock 89553ce, build_tools/github_actions/manifest_utils.py.

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


def is_of_therock(path: Path) -> bool:
    """Whether a file is meant as a TheRock manifest; false for Cairn's own and for unreadable files."""
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


def read_therock(path: Path) -> tuple[UpstreamSource, ...]:
    """Read the projects of a TheRock manifest, without the entry of TheRock itself.

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


def therock_projects(
    stack: Stack, upstreams: Collection[UpstreamSource], names: Collection[str] = ()
) -> tuple[tuple[Project, UpstreamSource], ...]:
    """Return the stack's projects that a TheRock manifest has, in checkout order: torch first.

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
