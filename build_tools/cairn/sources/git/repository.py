"""A working repository, root or submodule, that borrows objects from a mirror; cleanup after killed gits."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import files
from cairn.errors import SourceError
from cairn.sources.git import command

UPSTREAM_TAG = "THEROCK_UPSTREAM_DIFFBASE"
HIPIFY_TAG = "THEROCK_HIPIFY_DIFFBASE"
HIPIFY_SUBJECT = "DO NOT SUBMIT: HIPIFY"  # of the commit between them: upstream's words
GITLINK = "160000"  # mode of an entry that is a submodule: its id is a commit (git-ls-tree(1))
ASIDE = "cairn-aside"  # folder of a git directory with what builds left (cairn.build.inputs.leftovers)

Entry = tuple[str, str]
"""Mode and id of a file, as git writes them."""
UNMERGED: Entry = ("unmerged", "")

# The submodules' settings, in a file that the repository's own configuration includes (git-config(1),
# include.path): one file written at once, where `git config` would run three times for each submodule.
_OURS = "cairn.config"
_WORKTREE = ("config", "--local", "core.worktree")
_ORIGIN_URL = r"remote\.origin\.url"
# As `git init` writes them into [core] (git's setup.c, create_default_files).
_OF_FILE_SYSTEM = rb"(?m)^\t(?:filemode|symlinks|ignorecase|precomposeunicode) = \w+\n"
_UNDER_WAY = {
    "rebase-merge": "rebase",
    "rebase-apply/applying": "am",
    "rebase-apply": "rebase",
    "BISECT_LOG": "bisect",
}


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
        variables = {**self._where(), **(env or {})}
        return command.run(self.work_tree, *args, env=variables, config=config, stdin=stdin)

    def read_entries(self, *args: str, env: Mapping[str, str] | None = None) -> list[str]:
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
            if text.startswith("ref: "):  # on a branch, which wins over one of its name in packed-refs
                text = (self.common_dir / text[5:]).read_text(encoding="ascii").strip()
            if command.COMMIT_ID.fullmatch(text) and not has_lost_mirror(self):
                return text
        return self.commit_of("HEAD")

    def _is_tied(self) -> bool:
        """Whether the working tree belongs to this repository and not to another submodule at its path."""
        if not (self.work_tree / ".git").exists():
            return False
        git_dir = root_at(self.work_tree).git_dir
        return git_dir == self.git_dir or git_dir.resolve() == self.git_dir.resolve()

    def resolve(self, *names: str, env: Mapping[str, str] | None = None) -> tuple[str | None, ...]:
        """Resolve names to the ids of objects, in one git command; None where there is none."""
        nothing = (None,) * len(names)
        if not self.git_dir.is_dir() or not self.work_tree.is_dir():
            return nothing
        query = os.fsencode("".join(f"{name}\n" for name in names))
        try:
            # An id, or `name missing` (git-cat-file(1), BATCH OUTPUT).
            lines = self.run("cat-file", "--batch-check=%(objectname)", env=env, stdin=query).split("\n")
        except SourceError:  # no repository
            return nothing
        return tuple(line if command.COMMIT_ID.fullmatch(line) else None for line in lines[: len(names)])

    def commit_of(self, name: str) -> str | None:
        """Resolve a name to a commit; None if it names none."""
        return self.resolve(f"{name}^{{commit}}")[0]

    def tag(self, name: str) -> str | None:
        """Return the commit that a tag points to; None if there is no such tag."""
        return self.tags(name)[0]

    def tags(self, *names: str) -> tuple[str | None, ...]:
        """Like `tag`, for several tags in one git command."""
        return self.resolve(*(f"refs/tags/{name}^{{commit}}" for name in names))

    def head_descends_from(self, commit: str) -> bool:
        """Whether HEAD is a commit or descends from it."""
        return self.head() == commit or self.succeeds("merge-base", "--is-ancestor", commit, "HEAD")

    def index(self) -> tuple[dict[str, Entry], tuple[str, ...]]:
        """Return the index: its entries, and the files marked assume-unchanged or skip-worktree.

        A file in conflict has the entry `UNMERGED`, which compares equal to nothing on disk.
        """
        entries: dict[str, Entry] = {}
        hidden: list[str] = []
        # `letter mode id stage<TAB>path`: the letter is lower case for assume-unchanged, S for skip-worktree;
        # stages 1 to 3 are the common ancestor, ours and theirs (git-ls-files(1), -v, OUTPUT, --unmerged).
        for line in self.read_entries("ls-files", "-v", "--stage", "-z"):
            head, _, name = line.partition("\t")
            letter, mode, id_, stage = head.split()
            entries[name] = (mode, id_) if stage == "0" else UNMERGED
            if mode != GITLINK and (letter == "S" or letter.islower()):
                hidden.append(name)
        return entries, tuple(hidden)

    def gitlinks(self) -> dict[str, bool]:
        """Return the paths of the submodules in the index, and whether git is to skip each."""
        rows = self.read_entries("ls-files", "-v", "--stage", "-z")
        return {line.partition("\t")[2]: line[0] == "S" for line in rows if line[2:].startswith(GITLINK)}

    def unmark(self, names: Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        """Remove the marks assume-unchanged and skip-worktree from files of the index."""
        # `update-index` heeds only the last of these options.
        for option in ("--no-skip-worktree", "--no-assume-unchanged") if names else ():
            stdin = command.nul_separated(names)
            self.run("update-index", option, "-z", "--stdin", env=env, stdin=stdin)

    def configured(self, names: str) -> dict[str, str]:
        """Return the settings whose names match a regular expression; empty without any."""
        try:
            rows = self.read_entries("config", "-z", "--get-regexp", f"^({names})$")
        except SourceError:
            return {}
        return {name: value for name, _, value in (entry.partition("\n") for entry in rows)}

    def origin_url(self) -> str | None:
        """Return the configured URL of the remote `origin`; None if there is no such remote."""
        return self.configured(_ORIGIN_URL).get("remote.origin.url")

    def status(
        self, *, submodules: str = "all", config: Mapping[str, str] | None = None
    ) -> list[tuple[str, str]]:
        """Return files that differ from HEAD, and new ones, each with git's two status letters.

        Renames are not detected, so that each entry has a single path.

        Args:
            submodules: what of them is left out: `all`, or `dirty` where a different commit counts.
            config: settings on top of ours.
        """
        options = ("--untracked-files=all", f"--ignore-submodules={submodules}", "--no-renames")
        rows = self.run("status", "--porcelain", "-z", *options, config=config).split("\0")
        return [(entry[:2], entry[3:]) for entry in rows if entry]

    def changes(self) -> tuple[str, ...]:
        """Return the files that differ from HEAD, and untracked ones, but not those of submodules."""
        return tuple(name for _, name in self.status())

    def commits_only_here(self, *kept_commits: str) -> tuple[str, ...]:
        """Return id and subject of the commits that become unreachable once HEAD and hipify's tag move away.

        Below the tag may be the patches that hipify was run on, or what the user moved it to. Leaves out
        ancestors of the kept commits, and hipify's own: an unfinished run has not tagged its own yet.
        """
        if (self.head() or self.commit_of("HEAD")) is None:
            return ()
        tag = f"refs/tags/{HIPIFY_TAG}"
        heads = ("--ignore-missing", "HEAD", *self.merge_heads(), tag)  # there may be no such tag
        elsewhere = (
            "--not",
            "--branches",
            "--remotes",
            f"--exclude={HIPIFY_TAG}",
            "--tags",
            *kept_commits,
            "--",
        )
        lines = self.read_entries("log", "-z", "--format=%ce%x09%H%x09%h %s", *heads, *elsewhere)
        commits = []
        for email, id_, text in (line.split("\t", 2) for line in lines):
            is_hipifys = text.endswith(HIPIFY_SUBJECT) and (
                email == command.EMAIL
                # By upstream's own script, whoever ran it.
                or (
                    text.partition(" ")[2] == HIPIFY_SUBJECT
                    and self.succeeds("merge-base", "--is-ancestor", id_, tag)
                )
            )
            if not is_hipifys:
                commits.append(text)
        return tuple(commits)

    def commit_tree(self, commit: str | None) -> str | None:
        """Return the id of a commit's tree; None if `commit` is None."""
        return self.resolve(f"{commit}^{{tree}}")[0] if commit else None

    def may_have_submodules(self) -> bool:
        """Whether HEAD or the index may name submodules that are, or were, checked out.

        Most have none, and asking git takes longer than looking. (The user may have deleted `.gitmodules`:
        the repositories of the submodules are still there.)
        """
        return (self.work_tree / ".gitmodules").exists() or (self.git_dir / "modules").exists()

    def without_files(self) -> Repository:
        """Return the same repository for queries about commits when its working tree is gone."""
        return bare(self.git_dir)

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
        for name, operation in _UNDER_WAY.items():
            if (self.git_dir / name).exists():
                return operation
        return None

    def _where(self) -> dict[str, str]:
        return {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.work_tree)}


def bare(path: Path) -> Repository:
    """Return a bare repository, such as a mirror, for queries about its commits."""
    return Repository(work_tree=path, git_dir=path)


def create_bare(path: Path, *settings: tuple[str, str], branch: str = "main") -> None:
    """Make an empty bare repository in a folder that is there."""
    fixed = (("core.repositoryFormatVersion", "0"), ("core.bare", "true"))
    lay_out(path, command.config_text((*fixed, *settings)).encode(), branch=branch)


def lay_out(git_dir: Path, config: bytes, *, branch: str = "main") -> None:
    """Write what `git init` would (gitrepository-layout(5)), in less time than it takes to start it.

    HEAD comes last: without it, it is no repository to git, nor to `is_initialized`.
    """
    for name in ("objects/info", "refs"):
        (git_dir / name).mkdir(parents=True, exist_ok=True)
    files.write_bytes(git_dir / "config", config)
    files.write_text(git_dir / "HEAD", f"ref: refs/heads/{branch}\n")


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


def create(repository: Repository, *, origin: str | None = None, parent: Repository | None = None) -> None:
    """Create the repository if it is missing or incomplete; a submodule's is tied to its working tree.

    Args:
        repository: which one.
        origin: the URL that `origin` is to mean, so that plain git works in the checkout; None leaves it.
        parent: of a submodule; without it, git finds out what it can know of the file system.
    """
    work_tree, git_dir = repository.work_tree, repository.git_dir
    work_tree.mkdir(parents=True, exist_ok=True)
    # A linked worktree (`git worktree add`) is tied to its main repository already, in a different way.
    is_submodule = git_dir != work_tree / ".git" and repository.common_dir == git_dir
    if is_submodule:
        _tie(work_tree, git_dir)
    settings: list[tuple[str, str]] = []
    before: Mapping[str, str] = {}
    is_whole = all((repository.common_dir / name).exists() for name in ("config", _OURS))
    if parent is not None and not (git_dir / "config").exists():
        lay_out(git_dir, _config_like(parent))
        settings.append(("core.worktree", _relative(work_tree, git_dir)))
    else:
        git_dir.mkdir(parents=True, exist_ok=True)
        if not is_whole and repository.common_dir == git_dir:
            repository.run("init", "--quiet")
        before = repository.configured(rf"core\.worktree|{_ORIGIN_URL}")
        if is_submodule and not (is_whole and "core.worktree" in before):
            # In place of the absolute path that `git init` has written.
            repository.run(*_WORKTREE, _relative(work_tree, git_dir))
    if origin is not None:
        settings += _origin_settings(repository, origin, before.get("remote.origin.url"))
    _append(repository, settings if is_whole else [("include.path", _OURS), *settings])
    if not is_whole:
        configure(repository, ())


def _config_like(parent: Repository) -> bytes:
    """Return a new submodule's configuration, with what `git init` found of its parent's file system."""
    of_file_system = re.findall(_OF_FILE_SYSTEM, (parent.common_dir / "config").read_bytes())
    fixed = b"\tbare = false\n\tlogallrefupdates = true\n"
    return b"".join((b"[core]\n\trepositoryformatversion = 0\n", *of_file_system, fixed))


def _origin_settings(repository: Repository, url: str, before: str | None) -> list[tuple[str, str]]:
    """Return the settings that create `origin` with this URL; empty if it exists, after updating its URL."""
    if before is None:
        fetch = "+refs/heads/*:refs/remotes/origin/*"
        return [("remote.origin.url", url), ("remote.origin.fetch", fetch)]
    if before != url:
        repository.run("config", "--local", "--replace-all", "remote.origin.url", url)
    return []


def _tie(work_tree: Path, git_dir: Path) -> None:
    link = os.fsencode(f"gitdir: {_relative(git_dir, work_tree)}\n")
    path = work_tree / ".git"
    if not path.is_file() or path.read_bytes() != link:
        files.write_bytes(path, link)


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
    ours, theirs = repository.common_dir / "shallow", mirror / "shallow"
    rows = [path.read_bytes() for path in (ours, theirs) if path.exists()]
    if not rows:
        return
    ends = sorted({line for text in rows for line in text.decode().split()})
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
        ours.unlink(missing_ok=True)
    elif not ours.exists() or ours.read_bytes().decode().split() != shallow:
        files.write_text(ours, "".join(f"{end}\n" for end in shallow))


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
    links = repository.gitlinks() if filled and repository.may_have_submodules() else ()
    # Where something else stands in the place of a submodule that git is to skip, it would not move.
    repository.unmark([name for name in links if not (repository.work_tree / name).is_dir()])
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
