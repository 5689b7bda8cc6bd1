"""What a build asks of the checkout it runs in: its time, its edits, and no file of a killed build."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn import files
from cairn.errors import SourceError
from cairn.sources.checkout import inspect
from cairn.sources.git import command, url
from cairn.sources.git.repository import UPSTREAM_TAG, Repository, root_at
from cairn.sources.worktree import lent, state
from cairn.stack import Project
from cairn.wheels.sbom import Source

_UPSTREAM = "THEROCK_UPSTREAM_DIFFBASE"
_ROCM_INIT = '''\
"""Loads the ROCm libraries this torch was built against. Written by the build; do not edit."""


def initialize():
    import rocm_sdk

    rocm_sdk.initialize_process(
        preload_shortnames={preloads},
        check_version={version!r},
    )
'''


_OURS = re.compile(
    re.escape(_ROCM_INIT).replace(r"\{preloads\}", r"\[[^\]]*\]").replace(r"\{version!r\}", r"'[^'\n]*'")
)


def commit_time(checkout: Path) -> int:
    """Seconds since 1970 of the upstream commit: two builds of it give every file in the wheel the same time.

    Raises:
        SourceError: the folder is no git checkout.
    """
    for name in (_UPSTREAM, "HEAD"):
        if command.succeeds(checkout, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"):
            return int(command.run(checkout, "log", "-1", "--format=%ct", name).strip())
    raise SourceError(f"{checkout} has no commit", tip="check the project out again")


def edits(checkout: Path) -> str:
    """A digest of what differs from the last commit in files that git knows."""
    return hashlib.sha256(
        command.run(checkout, "diff", "--no-ext-diff", "--binary", "HEAD").encode()
    ).hexdigest()


@contextlib.contextmanager
def egg_info_restored(checkout: Path) -> Iterator[None]:
    """Undo what a build in the block writes into a tracked `*.egg-info`; what was edited before stays.

    setuptools rewrites that folder in each build, and a repository that was made from an sdist has it in its
    commit: the tree would count as edited, by nobody, and be built again the next time.
    """
    before = _changed(checkout)
    try:
        yield
    finally:
        written = [name for name in sorted(_changed(checkout) - before) if ".egg-info/" in name]
        if written:
            command.run(checkout, "checkout", "HEAD", "--", *written)


def _changed(checkout: Path) -> set[str]:
    names = command.run(checkout, "diff", "--no-ext-diff", "--name-only", "--no-relative", "-z", "HEAD")
    return set(filter(None, names.split("\0")))


def tidy(checkout: Path, rocm_init_file: str | None) -> None:
    """Take out of a tree what a killed build lent to it, and what earlier versions of Cairn left there.

    Raises:
        SourceError: a file that is not ours is where the build writes one of its own.
    """
    root = root_at(checkout)
    if lent.is_out(root):
        with state.alone(checkout):  # unless another build is at it, which takes it back itself
            lent.take_back(root)
    if rocm_init_file is None:
        return
    path = checkout / rocm_init_file
    if path.is_file() and not path.is_symlink() and _OURS.fullmatch(_text(path)):
        path.unlink()
        _include_again(root, rocm_init_file)
    lent.refuse_other(root, rocm_init_file)


def _include_again(root: Repository, name: str) -> None:
    exclude = Path(root.run("rev-parse", "--git-path", "info/exclude").strip())
    path = exclude if exclude.is_absolute() else root.work_tree / exclude
    lines = _text(path).splitlines(keepends=True) if path.is_file() else []
    kept = [line for line in lines if line.rstrip("\n") != f"/{name}"]
    if kept != lines:
        files.write_text(path, "".join(kept))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def rocm_init_module(*, preloads: Sequence[str], rocm_version: str) -> str:
    """The source of the module through which a linked wheel loads the ROCm SDK's libraries before its own.

    torch imports it as `torch._rocm_init` and calls `initialize()` (pytorch's `torch/__init__.py`).

    Args:
        preloads: shortnames of libraries, in the order they are loaded.
        rocm_version: the version of the SDK that must be installed.
    """
    names = "".join(f"\n            {name!r}," for name in preloads)
    listed = f"[{names}\n        ]" if names else "[]"
    return _ROCM_INIT.format(preloads=listed, version=rocm_version)


def sources_of(project: Project, checkout: Path) -> tuple[Source, ...]:
    """The project's repository, then its submodules.

    Raises:
        SourceError: the folder is no finished checkout.
    """
    found = inspect.inspect(project, checkout)
    modules = (Source(name=m.path, commit=m.commit, origin=_public(m.origin)) for m in found.submodules)
    return (Source(name=project.name, commit=found.commit, origin=_public(found.origin)), *modules)


def upstream_commit(checkout: Path) -> str:
    """The upstream commit that a checkout stands on; empty where it has none yet."""
    root = root_at(checkout)
    return root.tag(UPSTREAM_TAG) or root.head() or ""


def _public(origin: str) -> str | None:
    """An origin that means something elsewhere too; a path would only give this machine away."""
    return None if url.is_local(origin) or origin.lower().startswith("file:") else origin
