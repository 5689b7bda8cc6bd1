"""The files of a working tree as they are now, as one id: what a build's cache is keyed on."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from cairn.errors import SourceError
from cairn.sources.git.repository import Repository, root_at
from cairn.sources.worktree import contents, submodules


def tree_state(path: Path) -> str:
    """A sha256 of every file's name, mode and content: edits, new files that are not ignored, submodules.

    Nothing in the checkout is touched, the index least of all.

    Raises:
        SourceError: the folder is no git checkout.
    """
    root = root_at(path)
    if not root.exists():
        raise SourceError(f"{path} is not a git checkout", tip="check the project out first")
    digest = hashlib.sha256(work_tree_id(root).encode())
    for module in submodules.present(root):
        digest.update(f"\0{module.path}\0{work_tree_id(module.repository)}".encode())
    return digest.hexdigest()


def work_tree_id(repository: Repository) -> str:
    """The id of the tree that committing everything in the working tree would make.

    Git's own machinery does it, on a copy of the index (which knows what has not changed since it was last
    looked at) and with a folder of its own for the objects of edited files.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-tree-") as temporary:
        index, objects = Path(temporary, "index"), Path(temporary, "objects")
        objects.mkdir()
        if (repository.git_dir / "index").exists():
            # With its time: git trusts an entry only if its file is older than the index.
            shutil.copy2(repository.git_dir / "index", index)
        env = {
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": contents.quoted(repository.common_dir / "objects"),
        }
        repository.run("add", "--all", env=env)
        return repository.run("write-tree", env=env).strip()
