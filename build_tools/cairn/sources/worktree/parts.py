"""Walk the root of a checkout and its submodules, as they are checked out or as a commit names them.

`walk` gives the parts that are checked out, `walk_commit` those at what a commit names, `of_commit` reads
`.gitmodules`.

A `Part` is the root or a submodule; a `CommittedPart` has the commit that its parent names; a `Module` is one
of these and not the root. `overwritten.MovingPart` adds where a checkout moves it, and `submodules.Coming`
the mirror that a new one comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

import msgspec
from msgspec import structs

from cairn.errors import SourceError
from cairn.sources.git import url as git_url
from cairn.sources.git.command import COMMIT_ID
from cairn.sources.git.repository import GITLINK, Repository


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The root or a submodule of a checkout.

    Attributes:
        path: from the root, with `/`; empty for the root itself.
        repository: its own.
    """

    path: str
    repository: Repository

    def path_of(self, name: str) -> str:
        """Return the path from the root of a file of this part."""
        return f"{self.path}/{name}" if self.path else name


class CommittedPart(Part, frozen=True, kw_only=True):
    """A part at one of its commits.

    Attributes:
        commit: what its parent names; for the root, what the caller asked for.
    """

    commit: str


class Module(CommittedPart, frozen=True, kw_only=True):
    """A submodule and the repository that names it.

    Attributes:
        name: what `.gitmodules` calls it.
        origin: where it comes from, absolute; may be empty where the caller gave no origin of the root.
        parent: the repository that names it.
        head: what is checked out; None where that was not looked for.
    """

    name: str
    origin: str
    parent: Repository
    head: str | None = None


def walk(root: Repository) -> tuple[Part, ...]:
    """Return the root and every submodule that is checked out, parents first."""
    return (Part(path="", repository=root), *walk_submodules(root))


def walk_commit(root: Repository, commit: str) -> tuple[CommittedPart, ...]:
    """Return the root at a commit, and every checked-out submodule at the commit it then has."""
    parts = [CommittedPart(path="", repository=root, commit=commit)]
    for part in parts:  # and those that are added below
        modules = of_commit(part.repository, part.commit, within=part)
        parts += [module for module in modules if module.repository.has_commit()]
    return tuple(parts)


def walk_submodules(root: Repository, *, origin: str = "", initialized: bool = False) -> Iterator[Module]:
    """Yield the submodules that are checked out below a root, parents first, each with its HEAD.

    With `initialized`, also those that a killed run has begun, which have no commit yet.
    """
    parents = [(Part(path="", repository=root), origin)]
    for parent, its_origin in parents:  # and those that are added below
        for module in of_commit(parent.repository, "HEAD", origin=its_origin, within=parent):
            head = module.repository.head()
            if head or (initialized and module.repository.is_initialized()):
                parents.append((module, module.origin))
                yield structs.replace(module, head=head)


def of_commit(
    parent: Repository,
    commit: str,
    *,
    origin: str = "",
    within: Part | None = None,
    objects: Repository | None = None,
) -> tuple[Module, ...]:
    """Return the submodules that a commit names in `.gitmodules` and in its tree.

    Args:
        parent: the repository of the commit.
        commit: any name of it.
        origin: where the parent comes from; relative URLs start there. Empty where origins are not needed.
        within: the parent as a part, where it is a submodule itself.
        objects: where the commit is, if the parent does not have it yet.

    Raises:
        SourceError: `.gitmodules` is malformed or names a path outside.
    """
    source = objects or parent
    if commit == "HEAD" and not source.may_have_submodules():
        return ()
    commit_id = source.head() if commit == "HEAD" else commit
    if commit_id is not None and not COMMIT_ID.fullmatch(commit_id):
        commit_id = source.commit_of(commit_id)
    declared, commits = _read(source, commit_id) if commit_id else ({}, {})
    return tuple(
        _module(parent, declared[path], commit=commits[path], origin=origin, within=within)
        for path in declared
        # It may be declared and not be in the tree, or be meant to stay out (gitmodules(5), update).
        if path in commits and declared[path].update != "none"
    )


class _Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a submodule in `.gitmodules`."""

    name: str
    path: str
    url: str | None
    update: str | None


# What was read of commits and of `.gitmodules`, by their ids: their contents never change, and a checkout
# asks for the same few many times, in its mirrors and in its working trees.
_OF_COMMITS: dict[str, tuple[Mapping[str, _Declared], Mapping[str, str]]] = {}
_OF_FILES: dict[str, Mapping[str, _Declared]] = {}


def _read(source: Repository, commit: str) -> tuple[Mapping[str, _Declared], Mapping[str, str]]:
    """Read the `.gitmodules` of a commit and the commits of its submodules, both by path."""
    if commit in _OF_COMMITS:
        return _OF_COMMITS[commit]
    file, tree = source.resolve(f"{commit}:.gitmodules", f"{commit}^{{tree}}")
    if tree is None:
        return {}, {}
    declared = _OF_FILES.get(file or "") or (_declared(source, file) if file else {})
    rows = source.read_entries("ls-tree", "-z", tree, "--", *declared) if declared else []
    # `mode type id<TAB>path` (git-ls-tree(1), OUTPUT FORMAT); of a gitlink, the id is the submodule's commit.
    links = (entry.partition("\t") for entry in rows if entry.startswith(GITLINK))
    _OF_FILES[file or ""] = declared
    _OF_COMMITS[commit] = declared, {path: head.split()[2] for head, _, path in links}
    return _OF_COMMITS[commit]


def share_modules(commit: str, child: str) -> None:
    """Know the submodules of a commit's child, which has the same ones, without asking git."""
    if commit in _OF_COMMITS:
        _OF_COMMITS[child] = _OF_COMMITS[commit]


def _declared(parent: Repository, file: str) -> Mapping[str, _Declared]:
    """Parse the entries of a `.gitmodules` by path, each path once.

    Where several sections name one path, the last line that sets it wins, wherever its section begins; the
    first path of a section that is given a second one belongs to no section any more (git's
    submodule-config.c: parse_config, cache_put_path, cache_remove_path).
    """
    try:
        rows = parent.read_entries("config", "--blob", file, "--list", "-z")
    except SourceError as error:
        raise SourceError(f".gitmodules of {parent.work_tree} is malformed: {error}") from error
    sections: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    for entry in rows:
        # `submodule.<name>.<field>`, a line end, the value (git-config(1), -z); a name may have dots itself.
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
        path: _Declared(name=name, path=path, url=fields.get("url"), update=fields.get("update"))
        for path, name in owners.items()
        for fields in (sections.get(name, {}),)
    }


def _module(parent: Repository, entry: _Declared, *, commit: str, origin: str, within: Part | None) -> Module:
    name, path = entry.name, entry.path
    # A name becomes a folder of the git directory: one that climbs out is an attack (CVE-2018-11235).
    if any(".." in PurePosixPath(text).parts or text.startswith("/") for text in (name, path)):
        raise SourceError(f".gitmodules names a submodule outside the repository: {name} at {path}")
    whole = within.path_of(path) if within else path
    if entry.url is None:
        raise SourceError(
            f".gitmodules of {parent.work_tree} has no url for the submodule {path}",
            tip="choose a different --repo-hashtag, or pass --no-submodules",
        )
    source = ""
    if origin or not git_url.is_relative(entry.url):
        try:
            source = git_url.absolute(git_url.resolve(origin, entry.url))
        except SourceError as error:
            raise SourceError(f"submodule {whole}: {error}", tip=error.tip) from error
    return Module(
        path=whole,
        name=name,
        origin=source,
        commit=commit,
        parent=parent,
        repository=Repository(work_tree=parent.work_tree / path, git_dir=parent.git_dir / "modules" / name),
    )
