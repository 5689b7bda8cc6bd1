"""CUDA sources turned into HIP, by upstream's own code, once per tree."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import process
from cairn.errors import ProcessError, SourceError
from cairn.sources import hipify_findings, submodules
from cairn.sources.hipify_report import HipifyReport
from cairn.sources.repository import Repository
from cairn.stack import HipifyKind

Say = Callable[[str], None]

SUBJECT = "DO NOT SUBMIT: HIPIFY"
BUILD_AMD = "tools/amd_build/build_amd.py"
GPU_SUFFIXES = (".cu", ".cuh")
_CUDA_INCLUDE = (
    r"#[[:space:]]*include[[:space:]]*[<\"](cuda|cublas|curand|cufft|cusparse|cudnn|nccl|thrust/|cub/)"
)

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_WATCH = Path(__file__).with_name("hipify_watch.py")

# All that stays of the caller's environment, so that no PYTHONPATH or ROCM_HOME of theirs steers hipify.
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "USERPROFILE", "LD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The root or a submodule, and the path it has in the root (with a slash at its end)."""

    repository: Repository
    prefix: str


def runs_at_checkout(kind: HipifyKind) -> bool:
    """Whether files change when a project of this kind is checked out."""
    return kind in ("build_amd", "torch-utils")


def run(
    root: Repository, kind: HipifyKind, *, ignored_before: Collection[str], python: Path | None, say: Say
) -> HipifyReport:
    """Hipify a tree that is as upstream gave it, submodules included.

    Args:
        root: its repository; nothing may be edited in it.
        kind: who hipifies.
        ignored_before: what `ignored` gives now; what it gives afterwards besides is hipify's.
        python: the interpreter; ours when None, which has no torch.
        say: is told the last line of the program's output.

    Raises:
        SourceError: there is no hipify program, it failed, or it matched nothing although there are CUDA
            sources.
    """
    notes = _execute(root.work_tree, kind, python=python or Path(sys.executable), say=say)
    parts = tuple(_parts(root))
    changed: list[str] = []
    generated = [name for name in ignored(root) - set(ignored_before) if not _is_byproduct(name)]
    for part in parts:
        edited, new = _differences(part.repository)
        changed += [part.prefix + name for name in edited]
        generated += [part.prefix + name for name in new if not _is_byproduct(name)]
    known = tracked(root)
    sources = {name for name in known if name.endswith(GPU_SUFFIXES)}
    unchanged = sources - set(changed)
    if not changed and not generated and (cuda := sorted(unchanged) or tuple(_cuda_users(parts))):
        raise SourceError(
            f"hipify changed nothing in {root.work_tree}, which has CUDA sources ({', '.join(cuda[:3])})",
            tip="see what the project's own hipify program matches; --no-hipify checks out without it",
        )
    unread = unchanged - notes.read
    left = hipify_findings.look(
        root.work_tree,
        written=[*changed, *generated],
        unread=unread,
        known=[*known, *generated],
        unsupported=notes.unsupported,
    )
    return HipifyReport(
        kind=kind,
        read=tuple(sorted(notes.read)),
        changed=tuple(sorted(changed)),
        generated=tuple(sorted(generated)),
        unchanged=tuple(sorted(unchanged)),
        unread=tuple(sorted(unread)),
        unsupported=left.unsupported,
        cuda_includes=left.cuda_includes,
    )


def ignored(root: Repository) -> set[str]:
    """Files that git ignores, by their paths from the root, submodules' included."""
    found: set[str] = set()
    for part in _parts(root):
        listed = part.repository.run("ls-files", "--others", "--ignored", "--exclude-standard", "-z")
        found |= {part.prefix + name for name in listed.split("\0") if name}
    return found


def tracked(root: Repository) -> set[str]:
    """Files that git knows, by their paths from the root, submodules' included."""
    found: set[str] = set()
    for part in _parts(root):
        listed = part.repository.run("ls-files", "-z")
        found |= {part.prefix + name for name in listed.split("\0") if name}
    return found


def commit(repository: Repository, generated: Collection[str] = ()) -> str:
    """Commit everything hipify did to one repository; the commit, or HEAD where there is nothing to commit.

    Generated files are committed even where the project ignores them, so that the commit is all of it. The
    commit is made of the tree, the parent and the parent's time: two people who hipify the same commit get
    the same one. Made without `git commit`, which asks hooks and a person's settings.

    Args:
        repository: the root or a submodule.
        generated: files that hipify made, from the repository's own folder.
    """
    repository.run("add", "--all")
    if generated:
        names = b"".join(os.fsencode(name) + b"\0" for name in sorted(generated))
        from_input = ("--pathspec-from-file=-", "--pathspec-file-nul")
        repository.run("--literal-pathspecs", "add", "--force", *from_input, stdin=names)
    tree = repository.run("write-tree").strip()
    head, old_tree, date = (
        repository.run("log", "-1", "--format=%H %T %cd", "--date=raw").strip().split(" ", 2)
    )
    if tree == old_tree:
        return head
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    new = repository.run("commit-tree", tree, "-p", head, "-m", SUBJECT, env=dates).strip()
    repository.run("update-ref", "-m", f"commit: {SUBJECT}", "HEAD", new, head)
    return new


def is_hipified(root: Repository) -> bool:
    """Whether HEAD is a hipify commit, whoever made it."""
    return root.run("log", "-1", "--format=%s").strip() == SUBJECT


@dataclass(frozen=True, kw_only=True)
class _Notes:
    """What was seen while the hipify program ran; see `hipify_watch`."""

    read: frozenset[str]
    unsupported: Mapping[str, str]


def _execute(tree: Path, kind: HipifyKind, *, python: Path, say: Say) -> _Notes:
    if kind == "build_amd" and not (tree / BUILD_AMD).is_file():
        raise SourceError(
            f"{tree} has no {BUILD_AMD}", tip="is it a checkout of torch? else pass --no-hipify"
        )
    with tempfile.TemporaryDirectory(prefix="cairn-hipify-") as folder:
        notes = Path(folder, "notes.json")
        # Isolated (-I), so that a folder `torch` in the tree is not taken for the installed one.
        isolated = ["-IB", "-X", "utf8"] if kind == "torch-utils" else []
        program = BUILD_AMD if kind == "build_amd" else "--torch-utils"
        try:
            # The folder matters: build_amd.py names some of the files it edits relative to it.
            process.run(
                [python, *isolated, _WATCH, notes, program],
                cwd=tree,
                env=_environment(),
                on_line=lambda line: say(_COLOUR.sub("", line)),
            )
        except ProcessError as error:
            reason = error.output.splitlines()[-1] if error.output else str(error)
            raise SourceError(f"hipify of {tree} failed: {reason}", tip=_tip(kind, error.output)) from error
        if not notes.exists():
            # It has left by a way that skips every end of Python's (os._exit).
            return _Notes(read=frozenset(), unsupported={})
        data = json.loads(notes.read_text(encoding="utf-8"))
    return _Notes(read=frozenset(data["read"]), unsupported=data["unsupported"])


def _tip(kind: HipifyKind, output: str) -> str:
    if kind == "torch-utils" and "No module named 'torch" in output:
        return "name an interpreter that has torch (--python)"
    return "what it wrote is undone by the next checkout"


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUTF8": "1",
    }


def _parts(root: Repository) -> Iterator[_Part]:
    yield _Part(repository=root, prefix="")
    for module in submodules.present(root):
        yield _Part(repository=module.repository, prefix=f"{module.path}/")


def _differences(repository: Repository) -> tuple[list[str], list[str]]:
    """Files of HEAD that are no longer as they were, and new ones."""
    options = ("--untracked-files=all", "--ignore-submodules=all", "--no-renames")
    listed = [e for e in repository.run("status", "--porcelain", "-z", *options).split("\0") if e]
    return [e[3:] for e in listed if e[:2] != "??"], [e[3:] for e in listed if e[:2] == "??"]


def _is_byproduct(name: str) -> bool:
    return "__pycache__/" in name or name.endswith(".pyc")


def _cuda_users(parts: tuple[_Part, ...]) -> Iterator[str]:
    """Files that include a CUDA header; slower to find than by their names, so looked for last."""
    for part in parts:
        if part.repository.succeeds("grep", "--quiet", "-IE", _CUDA_INCLUDE):
            listed = part.repository.run("grep", "-lzIE", _CUDA_INCLUDE)
            yield from (part.prefix + name for name in listed.split("\0") if name)
