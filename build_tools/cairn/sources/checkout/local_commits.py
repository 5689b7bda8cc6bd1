"""The user's commits on top of a checkout, and digests that identify equal patches."""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path

import msgspec

from cairn.sources.git.repository import HIPIFY_SUBJECT, HIPIFY_TAG, UPSTREAM_TAG, Repository

_HUNK = re.compile(rb"^@@ -\S+ \+\S+ @@.*$", re.MULTILINE)
_INDEX = re.compile(rb"^index [0-9a-f]+\.\.[0-9a-f]+(?= |$)", re.MULTILINE)
_FORMAT = "%H%x00%P%x00%an%x00%ae%x00%at%x00%s"


class LocalCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit above a diff base.

    Attributes:
        id: of the commit.
        subject: first line of its message.
        author: name.
        email: of the author.
        written: when, in seconds since 1970.
        is_merge: it has several parents, so it is not a patch.
    """

    id: str
    subject: str
    author: str
    email: str
    written: int
    is_merge: bool

    @property
    def identity(self) -> tuple[str, str, int, str]:
        """The same fields as `cairn.sources.patches.patch_files.Identity`."""
        return (self.author, self.email, self.written, self.subject)


def above(repository: Repository, base: str) -> tuple[LocalCommit, ...]:
    """Return the commits in `base..HEAD`, oldest first."""
    return between(repository, base, "HEAD")


def between(repository: Repository, base: str, tip: str) -> tuple[LocalCommit, ...]:
    """Return the commits in `base..tip`, oldest first."""
    log = repository.run("log", "-z", "--topo-order", "--reverse", f"--format={_FORMAT}", f"{base}..{tip}")
    fields = log.split("\0")
    return tuple(_commit(*fields[at : at + 6]) for at in range(0, len(fields) - 5, 6))


def digest(repository: Repository, commit: str, *, reverse: bool = False) -> str:
    """Return a sha256 of a commit's change, wherever it applies: the added, removed and context lines.

    Without line numbers and the ids of the files, but with white space: in Python it is code.
    (`git patch-id` drops it.) With `reverse`, of what a commit would change that takes this one back.
    """
    options = ("--patch", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv")
    exact = ("--root", "--no-commit-id", "--diff-algorithm=myers", "--unified=3")
    with tempfile.TemporaryDirectory(prefix="cairn-patch-") as folder:
        # Through a file, as bytes: sources need not be UTF-8.
        path = Path(folder, "diff")
        turned = ("-R", "--src-prefix=b/", "--dst-prefix=a/") if reverse else ()
        repository.run("diff-tree", "-r", *turned, *options, *exact, f"--output={path}", commit)
        return digest_of(path.read_bytes())


def digest_of(diff: bytes) -> str:
    """Like `digest`, but for the text of a diff; a diff made with other options may give another digest."""
    return hashlib.sha256(_INDEX.sub(b"index", _HUNK.sub(b"@@", diff))).hexdigest()


def beneath(repository: Repository) -> tuple[LocalCommit, ...]:
    """Return the commits between the two tags, oldest first, without hipify's: the patches it was run on."""
    base = hipified_from(repository)
    return between(repository, UPSTREAM_TAG, base) if base and repository.tag(UPSTREAM_TAG) else ()


def hipified_from(repository: Repository) -> str | None:
    """Return the commit that hipify was run on: below its own, or at its tag if it changed nothing.

    None without the tag. Where the tag was moved above hipify's commit, it is upstream's: what is between
    is then no patch for upstream's files.
    """
    upstream, tagged = repository.tags(UPSTREAM_TAG, HIPIFY_TAG)
    if tagged is None or upstream is None or tagged == upstream:
        return tagged
    if not repository.succeeds("merge-base", "--is-ancestor", upstream, tagged):
        return upstream
    commits = between(repository, upstream, tagged)
    hipifys = [commit.id for commit in commits if commit.subject == HIPIFY_SUBJECT]
    if not hipifys:
        return tagged
    return repository.commit_of(f"{tagged}~1") if hipifys == [tagged] else upstream


def _commit(commit: str, parents: str, author: str, email: str, written: str, subject: str) -> LocalCommit:
    return LocalCommit(
        id=commit,
        subject=subject,
        author=author,
        email=email,
        written=int(written),
        is_merge=" " in parents,
    )
