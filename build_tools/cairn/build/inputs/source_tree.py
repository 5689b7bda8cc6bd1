"""A build's view of its checkout: entry point, commit time, edits, and a module lent to it.

That module is `torch/_rocm_init.py`, which the repository does not have: it is written for the build alone,
so that it gets into the wheel (`rocm_init` in stack.toml).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn import files
from cairn.errors import SourceError
from cairn.sources.checkout import describe
from cairn.sources.git import command, lock, url
from cairn.sources.git.repository import UPSTREAM_TAG, root_at
from cairn.sources.worktree import contents, journal
from cairn.sources.worktree.parts import walk
from cairn.stack import Project
from cairn.wheels.sbom import Source

_ROCM_INIT = '''\
"""Loads the ROCm libraries this torch was built against. Written by the build; do not edit."""


def initialize():
    import rocm_sdk

    rocm_sdk.initialize_process(
        preload_shortnames={preloads},
        check_version={version!r},
    )
'''
SOURCES = "sources"
"""The name of `edited_files` among the inputs of a build: in no key, and kept to tell what changed."""

_FIRST_TIME, _LAST_TIME = 315532800, 4354819198  # 1980-01-01 00:00:00 and 2107-12-31 23:59:58, in UTC
_EDITED = 500  # files; hipify edits thousands in a tree that it does not commit
# A file that `rocm_init_module` wrote, to the letter.
_OURS = re.compile(
    re.escape(_ROCM_INIT).replace(r"\{preloads\}", r"\[[^\]]*\]").replace(r"\{version!r\}", r"'[^'\n]*'")
)


def source_dir(project: Project, checkout: Path) -> Path:
    """Return the folder of a tree whose build backend is called.

    Raises:
        SourceError: no folder of the tree has a `pyproject.toml` or a `setup.py`.
    """
    for name in project.source_dirs:
        folder = checkout / name
        if (folder / "pyproject.toml").exists() or (folder / "setup.py").exists():
            return folder
    raise SourceError(
        f"{checkout} has nothing to build: no pyproject.toml or setup.py",
        tip=f"check out {project.name} there, or name its checkout",
    )


def commit_time(checkout: Path) -> int:
    """Seconds since 1970 of the upstream commit: two builds of it give every file in the wheel the same time.

    Of a commit from before 1980 or after 2107, the nearest that a ZIP can hold (APPNOTE, 4.4.6).

    Raises:
        SourceError: the folder is not a git checkout, or has no commit.
    """
    for name in (UPSTREAM_TAG, "HEAD"):
        if command.succeeds(checkout, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"):
            seconds = int(command.run(checkout, "log", "-1", "--format=%ct", name).strip())
            return min(max(seconds, _FIRST_TIME), _LAST_TIME)
    raise SourceError(f"{checkout} has no commit", tip="check the project out again")


def edited_files(checkout: Path) -> dict[str, object]:
    """Return a tree's commit and its edited files with their ids, so that a later plan can name changes.

    The tree's digest in the keys tells only that something changed.
    """
    root = root_at(checkout)
    edits: dict[str, str] = {}
    for part in walk(root):
        names = part.repository.changes()
        on_disk = contents.on_disk(part.repository, names)
        edits |= {part.path_of(name): on_disk[name][1] if name in on_disk else "removed" for name in names}
    return {"commit": root.head() or "", "edited": dict(sorted(edits.items())[:_EDITED])}


def heads(checkout: Path) -> tuple[str | None, ...]:
    """Return the HEAD commits of a tree and its submodules."""
    return tuple(part.repository.head() for part in walk(root_at(checkout)))


def edits(checkout: Path) -> str:
    """Return a digest of the uncommitted changes to tracked files, submodules included."""
    # Each part is asked: of a submodule git says only that it is dirty, and in torch's tree not even that.
    words = ("diff", "--no-ext-diff", "--binary", "HEAD")
    parts = [part.repository.run(*words) for part in walk(root_at(checkout))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@contextlib.contextmanager
def restore_egg_info(checkout: Path) -> Iterator[None]:
    """Undo a build's changes to a tracked `*.egg-info`; earlier edits stay.

    setuptools rewrites that folder in each build, and a repository that was made from an sdist has it in its
    commit: the tree would count as edited though no one edited it, and be built again the next time.
    """

    def changed() -> set[str]:
        names = command.run(checkout, "diff", "--no-ext-diff", "--name-only", "--no-relative", "-z", "HEAD")
        return set(filter(None, names.split("\0")))

    before = changed()
    try:
        yield
    finally:
        written = [name for name in sorted(changed() - before) if ".egg-info/" in name]
        if written:
            command.run(checkout, "checkout", "HEAD", "--", *written)


def tidy(checkout: Path, rocm_init_file: str | None) -> None:
    """Remove the module that a killed build, or an editable one (`cairn.build.develop`), left in a tree.

    Raises:
        SourceError: a file that is not ours is where the build writes one of its own.
    """
    root = root_at(checkout)
    if journal.is_lent(root):
        with lock.hold(checkout):  # a build that is running there takes it back itself, and is waited for
            journal.take_back(root)
    if rocm_init_file is None:
        return
    path = checkout / rocm_init_file
    if path.is_file() and not path.is_symlink() and _OURS.fullmatch(_text(path)):
        path.unlink()
        # Earlier versions of Cairn told git to ignore the module.
        exclude = root.work_tree / root.run("rev-parse", "--git-path", "info/exclude").strip()
        lines = exclude.read_bytes().splitlines(keepends=True) if exclude.is_file() else []
        others = [line for line in lines if line.rstrip(b"\n") != f"/{rocm_init_file}".encode()]
        if others != lines:
            files.write_bytes(exclude, b"".join(others))
    journal.refuse_other(root, rocm_init_file)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def rocm_init_module(*, preloads: Sequence[str], rocm_version: str) -> str:
    """Return the source of the module by which a linked wheel loads the ROCm SDK's libraries first.

    torch imports it as `torch._rocm_init` and calls `initialize()` (pytorch's `torch/__init__.py`).

    Args:
        preloads: shortnames of libraries, in the order they are loaded.
        rocm_version: the version of the SDK that must be installed.
    """
    names = "".join(f"\n            {name!r}," for name in preloads)
    text = f"[{names}\n        ]" if names else "[]"
    return _ROCM_INIT.format(preloads=text, version=rocm_version)


def sources_of(project: Project, checkout: Path) -> tuple[Source, ...]:
    """Return the sources of a project: its repository, then its submodules.

    Raises:
        SourceError: the folder is not a finished checkout.
    """
    tree = describe.describe(project, checkout)
    modules = (Source(name=m.path, commit=m.commit, origin=_public(m.origin)) for m in tree.submodules)
    return (Source(name=project.name, commit=tree.commit, origin=_public(tree.origin)), *modules)


def upstream(checkout: Path) -> tuple[str, str | None]:
    """Return a checkout's upstream commit and its origin, None for one that is a path.

    That is the tagged commit, or HEAD in a repository without that tag, or empty if there is no commit yet.
    """
    root = root_at(checkout)
    note = journal.read(root.git_dir)
    origin = url.without_credentials((note.origin if note else root.origin_url()) or "")
    return root.tag(UPSTREAM_TAG) or root.head() or "", _public(origin)


def _public(origin: str) -> str | None:
    """Return an origin if it is valid on other machines too; a path would only reveal this one."""
    return None if url.is_local(origin) or origin.lower().startswith("file:") else origin
