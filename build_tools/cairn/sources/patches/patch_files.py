"""Read patch files, assign them to the repositories of a checkout, and apply them.

The change of each is compared with the commits there. For a patch that does not apply, the error names the
file, the hunk and the line, and says whether only the line endings differ.
"""

from __future__ import annotations

import contextlib
import email.utils
import re
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cairn.errors import SourceError, UsageError
from cairn.output.wording import short_id
from cairn.sources.checkout import local_commits
from cairn.sources.checkout.local_commits import LocalCommit
from cairn.sources.git.repository import Repository
from cairn.sources.worktree import twin
from cairn.sources.worktree.parts import CommittedPart

Identity = tuple[str, str, int, str]
"""Name and address of the author, seconds since 1970, subject."""

_STAGES = ("base", "hipified")
_DIFF = b"diff --git "
# A count that is left out is 1 (POSIX, diff: "Diff -u Output Format").
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
# How lines of the old file and of the new one begin. An editor may strip the space of an empty line. What
# begins with a backslash (`\ No newline at end of file`) is a line of neither.
_OLD = (b" ", b"-", b"", b"\r")
_NEW = (b" ", b"+", b"", b"\r")
# How git quotes file names (git's quote.c, `quote_c_style`).
_QUOTED = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """One hunk.

    Attributes:
        header: its line with the `@@`, without the name of the function behind them.
        line: where it begins in the file it is made for, from 1.
        before: the lines that must be there, without their line feeds.
    """

    header: bytes
    line: int
    before: tuple[bytes, ...]


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What a patch does to one file.

    Attributes:
        name: the file that must be there; for one that the patch creates, its name.
        is_new: the patch creates it.
        hunks: in the patch's order; none of a binary file, or where only the mode changes.
    """

    name: str
    is_new: bool
    hunks: tuple[Hunk, ...]


class PatchFile(msgspec.Struct, frozen=True, kw_only=True):
    """A patch file.

    Attributes:
        path: where it is.
        identity: who wrote it and when, and its subject.
        diff: what it changes, as text: from the first `diff --git` to the last line of the last hunk.
        files: the same, read.
    """

    path: Path
    identity: Identity
    diff: bytes
    files: tuple[FileDiff, ...]


def find(
    folder: Path, *, parts: Collection[str], root_names: Collection[str], is_hipified: bool
) -> Mapping[str, tuple[tuple[Path, ...], tuple[Path, ...]]]:
    """Find every `*.patch` below a folder, by the path of its repository (empty for the root).

    Two layouts are read. That of `cairn patches export`: the root's patches in the folder itself, those of a
    submodule in a folder of its path. And that of ROCm/TheRock (external-builds/pytorch/patches, one patch
    set): `NAME/base` and `NAME/hipified`, where NAME is that of the root's repository or the path of a
    submodule.

    Args:
        folder: of the patches.
        parts: the paths of the repositories in the checkout.
        root_names: what the root's repository may be called.
        is_hipified: patches that do not say when they apply are for a hipified tree.

    Returns:
        For each repository, in the order in which they apply, the patches for upstream's own files, which go
        beneath hipify's commit, and those for what hipify made of them.

    Raises:
        UsageError: there are no patches.
        SourceError: there are patches for a submodule that is not there.
    """
    by_owner: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.patch")):
        parent = path.parent.relative_to(folder).as_posix()
        owner, stage = ("" if parent == "." else parent), ""
        above, _, last = owner.rpartition("/")
        # A submodule may itself be called `base`: what is in the checkout comes first.
        if owner not in parts and last in _STAGES:
            owner, stage = ("" if above in root_names and above not in parts else above), last
        by_owner[owner, stage or ("hipified" if is_hipified else "base")].append(path)
    if not by_owner:
        raise UsageError(
            f"{folder} has no *.patch",
            tip="name a folder that `cairn patches export` made, or one of TheRock's",
        )
    owners = sorted({owner for owner, _ in by_owner})
    if unknown := [owner for owner in owners if owner not in parts]:
        raise _unknown(folder, unknown[0], root_names)
    return {owner: (tuple(by_owner[owner, "base"]), tuple(by_owner[owner, "hipified"])) for owner in owners}


def _unknown(folder: Path, owner: str, root_names: Collection[str]) -> SourceError:
    first, _, rest = owner.partition("/")
    if rest in root_names or rest.startswith("third_party/"):
        return SourceError(
            f"{folder} has several patch sets, such as {first}", tip=f"name one of them: {folder / first}"
        )
    return SourceError(
        f"the checkout has no submodule {owner}, for which {folder} has patches",
        tip="check it out with its submodules, or remove their folder; the root's own patches belong in "
        f"the folder itself, or below {' or '.join(sorted(root_names))}",
    )


def read(repo: Repository, path: Path) -> PatchFile:
    """Read a patch file; git itself parses the mail.

    Raises:
        UsageError: it is not a patch file.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-mail-") as folder:
        message, patch = Path(folder, "message"), Path(folder, "patch")
        # -b removes `[PATCH 1/2]` from a subject and keeps all other [brackets] (git-mailinfo(1)).
        names = repo.run("mailinfo", "-b", "--no-scissors", str(message), str(patch), stdin=path.read_bytes())
        text = patch.read_bytes()
    fields = dict(line.split(": ", 1) for line in names.splitlines() if ": " in line)
    try:
        written = int(email.utils.parsedate_to_datetime(fields["Date"]).timestamp())
        identity = (fields["Author"], fields["Email"], written, fields["Subject"])
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{path} is not a patch of git format-patch", tip="make it with git format-patch"
        ) from error
    diff = _diff(text)
    return PatchFile(path=path, identity=identity, diff=diff, files=tuple(files_of(diff)))


def files_of(diff: bytes) -> Iterator[FileDiff]:
    """Yield the files of a diff, in its order."""
    for section in re.split(rb"^(?=diff --git )", diff, flags=re.MULTILINE):
        if section.startswith(_DIFF):
            yield _file(section.split(b"\n"))


def _in_hunks(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each line and whether it is within a hunk, whose header says how many lines it has.

    Without counting, a removed line `-- x` would read as the header `--- x`, or as the end of the patch.
    """
    old = new = 0  # lines of the old and of the new file that the hunk still has
    for line in lines:
        inside = old > 0 or new > 0
        if inside:
            old -= line[:1] in _OLD
            new -= line[:1] in _NEW
        elif match := _HUNK.match(line):
            old, new = int(match[2] or 1), int(match[3] or 1)
        yield line, inside


def _diff(text: bytes) -> bytes:
    """Return the diff in a mail, without the summary before it and the signature after it.

    A signature is a line `-- `, followed by the version of git (RFC 3676, section 4.3).
    """
    lines = text.split(b"\n")
    start = next((number for number, line in enumerate(lines) if line.startswith(_DIFF)), len(lines))
    body: list[bytes] = []
    for line, inside in _in_hunks(lines[start:]):
        if not inside and line.rstrip(b"\r") == b"-- ":
            break
        body.append(line)
    return b"\n".join(body).rstrip(b"\n") + b"\n" if body else b""


def _file(lines: list[bytes]) -> FileDiff:
    """Parse one file's diff: `diff --git`, extended headers, `---`, `+++`, hunks (git-diff(1))."""
    name, is_new = _name_of_header(lines[0]), False
    hunks: list[tuple[bytes, int, list[bytes]]] = []
    for line, inside in _in_hunks(lines[1:]):
        if inside:
            if line[:1] in _OLD:
                hunks[-1][2].append(line if line[:1] == b"\r" else line[1:])
        elif match := _HUNK.match(line):
            hunks.append((match[0], int(match[1]), []))
        elif line.startswith(b"new file mode"):
            is_new = True
        elif line.startswith(b"--- ") and not line.startswith(b"--- /dev/null"):
            # A name with spaces ends in a tab here, for the sake of GNU patch.
            name = _unquoted(line[4:].rstrip(b"\r\t"))[2:].decode(errors="surrogateescape")
    read = (Hunk(header=header, line=start, before=tuple(before)) for header, start, before in hunks)
    return FileDiff(name=name, is_new=is_new, hunks=tuple(read))


def _name_of_header(line: bytes) -> str:
    """Return the second name of `diff --git a/NAME b/NAME`, if both are the same or none is quoted.

    Names may hold spaces, and nothing separates them: as git does, take both for the same where the halves
    are (git's apply.c, `git_header_name`). With different names there are other headers to read.
    """
    rest = line[len(_DIFF) :].rstrip(b"\r")
    half = (len(rest) - 1) // 2
    before, prefix, name = rest.rpartition(b'"b/' if rest.endswith(b'"') else b" b/")
    if rest.endswith(b'"'):
        name = _unquoted(prefix + name)[2:]
    elif rest[:half][2:] == rest[half + 1 :][2:]:
        before, prefix, name = rest[:half], rest[half + 1 : half + 3], rest[half + 3 :]
    # Without prefixes (`diff.noprefix`) it would be a guess which files are meant.
    if not prefix.endswith(b"/") or not re.match(rb'"?[^/]/', before):
        raise UsageError(
            f"a patch names {rest.decode(errors='replace')} without the prefixes a/ and b/",
            tip="make it with git format-patch --src-prefix=a/ --dst-prefix=b/",
        )
    return name.decode(errors="surrogateescape")


def _unquoted(name: bytes) -> bytes:
    if not (name.startswith(b'"') and name.endswith(b'"')):
        return name

    def plain(match: re.Match[bytes]) -> bytes:
        text = match[1]
        return bytes([int(text, 8)]) if len(text) > 1 else _ESCAPES.get(text, text)

    return _QUOTED.sub(plain, name[1:-1])


Outcome = Literal["applied", "there already", "upstream has it", "waits for hipify"]

# As in the file: subjects keep their [brackets], lines their CR, and `-- >8 --` is text (git-am(1)). With the
# committer's date fixed too, the same patches on the same commit give the same ids.
_EXACT = ("--keep-non-patch", "--keep-cr", "--no-scissors", "--empty=keep", "--committer-date-is-author-date")
_SHOWN = 4  # reasons


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """The result of applying a patch; `commit` is the one that was made of it, or None."""

    patch: PatchFile
    outcome: Outcome
    commit: str | None = None


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """The commits that patches are applied to.

    Attributes:
        part: the repository they are for.
        head: the commit they go on top of.
        base: upstream's commit, or hipify's, below `commits`: what it has was not added here.
        commits: what has been added already.
    """

    part: CommittedPart
    head: str
    base: str
    commits: Sequence[LocalCommit]


def put(ground: Ground, patches: Sequence[PatchFile]) -> tuple[str, tuple[Put, ...]]:
    """Apply patches in a copy of a repository; the repository gets the commits, but HEAD does not move.

    Returns:
        The commit with all of them, and what became of each.

    Raises:
        SourceError: one does not apply.
    """
    repo = ground.part.repository
    present = _present(repo, ground.commits, patches)
    if all(patch.path in present for patch in patches):
        return ground.head, tuple(Put(patch=patch, outcome="there already") for patch in patches)
    start = CommittedPart(path="", repository=repo, commit=ground.head)
    with twin.copy((start,)) as (copied,):
        head, puts = put_on(copied.repository, ground, patches)
        twin.bring_back(start, copied.repository, head)
    return head, puts


def put_on(copied: Repository, ground: Ground, patches: Sequence[PatchFile]) -> tuple[str, tuple[Put, ...]]:
    """Like `put`, but in an existing copy, whose HEAD moves."""
    present = _present(ground.part.repository, ground.commits, patches)
    puts = tuple(
        Put(patch=patch, outcome="there already")
        if patch.path in present
        else _put_patch(copied, ground, patch)
        for patch in patches
    )
    return copied.run("rev-parse", "HEAD").strip(), puts


def not_of(
    repo: Repository, commits: Sequence[LocalCommit], patches: Sequence[PatchFile]
) -> tuple[LocalCommit, ...]:
    """Return the commits that none of the patches makes."""
    made = set(_present(repo, commits, patches).values())
    return tuple(commit for commit in commits if commit.id not in made)


def _present(
    repo: Repository, commits: Sequence[LocalCommit], patches: Sequence[PatchFile]
) -> Mapping[Path, str]:
    """Map patches to the commits that already make their change, without commits that were reverted."""
    by_digest: dict[str, str] = {}
    for commit in commits:
        if not commit.is_merge:
            by_digest.pop(local_commits.digest(repo, commit.id, reverse=True), None)
            by_digest[local_commits.digest(repo, commit.id)] = commit.id
    live = set(by_digest.values())
    files: dict[Path, str] = {}
    for patch in patches:
        commit_id = by_digest.get(local_commits.digest_of(patch.diff)) if patch.diff else None
        for commit in commits:
            # With other options git writes the same change as a different text, with a rename for instance.
            if commit_id is None and commit.identity == patch.identity and commit.id in live:
                commit_id = commit.id if _makes(repo, commit, patch) else None
        if commit_id is not None:
            files[patch.path] = commit_id
    return files


def _makes(repo: Repository, commit: LocalCommit, patch: PatchFile) -> bool:
    """Whether applying a patch to a commit's parent gives that commit's files."""
    parent = repo.commit_of(f"{commit.id}~1")
    if parent is None or not patch.diff:
        return not patch.diff
    with _index(repo, parent) as env:
        try:
            repo.run("apply", "--cached", "--whitespace=nowarn", "-", stdin=patch.diff, env=env)
        except SourceError:
            return False
        return repo.run("write-tree", env=env).strip() == repo.commit_tree(commit.id)


def _put_patch(copied: Repository, ground: Ground, patch: PatchFile) -> Put:
    before = copied.run("rev-parse", "HEAD").strip()
    try:
        copied.run("am", "--quiet", "--3way", *_EXACT, str(patch.path.absolute()))
    except SourceError as error:
        copied.run("reset", "--quiet", "--hard", before)
        if (copied.git_dir / "rebase-apply").is_dir():
            copied.run("am", "--quit")
        if not _has(copied, "HEAD", patch):
            raise _refused(copied, ground, patch, error) from error
    after = copied.run("rev-parse", "HEAD").strip()
    if after != before:
        return Put(patch=patch, outcome="applied", commit=after)
    # Git found nothing to do: the change is there. Whose is it?
    return Put(
        patch=patch, outcome="upstream has it" if _has(copied, ground.base, patch) else "there already"
    )


def _has(copied: Repository, commit: str, patch: PatchFile) -> bool:
    """Whether a commit's files already have the patch's change: it applies in reverse."""
    with _index(copied, commit) as env:
        try:
            copied.run("apply", "--cached", "--check", "--reverse", "-", stdin=patch.diff, env=env)
        except SourceError:
            return False
    return True


@contextlib.contextmanager
def _index(repo: Repository, commit: str) -> Iterator[dict[str, str]]:
    """Yield variables that make git use an index of a commit's files in place of the repository's own."""
    with tempfile.TemporaryDirectory(prefix="cairn-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        repo.run("read-tree", commit, env=env)
        yield env


def _refused(copied: Repository, ground: Ground, patch: PatchFile, error: SourceError) -> SourceError:
    where = f"submodule {ground.part.path}" if ground.part.path else "the root"
    rejected = _rejected(copied, patch)
    why = list(dict.fromkeys(reason for file in patch.files for reason in _reasons(copied, file, rejected)))
    more = f"; and {len(why) - _SHOWN} more" if len(why) > _SHOWN else ""
    reason = "; ".join(why[:_SHOWN]) + more if why else str(error)
    message = f"{patch.path.name} does not apply to {where}: {reason}"
    if old := next((c for c in ground.commits if c.identity == patch.identity), None):
        return SourceError(
            f"{message}; it was amended since {short_id(old.id)}, of the same author, date and subject",
            tip="nothing was changed; drop that commit (git rebase -i), or check out again and apply all",
        )
    if any("and the patch CRLF" in reason for reason in why):
        tip = f"convert the patch: sed -i 's/\\r$//' '{patch.path}'"
    elif any("has CRLF line endings" in reason for reason in why):
        tip = "make the patch again from that file, without core.autocrlf"
    else:
        tip = "nothing was changed; rebase the commits where they were made, and export them again"
    return SourceError(message, tip=tip)


def _rejected(copied: Repository, patch: PatchFile) -> dict[str, frozenset[bytes]]:
    """Return the headers of rejected hunks, by file: `git apply --reject` writes them to `FILE.rej`.

    The working tree, in which nothing is edited, is left as it was.
    """
    with contextlib.suppress(SourceError):  # it does not apply: that is why we are here
        copied.run("apply", "--reject", "--whitespace=nowarn", "-", stdin=patch.diff)
    names = copied.run("ls-files", "--others", "-z").split("\0")
    rejected: dict[str, frozenset[bytes]] = {}
    for name in (name for name in names if name.endswith(".rej")):
        lines = (copied.work_tree / name).read_bytes().split(b"\n")
        heads = (line[: line.index(b"@@", 2) + 2] for line in lines if line.startswith(b"@@ -"))
        rejected[name.removesuffix(".rej")] = frozenset(heads)
    copied.run("reset", "--quiet", "--hard")
    copied.run("clean", "--quiet", "-ffdx")
    return rejected


def _reasons(copied: Repository, file: FileDiff, rejected: Mapping[str, frozenset[bytes]]) -> Iterator[str]:
    path = copied.work_tree / file.name
    if file.is_new:
        if path.exists() or path.is_symlink():
            yield f"{file.name} exists already, and the patch creates it"
        return
    if not path.is_file():
        yield f"there is no {file.name}"
        return
    headers = rejected.get(file.name, frozenset())
    content = path.read_bytes().split(b"\n")
    for number, hunk in enumerate(file.hunks, 1):
        if hunk.header in headers:
            where = f"{file.name}, hunk {number} of {len(file.hunks)}, line {hunk.line}"
            yield _line_endings(file.name, hunk, content) or f"{where}: what it changes is not there"


def _line_endings(name: str, hunk: Hunk, content: list[bytes]) -> str | None:
    """Return a reason if a hunk would apply with the same line endings; else None."""
    expected = [line.removesuffix(b"\r") for line in hunk.before]
    plain = [line.removesuffix(b"\r") for line in content]
    size = len(expected)
    starts = (at for at, line in enumerate(plain) if size and line == expected[0])
    if not any(plain[at : at + size] == expected for at in starts):
        return None
    file, patch = ("LF", "CRLF") if any(line.endswith(b"\r") for line in hunk.before) else ("CRLF", "LF")
    return f"{name} has {file} line endings and the patch {patch} (line {hunk.line})"
