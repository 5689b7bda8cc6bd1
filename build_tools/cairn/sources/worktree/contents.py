"""Compare the contents of paths in commits, the index and on disk, and digest whole working trees.

Compared by git's own ids. A build's cache is keyed on `tree_state`. There are also files that this does not
see, and that a build may read or pack anyway (`ignored`, `hidden`): what git ignores, what it was told not
to look at, and repositories inside the tree that are no submodules, of which git sees at most the commit.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from cairn import files
from cairn.concurrency import side_by_side
from cairn.errors import SourceError
from cairn.sources.git import command
from cairn.sources.git.repository import GITLINK, UNMERGED, Entry, Repository, root_at
from cairn.sources.worktree.parts import Part, walk_submodules

_FOLDER: Entry = ("040000", "")


def of_tree(repo: Repository, tree: str | None) -> dict[str, Entry]:
    """Return every file of a commit or tree; empty for None."""
    if tree is None:
        return {}
    # `mode type id<TAB>path` (git-ls-tree(1), OUTPUT FORMAT).
    entries = (
        entry.partition("\t") for entry in repo.read_entries("ls-tree", "-r", "-z", "--full-tree", tree)
    )
    return {name: (head.split()[0], head.split()[2]) for head, _, name in entries}


def on_disk(repo: Repository, names: Iterable[str]) -> dict[str, Entry]:
    """Return the entries that `git add` would make for these names; missing files are left out.

    So are files that a linked folder leads to: git adds none, and one that is confined cannot read them.
    """
    entries: dict[str, Entry] = {}
    plain: list[tuple[str, str]] = []
    root = os.path.realpath(repo.work_tree)

    @functools.cache
    def is_linked(folder: str) -> bool:
        place = os.path.normpath(os.path.join(root, folder))  # noqa: PTH118 - of thousands, as below
        return os.path.normcase(os.path.realpath(place)) != os.path.normcase(place)

    for name in names:
        if (folder := os.path.dirname(name.rstrip("/"))) and is_linked(folder):  # noqa: PTH120 - of thousands
            continue
        path = repo.work_tree / name
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(mode):
            target = os.fsencode(path.readlink())
            # A link's content is its target. (`hash-object FILE` would follow the link.)
            entries[name] = ("120000", repo.run("hash-object", "--stdin", stdin=target).strip())
        elif stat.S_ISREG(mode):
            plain.append((name, "100755" if mode & stat.S_IXUSR else "100644"))
        elif name.endswith("/"):
            entries[name] = _FOLDER  # a repository within, as `git status` names it
    ids = _ids(repo, [name for name, _ in plain])
    return entries | {name: (bits, ids[name]) for name, bits in plain}


def _ids(repo: Repository, names: Sequence[str]) -> dict[str, str]:
    # `--stdin-paths` separates names by line ends and has no `-z` (git-hash-object(1)).
    together = [name for name in names if "\n" not in name]
    paths = b"".join(os.fsencode(name) + b"\n" for name in together)
    hashes = repo.run("hash-object", "--stdin-paths", stdin=paths).split() if together else []
    ids = dict(zip(together, hashes, strict=True))
    return ids | {name: repo.run("hash-object", "--", name).strip() for name in names if "\n" in name}


def write_out(repo: Repository, tree: str, names: Collection[str], folder: Path) -> None:
    """Write files of a tree below a folder, with line ends and the like as a checkout gives them."""
    with tempfile.TemporaryDirectory(prefix="cairn-index-") as temporary:
        env = {"GIT_INDEX_FILE": str(Path(temporary, "index"))}
        repo.run("read-tree", tree, env=env)
        paths = command.nul_separated(names)
        repo.run("checkout-index", "-z", "--stdin", f"--prefix={folder}/", env=env, stdin=paths)


def write_committed(path: Path, commits: Sequence[str], names: Sequence[str], folder: Path) -> str:
    """Write files and folders of a commit below a folder, whatever the checkout at `path` has in their place.

    Only objects of the checkout are read: what its index hides, what its info/exclude and info/attributes say
    and the filters of its configuration have no part in it.

    Args:
        path: a checkout, or the working tree of a submodule.
        commits: the first of these that the checkout has is written, and returned.
        names: files and folders; those that the commit does not have are passed over.
        folder: receives them; it need not exist.

    Raises:
        SourceError: the checkout has none of the commits, or not all of the files.
    """
    repo = root_at(path)
    commit = next(filter(None, map(repo.commit_of, commits)), None)
    if commit is None:
        raise SourceError(f"{path} does not have the commit {commits[0]}", tip="check it out again")
    rows = repo.read_entries("ls-tree", "-r", "-z", "--full-tree", commit, "--", *names)
    entries = [(head.split(), name) for head, _, name in (entry.partition("\t") for entry in rows)]
    with tempfile.TemporaryDirectory(prefix="cairn-commit-") as temporary:
        empty = Repository(work_tree=folder, git_dir=Path(temporary, "git"))
        folder.mkdir(parents=True, exist_ok=True)
        kind = repo.run("rev-parse", "--show-object-format").strip()
        command.run(
            Path(temporary), "init", "--quiet", "--bare", f"--object-format={kind}", str(empty.git_dir)
        )
        env = {"GIT_OBJECT_DIRECTORY": str((repo.common_dir / "objects").resolve())}
        empty.run("read-tree", commit, env=env)
        files = command.nul_separated(name for (mode, *_), name in entries if mode != GITLINK)
        empty.run("checkout-index", "-z", "--stdin", f"--prefix={folder}/", env=env, stdin=files)
    for (mode, _, id_), name in entries:
        if mode == GITLINK and root_at(path / name).has_commit():
            within = root_at(path / name).read_entries("ls-tree", "-z", "--name-only", id_)
            write_committed(path / name, [id_], within, folder / name)
    return commit


def snapshot(repo: Repository, ignored: Collection[str] = ()) -> str:
    """Write the whole working tree into the repository as a tree, without touching the index.

    Args:
        repo: the root or a submodule.
        ignored: files that git ignores and the tree is to have all the same.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-index-") as temporary:
        env = _own_index(repo, Path(temporary))
        index, marked = repo.index()
        # Git is to look at them all the same.
        repo.unmark([name for name in marked if os.path.lexists(repo.work_tree / name)], env=env)
        # Git adds nothing at the place of a submodule, or below it.
        existing = {
            path.as_posix()
            for name in ignored
            for path in (PurePosixPath(name), *PurePosixPath(name).parents)
        }
        if links := [name for name in existing if index.get(name, ("", ""))[0] == GITLINK]:
            repo.run(
                "update-index", "--force-remove", "-z", "--stdin", env=env, stdin=command.nul_separated(links)
            )
        repo.run("add", "--all", env=env)
        if ignored:
            paths = command.nul_separated(ignored)
            from_input = ("--pathspec-from-file=-", "--pathspec-file-nul")
            repo.run("--literal-pathspecs", "add", "--force", *from_input, env=env, stdin=paths)
        return repo.run("write-tree", env=env).strip()


def staged(repo: Repository) -> str:
    """Write the index as a tree, without paths in conflict, which the merged commits have."""
    with tempfile.TemporaryDirectory(prefix="cairn-index-") as temporary:
        env = _own_index(repo, Path(temporary))
        if conflicts := [name for name, entry in repo.index()[0].items() if entry == UNMERGED]:
            names = command.nul_separated(conflicts)
            repo.run("update-index", "--force-remove", "-z", "--stdin", env=env, stdin=names)
        return repo.run("write-tree", env=env).strip()


def _own_index(repo: Repository, folder: Path) -> Mapping[str, str]:
    """Return variables that make git work on a copy of the index, in `folder`."""
    index = folder / "index"
    if (repo.git_dir / "index").exists():
        # With its time: git trusts an entry's stat data only if the file is older than the index, and reads
        # the file again otherwise (git's Documentation/technical/racy-git.txt).
        files.copy_into(repo.git_dir / "index", index)
        shutil.copystat(repo.git_dir / "index", index)
    return {"GIT_INDEX_FILE": str(index)}


def _quoted(path: Path) -> str:
    """Quote a path for GIT_ALTERNATE_OBJECT_DIRECTORIES, which splits at separators (git(1))."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def lent(*folders: Path) -> Mapping[str, str]:
    """Return the variable that lets a git command read the objects in these folders, too."""
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(map(_quoted, folders))}


def tree_state(path: Path) -> str:
    """Return a sha256 of all files' names, modes and contents: edits, untracked files and submodules too.

    Nothing in the checkout is touched, and neither is the index.

    Raises:
        SourceError: the folder is not a git checkout.
    """
    root = root_at(path)
    if not root.has_commit():
        raise SourceError(f"{path} is not a git checkout", tip="check the project out first")
    digest = hashlib.sha256(work_tree_id(root).encode())
    for module in walk_submodules(root):
        digest.update(f"\0{module.path}\0{work_tree_id(module.repository)}".encode())
    return digest.hexdigest()


def work_tree_id(repository: Repository) -> str:
    """Return the id of the tree that committing the whole working tree would make."""
    # HEAD is asked last: a commit that a person makes meanwhile has what git saw no difference from.
    return edited_tree_id(repository) or repository.run("rev-parse", "HEAD^{tree}").strip()


def edited_tree_id(repository: Repository, *, outputs: bool = True, also: Collection[str] = ()) -> str | None:
    """Return the id of the tree that committing the whole working tree would make; None if it is HEAD's.

    Git's own machinery makes it, on a copy of the index (which knows what has not changed since it was last
    looked at) and with a folder of its own for the objects of edited files.

    Args:
        repository: whose tree.
        outputs: untracked files count too that lie where build tools leave theirs: `build`, `*.egg-info`.
        also: files that count where git ignores them, by path.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-tree-") as temporary:
        config = {}
        if not outputs:
            (excludes := Path(temporary, "excludes")).write_text("/build/\n*.egg-info/\n", encoding="utf-8")
            config = {"core.excludesFile": str(excludes)}
        present = [name for name in also if os.path.lexists(repository.work_tree / name)]
        # `add` stages the commits of submodules that it is not told to skip: they count, their files do not.
        if not present and repository.head() and not repository.status(submodules="dirty", config=config):
            return None
        objects = Path(temporary, "objects")
        objects.mkdir()
        env = {
            **_own_index(repository, Path(temporary)),
            "GIT_OBJECT_DIRECTORY": str(objects),
            **lent(repository.common_dir / "objects"),
        }
        repository.run("add", "--all", env=env, config=config)
        if present:
            from_input = ("--pathspec-from-file=-", "--pathspec-file-nul")  # git 2.25
            names = command.nul_separated(present)
            repository.run("--literal-pathspecs", "add", "--force", *from_input, env=env, stdin=names)
        return repository.run("write-tree", env=env).strip()


# What editors, test runners and interpreters keep in a tree: it changes all the time, and no build reads it.
# `__pycache__` could be packed; a wheel that has it is refused (cairn.build.build_project).
_OF_TOOLS = frozenset(
    (
        *(".git", ".venv", "__pycache__", "node_modules", ".cache", ".idea", ".vscode", ".vs", ".clangd"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".ccls-cache"),
        ".DS_Store",
    )
)
_VENV = "pyvenv.cfg"  # in the root of every virtual environment (PEP 405)


def ignored(parts: Iterable[Part]) -> dict[str, Path]:
    """Return the ignored files, except those of tools, by path from the root."""
    return _of_all(_ignored, parts)


def hidden(parts: Iterable[Part]) -> dict[str, Path]:
    """Return the other files that git does not see: those it was told to skip, and nested repositories.

    A submodule counts as nested if it is no part: not committed yet, moved, with its git directory inside, or
    in no `.gitmodules`. Git shows at most its commit, and nothing of a file or a folder in its place.
    """
    parts = list(parts)
    return _of_all(functools.partial(_hidden, places={part.path for part in parts}), parts)


def mark(path: Path) -> str | None:
    """Return a value that changes when a file is written, without reading it; None if there is no file."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return f"{status.st_size}:{status.st_mtime_ns}:{stat.S_IFMT(status.st_mode):o}"


def digest(paths: Mapping[str, Path]) -> str | None:
    """Return a sha256 of the names and contents of files; None for no files."""
    if not paths:
        return None
    whole = hashlib.sha256()
    for name in sorted(paths):
        whole.update(f"{name}\0{_content(paths[name])}\0".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _of_all(look: Callable[[Part], dict[str, Path]], parts: Iterable[Part]) -> dict[str, Path]:
    together: dict[str, Path] = {}
    for group in side_by_side(look, list(parts)):
        together |= group
    return _without_tools(together)


def _ignored(part: Part) -> dict[str, Path]:
    return _list_files(part, "--ignored")


def _hidden(part: Part, *, places: Collection[str]) -> dict[str, Path]:
    repo = part.repository
    index, marked = repo.index()
    nested = (
        name for name, (mode, _) in index.items() if mode == GITLINK and part.path_of(name) not in places
    )
    # A folder stands for a repository inside; the files of one that is ignored come with `_ignored`.
    paths = _list_files(part, only_folders=True)
    for name in (*marked, *(link for link in nested if os.path.lexists(repo.work_tree / link))):
        path = repo.work_tree / name
        is_folder = path.is_dir() and not path.is_symlink()
        paths |= _below(part, name) if is_folder else {part.path_of(name): path}
    return paths


def _list_files(part: Part, *options: str, only_folders: bool = False) -> dict[str, Path]:
    repo = part.repository
    paths: dict[str, Path] = {}
    for name in repo.read_entries("ls-files", "--others", *options, "--exclude-standard", "-z"):
        if name.endswith("/"):
            paths |= _below(part, name)
        elif not only_folders:
            paths[part.path_of(name)] = repo.work_tree / name
    return paths


def _below(part: Part, folder: str) -> dict[str, Path]:
    path = part.repository.work_tree / folder
    return {part.path_of(f"{folder.rstrip('/')}/{inner}"): path / inner for inner in _walk(path)}


def _walk(folder: Path) -> Iterable[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _OF_TOOLS]
        inside = Path(place).relative_to(folder)
        yield from ((inside / name).as_posix() for name in names if name != ".git")


def _without_tools(paths: Mapping[str, Path]) -> dict[str, Path]:
    environments = tuple(name.removesuffix(_VENV) for name in paths if PurePosixPath(name).name == _VENV)
    return {
        name: path
        for name, path in paths.items()
        if not (environments and name.startswith(environments)) and _OF_TOOLS.isdisjoint(name.split("/"))
    }


def _content(path: Path) -> str:
    try:
        if path.is_symlink():
            return f"link {os.readlink(path)}"  # noqa: PTH115 - as text, whatever it leads to
        if path.is_file():
            return f"{path.stat().st_mode & stat.S_IXUSR:o} {files.sha256_of(path)}"
    except OSError:
        pass  # not ours to read: a build that reads it runs as the same user
    return "no file"
