"""A working repository, root or submodule, that borrows objects from a mirror; cleanup after killed gits."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import files
from cairn.errors import SourceError, SystemFailureError
from cairn.sources.git import command

UPSTREAM_TAG = "THEROCK_UPSTREAM_DIFFBASE"
HIPIFY_TAG = "THEROCK_HIPIFY_DIFFBASE"
HIPIFY_SUBJECT = "DO NOT SUBMIT: HIPIFY"  # of the commit between them: upstream's words
GITLINK = "160000"  # mode of an entry that is a submodule: its id is a commit (git-ls-tree(1))
ASIDE = "cairn-aside"  # folder of a git directory with what builds left (cairn.build.inputs.leftovers)

# The submodules' settings, in a file that the repository's own configuration includes (git-config(1),
# include.path): one file written at once, where `git config` would run three times for each submodule.
_OURS = "cairn.config"
_WORKTREE = ("config", "--local", "core.worktree")
_MARKER = "cairn-busy"
_UNDER_WAY = {
    "rebase-merge": "rebase",
    "rebase-apply/applying": "am",
    "rebase-apply": "rebase",
    "BISECT_LOG": "bisect",
}
# What git-fetch and git-repack write before they rename it (git's pack-write.c, object-file.c).
_HALF = ("tmp_pack_", "tmp_idx_", "tmp_obj_", "tmp_rev_")
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.part")
_HIPIFY = "hipify"
_WAIT_FOR_GIT = 60.0  # seconds for a git whose parent was killed to end by itself


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A working tree and its git directory (which is elsewhere for a submodule)."""

    work_tree: Path
    git_dir: Path

    def run(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
    ) -> str:
        """Run git in the working tree and return its output; it never uses a repository further up."""
        own = {**self._where(), **(env or {})}
        return command.run(self.work_tree, *args, env=own, config=config, stdin=stdin)

    def listed(self, *args: str, env: Mapping[str, str] | None = None) -> list[str]:
        """Run a git command that lists NUL-terminated items; `args` must contain its `-z`."""
        return [entry for entry in self.run(*args, env=env).split("\0") if entry]

    def succeeds(self, *args: str) -> bool:
        """Whether a git command exits with 0 in the working tree."""
        return command.succeeds(self.work_tree, *args, env=self._where())

    @property
    def common_dir(self) -> Path:
        """The folder of objects and settings; elsewhere for a linked worktree (gitrepository-layout(5))."""
        try:
            text = (self.git_dir / "commondir").read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return self.git_dir
        return (self.git_dir / text).resolve()

    def is_initialized(self) -> bool:
        """Whether there is a working tree with a repository, which may have no commit yet."""
        # What git looks for (its setup.c, is_git_directory): a killed `git init` has made a part of it.
        whole = (self.git_dir / "HEAD").exists() and (self.common_dir / "objects").is_dir()
        return self._is_tied() and whole and (self.common_dir / "refs").is_dir()

    def has_commit(self) -> bool:
        """Whether there is a working tree with a commit checked out."""
        return self.head() is not None

    def head(self) -> str | None:
        """Return the commit that is checked out; None without a working tree or a commit."""
        if not self._is_tied():
            return None
        with contextlib.suppress(OSError, UnicodeDecodeError):
            # As we leave it, HEAD is detached, and the file has the commit: reading it is 50 times as fast as
            # asking git, and a checkout asks this of every submodule more than once. With the mirror, the
            # commit itself may be gone.
            text = (self.git_dir / "HEAD").read_text(encoding="ascii").strip()
            if command.COMMIT_ID.fullmatch(text) and not has_lost_mirror(self):
                return text
        return self.commit_of("HEAD")

    def _is_tied(self) -> bool:
        """Whether the working tree belongs to this repository and not to another submodule at its path."""
        if not (self.work_tree / ".git").exists():
            return False
        git_dir = root_at(self.work_tree).git_dir
        return git_dir == self.git_dir or git_dir.resolve() == self.git_dir.resolve()

    def commit_of(self, name: str) -> str | None:
        """Resolve a name to a commit; None if it names none."""
        if not self.git_dir.is_dir() or not self.work_tree.is_dir():
            return None
        try:
            return self.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
        except SourceError:
            return None

    def tag(self, name: str) -> str | None:
        """Return the commit that a tag points to; None if there is no such tag."""
        return self.commit_of(f"refs/tags/{name}")

    def tags(self, *names: str) -> tuple[str | None, ...]:
        """Like `tag`, for several tags in one git command."""
        refs = [f"refs/tags/{name}" for name in names]
        # An annotated tag is an object of its own: what it is of comes last.
        listed = self.run("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", *refs)
        commits = {words[0]: words[-1] for words in map(str.split, listed.splitlines())}
        return tuple(commits.get(ref) for ref in refs)

    def head_descends_from(self, commit: str) -> bool:
        """Whether HEAD is a commit or descends from it."""
        return self.succeeds("merge-base", "--is-ancestor", commit, "HEAD")

    def gitlinks(self) -> tuple[str, ...]:
        """Return the paths of the submodules in the index."""
        # `mode id stage<TAB>path` (git-ls-files(1), OUTPUT).
        listed = self.listed("ls-files", "--stage", "-z")
        return tuple(entry.partition("\t")[2] for entry in listed if entry.startswith(GITLINK))

    def origin_url(self) -> str | None:
        """Return the configured URL of the remote `origin`; None if there is no such remote."""
        try:
            return self.run("config", "--get", "remote.origin.url").strip()
        except SourceError:
            return None

    def status(self, *options: str) -> list[tuple[str, str]]:
        """Return files that differ from HEAD, and new ones, each with git's two status letters.

        Files of submodules are left out. Renames are not detected, so that each entry has a single path.
        """
        always = ("--untracked-files=all", "--ignore-submodules=all", "--no-renames")
        return [
            (entry[:2], entry[3:]) for entry in self.listed("status", "--porcelain", "-z", *always, *options)
        ]

    def changes(self) -> tuple[str, ...]:
        """Return the files that differ from HEAD, and untracked ones, but not those of submodules."""
        return tuple(name for _, name in self.status())

    def hidden(self) -> tuple[str, ...]:
        """Return the files marked assume-unchanged or skip-worktree, without submodules."""
        # The letter is lower case for assume-unchanged, S for skip-worktree (git-ls-files(1), -v, -t).
        listed = self.listed("ls-files", "-v", "-z")
        marked = [entry[2:] for entry in listed if entry[0] == "S" or entry[0].islower()]
        links = set(self.gitlinks()) if marked else set()
        return tuple(name for name in marked if name not in links)

    def commits_only_here(self, *known: str) -> tuple[str, ...]:
        """Return id and subject of the commits that become unreachable once HEAD moves away.

        Leaves out ancestors of the known commits, and commits that Cairn made itself: an unfinished run has
        not tagged its own yet.
        """
        if self.commit_of("HEAD") is None:
            return ()
        elsewhere = ("--not", "--branches", "--tags", "--remotes", *known)
        heads = ("HEAD", *self.merge_heads())
        lines = self.run("log", "--format=%ce%x09%h %s", *heads, *elsewhere).splitlines()
        fields = (line.partition("\t") for line in lines)
        return tuple(
            text for email, _, text in fields if email != command.EMAIL or not text.endswith(HIPIFY_SUBJECT)
        )

    def commit_tree(self, commit: str | None) -> str | None:
        """Return the id of a commit's tree; None if `commit` is None."""
        return self.run("rev-parse", "--verify", f"{commit}^{{tree}}").strip() if commit else None

    def without_files(self) -> Repository:
        """Return the same repository for queries about commits when its working tree is gone."""
        return Repository(work_tree=self.git_dir, git_dir=self.git_dir)

    def merge_heads(self) -> tuple[str, ...]:
        """Return the commits being merged; a checkout ends the merge."""
        try:
            return tuple((self.git_dir / "MERGE_HEAD").read_text(encoding="ascii").split())
        except FileNotFoundError:
            return ()

    def under_way(self) -> str | None:
        """Return the git operation in progress that would continue from any HEAD; None if there is none.

        Merges, cherry-picks and reverts do not count: a checkout ends them.
        """
        # Of git's wt-status.c, wt_status_get_state; `git am` shares its folder with an older rebase.
        for name, what in _UNDER_WAY.items():
            if (self.git_dir / name).exists():
                return what
        return None

    def _where(self) -> dict[str, str]:
        return {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.work_tree)}


def root_at(path: Path) -> Repository:
    """Return the repository of a checkout folder, whether or not it exists.

    A linked worktree (`.git` is a file there) has its git directory elsewhere.
    """
    dot_git = path / ".git"
    if dot_git.is_file():
        before, mark, text = os.fsdecode(dot_git.read_bytes()).partition("gitdir: ")
        if mark and not before and "\0" not in text:
            return Repository(work_tree=path, git_dir=(path / text.strip()).resolve())
    return Repository(work_tree=path, git_dir=dot_git)


def commits_at(path: Path) -> tuple[str, ...]:
    """Return the commit checked out in a folder, then those before hipify; empty without git."""
    repository = root_at(path)
    head = repository.head()
    if head is None:
        return ()
    before = repository.tags(UPSTREAM_TAG, HIPIFY_TAG)
    return tuple(dict.fromkeys((head, *(commit for commit in before if commit is not None))))


def edits_at(path: Path) -> tuple[str, ...]:
    """Return the files in a folder that differ from the checked-out commit, and new Python files."""
    repository = root_at(path)
    if repository.head() is None:
        return ()
    return tuple(name for code, name in repository.status() if code != "??" or name.endswith(".py"))


def create(repository: Repository, *, origin: str | None = None) -> None:
    """Create the repository if it is missing or incomplete; a submodule's is tied to its working tree.

    Args:
        repository: which one.
        origin: the URL that `origin` is to mean, so that plain git works in the checkout; None leaves it.
    """
    work_tree, git_dir = repository.work_tree, repository.git_dir
    work_tree.mkdir(parents=True, exist_ok=True)
    # A linked worktree (`git worktree add`) is tied to its main repository already, in a different way.
    is_submodule = git_dir != work_tree / ".git" and repository.common_dir == git_dir
    if is_submodule:
        _tie(work_tree, git_dir)
    config = repository.common_dir / "config"
    is_new = not config.exists()
    is_whole = not is_new and (repository.common_dir / _OURS).exists()
    settings: list[tuple[str, str]] = []
    if not is_whole:
        git_dir.mkdir(parents=True, exist_ok=True)
        if repository.common_dir == git_dir:
            repository.run("init", "--quiet")
        settings.append(("include.path", _OURS))
    if is_submodule and is_new:
        # In place of the absolute path that `git init` has written.
        files.write_bytes(config, re.sub(rb"(?m)^\tworktree = .*\n", b"", config.read_bytes()))
        settings.append(("core.worktree", _relative(work_tree, git_dir)))
    elif is_submodule and not (is_whole and repository.succeeds(*_WORKTREE)):
        repository.run(*_WORKTREE, _relative(work_tree, git_dir))
    if origin is not None:
        settings += _origin_settings(repository, origin, is_new=is_new)
    _append(repository, settings)
    if not is_whole:
        configure(repository, ())


def _tie(work_tree: Path, git_dir: Path) -> None:
    link = os.fsencode(f"gitdir: {_relative(git_dir, work_tree)}\n")
    path = work_tree / ".git"
    if not path.is_file() or path.read_bytes() != link:
        files.write_bytes(path, link)


def _origin_settings(repository: Repository, url: str, *, is_new: bool) -> list[tuple[str, str]]:
    """Return the settings that create `origin` with this URL; empty if it exists, after updating its URL."""
    before = None if is_new else repository.origin_url()
    if before is None:
        fetch = "+refs/heads/*:refs/remotes/origin/*"
        return [("remote.origin.url", url), ("remote.origin.fetch", fetch)]
    if before != url:
        repository.run("config", "--local", "--replace-all", "remote.origin.url", url)
    return []


def untie(repository: Repository) -> None:
    """Unset `core.worktree` of a submodule whose working tree is gone: git would refuse to run."""
    if repository.succeeds(*_WORKTREE):
        repository.run("config", "--local", "--unset-all", "core.worktree")


def configure(repository: Repository, settings: Iterable[tuple[str, str]]) -> None:
    """Write the settings that Cairn keeps in the repository, in place of earlier ones."""
    path = repository.common_dir / _OURS
    text = command.config_text(settings)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)


def _append(repository: Repository, settings: Iterable[tuple[str, str]]) -> None:
    """Add new settings by writing the file once, instead of running git for each."""
    path = repository.common_dir / "config"
    # As bytes: what the user has written there need not be UTF-8.
    before, more = path.read_bytes(), command.config_text(settings).encode()
    if more not in before:
        files.write_bytes(path, before + more)


def borrow_objects(repository: Repository, mirror: Path) -> None:
    """Let the repository use a mirror's objects, and mark where the history of both ends as shallow.

    The mirror becomes the first line of `objects/info/alternates` (gitrepository-layout(5)).
    """
    path = repository.common_dir / "objects" / "info" / "alternates"
    ours = str(mirror / "objects")
    before = _lenders(repository)
    lines = [ours, *(line for line in before if line != ours and not _is_lost_mirror(line))]
    if lines != before:
        files.write_bytes(path, b"".join(os.fsencode(f"{line}\n") for line in lines))
    _end_history(repository, mirror)


def has_lost_mirror(repository: Repository) -> bool:
    """Whether a mirror that the repository borrows from is gone."""
    return any(map(_is_lost_mirror, _lenders(repository)))


def _lenders(repository: Repository) -> list[str]:
    path = repository.common_dir / "objects" / "info" / "alternates"
    return os.fsdecode(path.read_bytes()).splitlines() if path.exists() else []


def _is_lost_mirror(line: str) -> bool:
    # Other lenders, which may be relative names or comments (gitrepository-layout(5)), are not ours to judge.
    lender = Path(line).parent
    return lender.suffix == ".git" and lender.parent.name == "mirrors" and not lender.exists()


def _end_history(repository: Repository, mirror: Path) -> None:
    """Record the shallow boundary: commits whose parents neither the repository nor the mirror has.

    They go into the file `shallow`, an id a line (git's Documentation/technical/shallow.txt). A clone made by
    hand may be shallower than the mirror, or deeper, or shallow in a different branch.
    """
    own, theirs = repository.common_dir / "shallow", mirror / "shallow"
    listed = [path.read_bytes() for path in (own, theirs) if path.exists()]
    if not listed:
        return
    ends = sorted({line for text in listed for line in text.decode().split()})
    # `cat-file` shows a commit as it was written; every other command hides the parents of a listed one.
    parents: dict[str, list[str]] = {}
    for end in ends:
        if repository.succeeds("cat-file", "-e", end):
            head = repository.run("cat-file", "commit", end).partition("\n\n")[0].splitlines()
            parents[end] = [line.split()[1] for line in head if line.startswith("parent ")]
    names = [name for parent_ids in parents.values() for name in parent_ids]
    checked = repository.run("cat-file", "--batch-check", stdin="".join(f"{n}\n" for n in names).encode())
    missing = {line.split()[0] for line in checked.splitlines() if line.endswith(" missing")}
    shallow = [end for end, parent_ids in parents.items() if missing.intersection(parent_ids)]
    if not shallow:
        own.unlink(missing_ok=True)
    elif not own.exists() or own.read_bytes().decode().split() != shallow:
        files.write_text(own, "".join(f"{end}\n" for end in shallow))


def place(repository: Repository, commit: str, *, alone: bool = True) -> None:
    """Reset the working tree to a commit with HEAD detached; only ignored files and repositories stay.

    Args:
        repository: which one.
        commit: its id.
        alone: whether all cores may work on it; where others are placed side by side, each is faster on one.
    """
    # A working tree that was never filled needs no cleaning.
    has_index = (repository.git_dir / "index").exists()
    filled = has_index or any(entry.name != ".git" for entry in repository.work_tree.iterdir())
    links = repository.gitlinks() if filled else ()
    if lost := [name for name in links if not (repository.work_tree / name).is_dir()]:
        # Where something else stands in the place of a submodule that git is to skip, it would not move.
        names = command.nul_separated(lost)
        repository.run("update-index", "--no-skip-worktree", "-z", "--stdin", stdin=names)
    workers = {"checkout.workers": "0" if alone else "1"}
    repository.run("checkout", "--quiet", "--force", "--detach", commit, config=workers)
    if filled:
        repository.run("clean", "--quiet", "-fd")


def move_refs(repository: Repository, refs: Mapping[str, str | None]) -> None:
    """Set refs to objects, or delete them (None), all or none."""
    lines = [
        f"update {name} {target}" if target else f"delete {name}" for name, target in sorted(refs.items())
    ]
    repository.run("update-ref", "--stdin", stdin="\n".join([*lines, ""]).encode())


def _relative(path: Path, start: Path) -> str:
    return Path(os.path.relpath(path.resolve(), start.resolve())).as_posix()


@contextlib.contextmanager
def busy(git_dir: Path) -> Iterator[None]:
    """Mark a git directory, which the caller has locked, as being changed while the block runs.

    A mark found on entry says that an earlier holder was killed: if it left a git running, that is waited
    for, then the `*.lock` files and half-written packs are removed. (A git that ends with an error has
    removed its own, and the mark goes with the block.)
    """
    marker = git_dir / _MARKER
    if marker.exists():
        sweep(git_dir, folders=(git_dir,))
    marker.touch()
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def sweep(git_dir: Path, *, folders: tuple[Path, ...], below: bool = False) -> None:
    """Remove lock files and half-written packs of programs that were killed.

    Args:
        git_dir: where they are looked for, git directories of submodules included.
        folders: working folders of git and hipify programs that may still be running.
        below: look for such programs in the folders below, too.

    Raises:
        SystemFailureError: one of them does not end.
    """
    resolved = {folder.resolve() for folder in folders}
    deadline = time.monotonic() + _WAIT_FOR_GIT
    while running := _at_work(resolved, below=below):
        name, process = running[0]
        if name == _HIPIFY:  # a guard has not seen to it (`cairn.platforms`): it would not end for long
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        elif time.monotonic() > deadline:
            raise SystemFailureError(
                f"{name} (process {process}) is still at work in {folders[0]}",
                tip="wait until it has ended, or end it, and run the same command again",
            )
        time.sleep(0.1)
    _remove_files(
        git_dir, lambda name: name.endswith(".lock") or name.startswith(_HALF) or is_temporary(name)
    )


def remove_temporary_files(git_dir: Path) -> None:
    """Remove what a killed `cairn.files` was writing, but no lock: a git of the user may hold it."""
    _remove_files(git_dir, is_temporary)


def _remove_files(git_dir: Path, is_left: Callable[[str], bool]) -> None:
    for folder, folders, names in os.walk(git_dir):
        folders[:] = [name for name in folders if name != ASIDE]
        for name in filter(is_left, names):
            Path(folder, name).unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    """Whether a file's name is one that `cairn.files` gives to what it is writing."""
    return _TEMPORARY.fullmatch(name) is not None


def _at_work(folders: set[Path], *, below: bool) -> list[tuple[str, int]]:
    """Return git and hipify processes running in these folders; none on systems without /proc (proc(5))."""
    with contextlib.suppress(OSError):
        processes = [process for process in Path("/proc").iterdir() if process.name.isdecimal()]
        candidates = ((_name_at_work(process, folders, below=below), process) for process in processes)
        return [(name, int(process.name)) for name, process in candidates if name]
    return []


def _name_at_work(process: Path, folders: set[Path], *, below: bool) -> str | None:
    try:
        folder = (process / "cwd").readlink()
        if folder not in folders and not (below and folders.intersection(folder.parents)):
            return None
        # Both go on writing when the process that started them is killed.
        if "git" in (name := (process / "comm").read_text().strip()):
            return name
        return _HIPIFY if b"watch_script" in (process / "cmdline").read_bytes() else None
    except OSError:
        return None  # it ended, or belongs to a different user
