"""What is at a path: in a commit, in the index, on the disk; compared by git's own ids."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from cairn.sources.git.repository import Repository

Entry = tuple[str, str]
"""Mode and id, as git writes them."""

_UNMERGED: Entry = ("unmerged", "")
_FOLDER: Entry = ("040000", "")


def of_tree(own: Repository, tree: str | None) -> dict[str, Entry]:
    """Every file of a commit or tree; none for None."""
    if tree is None:
        return {}
    listed = own.run("ls-tree", "-r", "-z", "--full-tree", tree).split("\0")
    found = (entry.partition("\t") for entry in listed if entry)
    return {name: (head.split()[0], head.split()[2]) for head, _, name in found}


def of_index(own: Repository) -> dict[str, Entry]:
    """Every file of the index; one that is in conflict is equal to nothing."""
    found: dict[str, Entry] = {}
    for entry in own.run("ls-files", "--stage", "-z").split("\0"):
        head, _, name = entry.partition("\t")
        if entry:
            mode, id_, stage = head.split()
            found[name] = (mode, id_) if stage == "0" else _UNMERGED
    return found


def on_disk(own: Repository, names: Iterable[str]) -> dict[str, Entry]:
    """What `git add` would put into the index for these names, without those that are not there."""
    found: dict[str, Entry] = {}
    plain: list[tuple[str, str]] = []
    for name in names:
        path = own.work_tree / name
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(mode):
            target = os.fsencode(path.readlink())
            found[name] = ("120000", own.run("hash-object", "--stdin", stdin=target).strip())
        elif stat.S_ISREG(mode):
            plain.append((name, "100755" if mode & stat.S_IXUSR else "100644"))
        elif name.endswith("/"):
            found[name] = _FOLDER  # a repository within, as `git status` names it
    ids = _ids(own, [name for name, _ in plain])
    return found | {name: (bits, ids[name]) for name, bits in plain}


def _ids(own: Repository, names: Sequence[str]) -> dict[str, str]:
    together = [name for name in names if "\n" not in name]
    paths = b"".join(os.fsencode(name) + b"\n" for name in together)
    listed = own.run("hash-object", "--stdin-paths", stdin=paths).split() if together else []
    ids = dict(zip(together, listed, strict=True))
    return ids | {name: own.run("hash-object", "--", name).strip() for name in names if "\n" in name}


def write_out(own: Repository, tree: str, names: Collection[str], folder: Path) -> None:
    """Write files of a tree below a folder, with line ends and the like as a checkout gives them."""
    with tempfile.TemporaryDirectory(prefix="cairn-index-") as temporary:
        env = {"GIT_INDEX_FILE": str(Path(temporary, "index"))}
        own.run("read-tree", tree, env=env)
        paths = _nul_separated(names)
        own.run("checkout-index", "-z", "--stdin", f"--prefix={folder}/", env=env, stdin=paths)


def snapshot(own: Repository, ignored: Collection[str] = ()) -> str:
    """The tree of everything in the working tree, written into the repository; the index is not touched.

    Args:
        own: the root or a submodule.
        ignored: files that git ignores and the tree is to have all the same.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-index-") as temporary:
        env = _own_index(own, Path(temporary))
        if hidden := [name for name in own.hidden() if os.path.lexists(own.work_tree / name)]:
            # Git is to look at them all the same; `update-index` heeds only the last of these options.
            names = _nul_separated(hidden)
            for option in ("--no-skip-worktree", "--no-assume-unchanged"):
                own.run("update-index", option, "-z", "--stdin", env=env, stdin=names)
        own.run("add", "--all", env=env)
        if ignored:
            paths = _nul_separated(ignored)
            from_input = ("--pathspec-from-file=-", "--pathspec-file-nul")
            own.run("--literal-pathspecs", "add", "--force", *from_input, env=env, stdin=paths)
        return own.run("write-tree", env=env).strip()


def staged(own: Repository) -> str:
    """The tree of the index; paths in conflict, which the merged commits have, are left out of it."""
    with tempfile.TemporaryDirectory(prefix="cairn-index-") as temporary:
        env = _own_index(own, Path(temporary))
        if conflicts := [name for name, entry in of_index(own).items() if entry == _UNMERGED]:
            own.run(
                "update-index", "--force-remove", "-z", "--stdin", env=env, stdin=_nul_separated(conflicts)
            )
        return own.run("write-tree", env=env).strip()


def _nul_separated(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def _own_index(own: Repository, folder: Path) -> Mapping[str, str]:
    index = folder / "index"
    if (own.git_dir / "index").exists():
        # With its time: git trusts an entry only if its file is older than the index.
        shutil.copy2(own.git_dir / "index", index)
    return {"GIT_INDEX_FILE": str(index)}


def quoted(path: Path) -> str:
    """A path for GIT_ALTERNATE_OBJECT_DIRECTORIES, where a separator would split it in two (git(1))."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
