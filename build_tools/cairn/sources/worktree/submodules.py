"""Submodules: which ones a commit has, and placing them through the same mirrors."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from cairn.concurrency import side_by_side
from cairn.errors import NetworkError, SourceError
from cairn.output import Progress
from cairn.sources.git import command, repository
from cairn.sources.git import url as git_url
from cairn.sources.git.repository import GITLINK, UPSTREAM_TAG, Repository
from cairn.sources.mirror import mirror
from cairn.sources.worktree import unfinished


@dataclass(frozen=True, kw_only=True)
class Module:
    """A submodule in its place.

    Attributes:
        path: where it is in the root's working tree, with `/`.
        name: what `.gitmodules` calls it.
        origin: where it comes from, absolute; may be empty where the caller gave no origin of the root.
        commit: what its parent names.
        parent: the repository that names it.
        repository: its own.
        head: what is checked out; None where that was not looked for.
    """

    path: str
    name: str
    origin: str
    commit: str
    parent: Repository
    repository: Repository
    head: str | None = None


@dataclass(frozen=True, kw_only=True)
class Coming:
    """A submodule that is to be at its commit, which is in a mirror."""

    module: Module
    source: Path


Plan = tuple[tuple[Coming, ...], ...]
"""Submodules by their depth, the root's own first."""


@dataclass(frozen=True, kw_only=True)
class Fetching:
    """How submodules are fetched: as `checkout.CheckoutRequest` says."""

    depth: int | None
    jobs: int
    retry: command.RetryPolicy
    say: Progress


def of_commit(
    parent: Repository, commit: str, *, origin: str, prefix: str = "", objects: Repository | None = None
) -> tuple[Module, ...]:
    """The submodules that a commit names in `.gitmodules` and in its tree.

    Args:
        parent: the repository of the commit.
        commit: any name of it.
        origin: where the parent comes from; relative URLs start there.
        prefix: the parent's path in the root, with a slash at the end; empty for the root itself.
        objects: where the commit is, if the parent does not have it yet.

    Raises:
        SourceError: `.gitmodules` is malformed or names a path outside.
    """
    source = objects or parent
    if not _names_any(source, commit):
        return ()
    declared = _declared(source, commit)
    commits = _gitlinks(source, commit, list(declared))
    return tuple(
        _module(parent, declared[path], commit=commits[path], origin=origin, prefix=prefix)
        for path in declared
        # A module may be declared and not be in the tree, or be meant to stay out (gitmodules(5), update).
        if path in commits and declared[path].update != "none"
    )


def present(root: Repository, *, origin: str = "") -> Iterator[Module]:
    """All submodules that are checked out below a root, parents first, with what is checked out of each."""
    level = [(root, origin, "")]
    while level:
        modules = [
            module
            for parent, parent_origin, prefix in level
            for module in of_commit(parent, "HEAD", origin=parent_origin, prefix=prefix)
        ]
        heads = side_by_side(lambda module: module.repository.head(), modules)
        found = [replace(module, head=head) for module, head in zip(modules, heads, strict=True) if head]
        yield from found
        level = [(module.repository, module.origin, f"{module.path}/") for module in found]


def fetch_all(root: Repository, commit: str, source: Path, *, origin: str, how: Fetching) -> Plan:
    """Bring every submodule that a commit of the root needs, and theirs in turn, into their mirrors.

    Nothing is done to the checkout, so that a failure leaves it as it was. Siblings are fetched side by side.

    Args:
        root: the checkout's repository, which may not be there yet.
        commit: its id.
        source: the mirror that has the commit.
        origin: where the root comes from.
        how: they are fetched.
    """
    levels: list[tuple[Coming, ...]] = []
    modules = of_commit(root, commit, origin=origin, objects=_bare(source))
    while modules:
        fetched = side_by_side(functools.partial(_fetch, how=how), modules, jobs=how.jobs)
        levels.append(fetched)
        modules = tuple(inner for coming in fetched for inner in _within(coming))
    return tuple(levels)


def place_all(root: Repository, plan: Plan, *, before: Mapping[str, str], how: Fetching) -> None:
    """Bring every submodule to its commit; edits in them are dropped: the caller has looked.

    Args:
        root: the checkout's repository, which is at its commit.
        plan: what `fetch_all` gave.
        before: trees of what is there now, by path, where it is not what HEAD has.
        how: they are placed.
    """
    for level in plan:
        for coming in level:
            _refuse_detour(coming.module)
        alone = len(level) < how.jobs
        place = functools.partial(_place, before=before, how=how, alone=alone)
        side_by_side(place, level, jobs=how.jobs)
    parents = [root, *(coming.module.repository for level in plan for coming in level)]
    for parent in parents:
        if own := [c.module for level in plan for c in level if c.module.parent == parent]:
            mark_ignored(parent, own)


def remove(modules: Iterable[Module], *, before: Mapping[str, str]) -> None:
    """Take the working trees of submodules away (their git directories stay, for a later return).

    Args:
        modules: with their parents first.
        before: trees of what is there now, by path, where it is not what HEAD has.
    """
    for module in reversed(list(modules)):
        own = module.repository
        if own.work_tree.is_dir():
            with unfinished.placing(own, before=before.get(module.path) or own.head(), after=None):
                # What ties it to its repository last: a run that is killed here must know its files again.
                for entry in own.work_tree.iterdir():
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                    elif entry.name != ".git":
                        entry.unlink()
            (own.work_tree / ".git").unlink(missing_ok=True)
            # So that plain git, named the git directory, shows what is kept there.
            repository.untie(own)


def mark_ignored(parent: Repository, modules: Iterable[Module]) -> None:
    """Keep submodules out of their parent's status and commits, and let plain `git submodule` know them.

    Hipify edits them, and a commit of the root must not name commits that exist on this machine only.
    """
    settings: list[tuple[str, str]] = []
    for module in modules:
        key = f"submodule.{module.name}"
        url = git_url.without_credentials(module.origin)
        settings += [(f"{key}.url", url), (f"{key}.active", "true"), (f"{key}.ignore", "all")]
    repository.configure(parent, settings)
    skip_gitlinks(parent)


def skip_gitlinks(parent: Repository) -> None:
    """Have git take no notice of which commits the submodules are at: nothing stages them by the way."""
    if paths := parent.gitlinks():
        parent.run("update-index", "-z", "--skip-worktree", "--stdin", stdin=_lines(paths))


def _bare(mirror_path: Path) -> Repository:
    return Repository(work_tree=mirror_path, git_dir=mirror_path)


def _within(coming: Coming) -> tuple[Module, ...]:
    module = coming.module
    return of_commit(
        module.repository,
        module.commit,
        origin=module.origin,
        prefix=f"{module.path}/",
        objects=_bare(coming.source),
    )


def _fetch(module: Module, *, how: Fetching) -> Coming:
    source = mirror.of(module.origin, depth=how.depth, retry=how.retry)
    try:
        source.find(module.commit, say=how.say)
    except (SourceError, NetworkError) as error:
        raise type(error)(f"submodule {module.path}: {error}", tip=error.tip) from error
    return Coming(module=module, source=source.path)


def _place(coming: Coming, *, before: Mapping[str, str], how: Fetching, alone: bool) -> None:
    module, own = coming.module, coming.module.repository
    tags = {f"refs/tags/{UPSTREAM_TAG}": module.commit, f"refs/tags/{repository.HIPIFY_TAG}": None}
    untouched = own.head() == module.commit and module.path not in before and not own.changes()
    if untouched and unfinished.read(own) is None:
        repository.move_refs(own, tags)
    else:
        how.say(f"submodule {module.path}")
        repository.create(own)
        repository.name_origin(own, git_url.without_credentials(module.origin))
        repository.borrow_objects(own, coming.source)
        with unfinished.placing(own, before=before.get(module.path) or own.head(), after=module.commit):
            repository.place(own, module.commit, alone=alone)
            repository.move_refs(own, tags)


def _names_any(parent: Repository, commit: str) -> bool:
    # Most submodules have none of their own, and asking git takes longer than looking.
    if commit == "HEAD" and not (parent.work_tree / ".gitmodules").exists():
        return False
    return parent.succeeds("cat-file", "-e", f"{commit}:.gitmodules")


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """What `.gitmodules` says of one path."""

    name: str
    path: str
    url: str | None
    update: str | None


def _declared(parent: Repository, commit: str) -> dict[str, _Entry]:
    """The entries of `.gitmodules` by path, each path once.

    Where several sections name one path, the last line that sets it wins, wherever its section begins; a
    section that is given another path leaves its first one to nobody (git, submodule-config.c: parse_config,
    cache_put_path, cache_remove_path).
    """
    try:
        listed = parent.run("config", "--blob", f"{commit}:.gitmodules", "--list", "-z")
    except SourceError as error:
        raise SourceError(f".gitmodules of {parent.work_tree} is malformed: {error}") from error
    sections: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    for entry in filter(None, listed.split("\0")):
        key, _, value = entry.partition("\n")
        section, _, rest = key.partition(".")
        name, _, field = rest.rpartition(".")
        if section != "submodule" or not name:
            continue
        fields = sections.setdefault(name, {})
        if field == "path":
            value = value.rstrip("/")
            if "path" in fields:
                owners[fields["path"]] = ""
            owners[value] = name
        fields[field] = value
    return {
        path: _Entry(name=name, path=path, url=fields.get("url"), update=fields.get("update"))
        for path, name in owners.items()
        for fields in (sections.get(name, {}),)
    }


def _gitlinks(parent: Repository, commit: str, paths: list[str]) -> Mapping[str, str]:
    if not paths:
        return {}
    listed = parent.run("ls-tree", "-z", commit, "--", *paths)
    entries = (entry.partition("\t") for entry in listed.split("\0") if entry.startswith(GITLINK))
    return {path: head.split()[2] for head, _, path in entries}


def _module(parent: Repository, entry: _Entry, *, commit: str, origin: str, prefix: str) -> Module:
    name, path = entry.name, entry.path
    # A name becomes a folder of the git directory: one that climbs out is an attack (CVE-2018-11235).
    if any(".." in PurePosixPath(text).parts or text.startswith("/") for text in (name, path)):
        raise SourceError(f".gitmodules names a submodule outside the repository: {name} at {path}")
    if entry.url is None:
        raise SourceError(
            f".gitmodules of {parent.work_tree} has no url for the submodule {path}",
            tip="choose another --repo-hashtag, or pass --no-submodules",
        )
    return Module(
        path=prefix + path,
        name=name,
        origin=_resolved(origin, entry.url, path=prefix + path),
        commit=commit,
        parent=parent,
        repository=Repository(work_tree=parent.work_tree / path, git_dir=parent.git_dir / "modules" / name),
    )


def _resolved(base: str, url: str, *, path: str) -> str:
    if not base and git_url.is_relative(url):
        return ""  # the caller wants places, not origins
    try:
        return git_url.absolute(git_url.resolve(base, url))
    except SourceError as error:
        raise SourceError(f"submodule {path}: {error}", tip=error.tip) from error


def _refuse_detour(module: Module) -> None:
    """A link on the way to a submodule would let its files be written elsewhere."""
    here = os.path.realpath(module.repository.work_tree)
    within = os.path.realpath(module.parent.work_tree)
    if os.path.commonpath([here, within]) != within:
        raise SourceError(f"submodule {module.path} leads out of the checkout through a link")


def _lines(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)
