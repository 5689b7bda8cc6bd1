"""One bare local mirror per origin, shared by every checkout and every concurrent run, and its fetches.

A mirror holds objects and, for each commit that a checkout was ever made of, a ref
`refs/cairn/kept/<commit>`: checkouts borrow its objects (git's alternates), so `git gc` in it must never
drop them, even when the origin moved its branch away. Names are resolved at the origin each time, and
never stored: they move. What is fetched is what a name needs, not the origin's thousands of branches.

Shallow histories live in a mirror of their own, since a shallow commit would cut the history of every
other checkout at that point. Commits alone, without their files, are enough for a changelog and for what a
branch was at a date, and cheap: they too have a mirror of their own, where the whole one is not here.

Git cannot continue a transfer: what came before the connection was lost is thrown away. The first fetch of a
whole history is the one that is long enough to suffer. After a first failure it therefore goes on in pieces:
the newest state (`--depth=1`), then the history behind it (`--deepen`), some generations at a time, fewer
after each failure and more after each success. What a piece brought stays, for this run and for the next one.

`as_of` tells what a branch was at a moment. Walking back from where it is now along first parents, it is the
first commit whose committer date is not later than that moment. First parents only, since a merge brings in
commits that are older than the day they arrived; the committer date, since the author date may be older
still. That is right for a branch that only ever grew; what a rewritten branch was, only its host knows.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import files
from cairn.errors import NetworkError, SourceError
from cairn.output import Progress
from cairn.output.wording import short_id
from cairn.retry import RetryPolicy, retrying, wait_after
from cairn.sources.git import command, lock, repository, url

_KEPT = "refs/cairn/kept"
_PIECES = "refs/cairn/pieces"  # what has come so far: git offers only what a ref names
_PIECES_NOTE = "cairn-pieces"  # a file that says which refs the pieces are of
_GENERATIONS = 64  # of history, in the first piece
_ABBREVIATED = re.compile(r"[0-9a-f]{7,39}")
# What no ref may hold (git-check-ref-format(1)), the revision syntax that only `rev-parse` understands, and
# bytes that are not UTF-8 (PEP 383): a hashtag is written into JSON.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\ud800-\udfff~^:?*\[\\]|\.\.|@\{|^[-/+]|/$|\.lock$|^$")
_PULL_REQUEST = re.compile(r"^#(\d+)$")
# A line of FETCH_HEAD: `id<TAB>[not-for-merge]<TAB>branch 'name' of URL`, without `branch` for a commit or a
# pull request's ref (git's builtin/fetch.c, append_fetch_head).
_FETCHED = re.compile(r"^([0-9a-f]+)\t(?:not-for-merge)?\t(?:(?:(branch|tag) )?'(\S*)' of )?")
_LOCK_WAIT = 4 * 3600.0  # seconds; the other holder may be at the first fetch of a big repository


class ResolvedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that a hashtag resolves to at its origin.

    Attributes:
        commit: its full id.
        kind: whether the origin calls it a `branch`, a `tag` or neither (a commit, a pull request's ref).
        name: its name without `refs/heads/` or `refs/tags/`; empty for a commit.
        target: what the ref points at: the tag object for an annotated tag, else the commit.
        other: the ref that has the same name and was not taken; None where there is none.
    """

    commit: str
    target: str
    kind: str = ""
    name: str = ""
    other: str | None = None


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """The local copy of one origin.

    Attributes:
        origin: its URL, credentials included, or absolute path.
        path: the bare repository; made by `find`.
        depth: commits of history wanted; None for all of it.
        only: git's filter of what is wanted, such as `tree:0` for commits alone (git-rev-list(1), --filter).
        retry: how often a network fault is tried again.
    """

    origin: str
    path: Path
    depth: int | None = None
    only: str | None = None
    retry: RetryPolicy = msgspec.field(default_factory=RetryPolicy)

    def find(self, hashtag: str, *, say: Progress) -> ResolvedCommit:
        """Resolve `hashtag` and fetch it into the mirror, unless it is a commit that the mirror has.

        Raises:
            SourceError: the origin has no such hashtag, or there is no origin.
            NetworkError: it could not be reached.
        """
        hashtag = _PULL_REQUEST.sub(r"refs/pull/\1/head", hashtag.strip())
        if _FORBIDDEN.search(hashtag):
            raise SourceError(
                f"{hashtag!r} is not a valid repo hashtag", tip="give a branch, a tag or a commit"
            )
        with self._held():
            if command.COMMIT_ID.fullmatch(hashtag) and (cached := self._cached(hashtag)) is not None:
                return cached
            say(f"fetching {hashtag} of {url.without_credentials(self.origin)}")
            return self._fetched(hashtag, say)

    def _fetched(self, hashtag: str, say: Progress) -> ResolvedCommit:
        try:
            fetch(self, hashtag, say=say)
        except command.UnknownRefError as error:
            # A server may refuse commits by id (git-config(1), uploadpack.allowReachableSHA1InWant), and none
            # knows an abbreviated one: look through all history.
            if not (command.COMMIT_ID.fullmatch(hashtag) or _ABBREVIATED.fullmatch(hashtag)):
                raise self._unknown(hashtag) from error
            return self._found_in_everything(hashtag, say)
        match = _FETCHED.match((self.path / "FETCH_HEAD").read_text(encoding="utf-8"))
        if match is None:
            # From a shallow origin git takes nothing, and reports nothing (`--update-shallow` is off).
            raise SourceError(
                f"{url.without_credentials(self.origin)} does not have the whole history of {hashtag}",
                tip="pass --depth 1, or complete the origin with `git fetch --unshallow`",
            )
        target, kind = match[1], match[2] or ""
        # A branch is at a commit, and the ref was made when all of it was here.
        is_kept = kind == "branch" and self._commit_of_ref(target) == target
        commit = ResolvedCommit(commit=target, target=target) if is_kept else self._keep(target)
        commit = structs.replace(commit, kind=kind, name=match[3] or "")
        # Of a tag and a branch with the same name, git fetches the tag (gitrevisions(7) has the order).
        if commit.kind == "tag" and commit.name == hashtag and self._has_branch(hashtag, say):
            return structs.replace(commit, other=f"refs/heads/{hashtag}")
        return commit

    def _found_in_everything(self, hashtag: str, say: Progress) -> ResolvedCommit:
        say(f"looking for {hashtag} in every branch")
        with contextlib.suppress(command.UnknownRefError):
            fetch(self, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", say=say)
        commit = self._commits_of(hashtag)[0]
        if commit is None and self.depth is not None:
            raise SourceError(
                f"{hashtag!r} was not found among the commits of {url.without_credentials(self.origin)} that "
                f"are fetched by --depth {self.depth}, and the server gives none below them by this id",
                tip="look through the whole history: run the same command without --depth",
            )
        if commit is None:
            raise self._unknown(hashtag)
        return self._keep(commit)

    def _keep(self, target: str) -> ResolvedCommit:
        repo = repository.bare(self.path)
        try:
            repository.move_refs(repo, {f"{_KEPT}/{target}": f"{target}^{{commit}}"})
        except SourceError as error:
            if self._commits_of(target)[0] is not None:
                raise
            origin = url.without_credentials(self.origin)
            raise SourceError(f"{target} of {origin} is not a commit") from error
        commit = self._commit_of_ref(target) or target
        if commit != target:  # of an annotated tag, which is an object of its own
            repository.move_refs(repo, {f"{_KEPT}/{name}": name for name in (target, commit)})
        return ResolvedCommit(commit=commit, target=target)

    def _commit_of_ref(self, target: str) -> str | None:
        """Return what our ref for a commit or tag says; None without one, or where git has packed it."""
        try:
            return (self.path / _KEPT / target).read_text(encoding="ascii").strip()
        except OSError:
            return None

    def _cached(self, target: str) -> ResolvedCommit | None:
        """Resolve a commit or tag that the mirror has in full; None if it must be fetched.

        An object may be here without the objects it names: after a killed fetch, or after a fetch of its
        child with a filter. Only a ref of ours, or a walk through everything, proves that it is whole.
        """
        if self.depth not in (None, 1) or not _is_in_use(self.path):
            return None  # the history here may be shorter than the one asked for
        of_ref, commit = self._commits_of(f"{_KEPT}/{target}", target)
        if of_ref is not None:
            return ResolvedCommit(commit=of_ref, target=target)
        if self.depth is not None or self.only is not None or _is_shallow(self.path):
            return None
        everything = ("rev-list", "--objects", "--quiet", target, "--not", f"--glob={_KEPT}/*")
        if commit is None or not command.succeeds(self.path, *everything):
            return None
        return self._keep(target)

    def _commits_of(self, *names: str) -> tuple[str | None, ...]:
        return repository.bare(self.path).resolve(*(f"{name}^{{commit}}" for name in names))

    def _unknown(self, hashtag: str) -> SourceError:
        origin = url.without_credentials(self.origin)
        tip = _similar(hashtag, self._names())
        return SourceError(f"{origin} has no branch, tag or commit {hashtag!r}", tip=tip)

    def _has_branch(self, name: str, say: Progress) -> bool:
        ref = f"refs/heads/{name}"
        refs = retrying(lambda: self._ask("--heads", "origin", ref), retry=self.retry, say=say)
        return any(line.partition("\t")[2] == ref for line in refs.splitlines())

    def _ask(self, *words: str) -> str:
        return command.run(
            self.path, "ls-remote", *words, config={"remote.origin.url": self.origin}, online=True
        )

    def _names(self) -> list[str]:
        rows = self._ask("--heads", "--tags", "--refs", "origin")
        refs = (line.partition("\t")[2] for line in rows.splitlines())
        return [ref.split("/", 2)[2] for ref in refs if ref.count("/") > 1]

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        path = self.path.with_name(f"{self.path.name}.lock")
        with files.locked(path, timeout=_LOCK_WAIT):
            if not (self.path / "HEAD").exists():
                with files.folder_beside(self.path) as part:
                    repository.create_bare(part)
            with lock.busy(self.path):
                yield


def of(origin: str, *, depth: int | None = None, retry: RetryPolicy | None = None) -> Mirror:
    """Return the mirror of an origin, in the cache folder.

    A depth makes the first fetch of an origin small. Where the whole history is here already, that is used.
    """
    whole = _whole(origin, retry)
    if depth is None or _is_in_use(whole.path):
        return whole
    return structs.replace(whole, path=whole.path.with_suffix(".shallow.git"), depth=depth)


def of_commits(origin: str, *, retry: RetryPolicy | None = None) -> Mirror:
    """Return a mirror with an origin's whole history, possibly of commits alone, without files."""
    whole = _whole(origin, retry)
    if _is_in_use(whole.path):
        return whole
    return structs.replace(whole, path=whole.path.with_suffix(".commits.git"), only="tree:0")


def _whole(origin: str, retry: RetryPolicy | None) -> Mirror:
    origin = url.absolute(origin)
    path = files.cache_dir() / "mirrors" / f"{url.slug(origin)}.git"
    return Mirror(origin=origin, path=path, retry=retry or RetryPolicy())


def _is_in_use(path: Path) -> bool:
    """Whether a fetch was ever completed, decided without running git, which takes longer."""
    packed = path / "packed-refs"
    return (path / _KEPT).is_dir() or (packed.exists() and _KEPT.encode() in packed.read_bytes())


def _similar(hashtag: str, names: list[str]) -> str | None:
    """Return a hint with the refs of the origin that resemble an unknown hashtag."""
    if close := difflib.get_close_matches(hashtag, names, n=4, cutoff=0.5):
        return f"it has {', '.join(dict.fromkeys(close))}"
    if names:
        return f"it has {len(names)} branches and tags, among them {', '.join(names[:4])}"
    return None


def fetch(source: Mirror, *refs: str, say: Progress) -> None:
    """Fetch refs or commits into the mirror's repository, which exists; `FETCH_HEAD` there names them.

    Raises:
        UnknownRefError: the origin has no such ref or commit.
        SourceError: there is no origin, or we may not read it.
        NetworkError: the network failed more often in a row than `retry` allows, without bringing anything.
    """
    whole = source.depth is None and source.only is None
    try:
        if whole and (_is_shallow(source.path) or not _is_in_use(source.path)):
            _fetch_in_pieces(source, refs, say)
        else:
            retrying(lambda: _fetch_once(source, refs), retry=source.retry, say=say)
    except command.UnreachableError as error:
        origin = url.without_credentials(source.origin)
        raise SourceError(f"cannot read the origin {origin}: {error}", tip=error.tip) from error


def _is_shallow(path: Path) -> bool:
    """Whether the mirror is shallow; for a whole history, this is the trace of an unfinished run."""
    return (path / "shallow").exists()


def _fetch_once(source: Mirror, refs: tuple[str, ...], *extra: str) -> None:
    options = ["--quiet", "--no-tags", "--no-recurse-submodules", "--force", *extra]
    if source.depth is not None:
        options.append(f"--depth={source.depth}")
    if source.only is not None:
        options.append(f"--filter={source.only}")
    settings = {"remote.origin.url": source.origin}
    command.run(source.path, "fetch", *options, "origin", *refs, config=settings, online=True)


def _fetch_in_pieces(source: Mirror, refs: tuple[str, ...], say: Progress) -> None:
    """Fetch everything at once if the network allows, else piece by piece; see the module's docstring."""
    _drop_pieces_of_others(source.path, refs)
    generations = _GENERATIONS if _is_shallow(source.path) else None  # None: everything at once
    failures = 0  # in a row
    while True:
        try:
            _fetch_piece(source, refs, generations)
        except NetworkError as error:
            failures += 1
            if failures >= source.retry.attempts:
                raise
            wait_after(error, failures, retry=source.retry, say=say)
            generations = max(1, generations // 8) if generations else _GENERATIONS
        else:
            if not _is_shallow(source.path):
                break
            failures, generations = 0, 2 * (generations or _GENERATIONS)
    if generations is not None:
        _delete_refs(source.path, _PIECES)
        (source.path / _PIECES_NOTE).unlink(missing_ok=True)


def _fetch_piece(source: Mirror, refs: tuple[str, ...], generations: int | None) -> None:
    """Fetch this many more generations, or the newest one at first; None fetches everything at once."""
    if generations is None:
        _fetch_once(source, refs)
        return
    refspecs = tuple(ref if ":" in ref else f"+{ref}:{_PIECES}/{n}" for n, ref in enumerate(refs))
    if not _is_shallow(source.path):
        files.write_text(source.path / _PIECES_NOTE, "\n".join(refs))
        _fetch_once(source, refspecs, "--depth=1")
        return
    before = (source.path / "shallow").read_bytes()
    _fetch_once(source, refspecs, f"--deepen={generations}")
    # Deepening again what it did not change would never end: take all the rest at once.
    if _is_shallow(source.path) and (source.path / "shallow").read_bytes() == before:
        _fetch_once(source, refspecs, "--unshallow")


def _drop_pieces_of_others(path: Path, refs: tuple[str, ...]) -> None:
    """Forget what an unfinished run fetched of other refs: deepening it would not reach these refs."""
    lines = "\n".join(refs)
    note = path / _PIECES_NOTE
    if _is_shallow(path) and (not note.exists() or note.read_text(encoding="utf-8") != lines):
        _delete_refs(path)  # first: a ref without the history behind it would be taken for a whole one
        (path / "shallow").unlink()


def _delete_refs(path: Path, *below: str) -> None:
    refs = command.run(path, "for-each-ref", "--format=delete %(refname)", *below)
    command.run(path, "update-ref", "--stdin", stdin=refs.encode())


def as_of(source: Mirror, hashtag: str, when: datetime, *, say: Progress) -> str:
    """Return the commit that a branch was at a moment; a tag or a commit is returned unchanged.

    Args:
        source: a mirror with the whole history, if only of commits.
        hashtag: a branch, tag or commit of its origin.
        when: the moment.
        say: progress callback.

    Raises:
        SourceError: the origin has no such hashtag, or the branch has no commit that old.
        NetworkError: it could not be reached.
    """
    tip = source.find(hashtag, say=say)
    if tip.kind == "tag" or (not tip.kind and tip.commit.startswith(hashtag)):
        return hashtag
    walk = ("--first-parent", f"--min-age={int(when.timestamp())}", "--max-count=1")
    commit = command.line(source.path, "rev-list", *walk, tip.commit)
    if not commit:
        raise SourceError(
            f"{hashtag} of {url.without_credentials(source.origin)} has no commit as old as {when}",
            tip="name a later --as-of, or the branch that was used then",
        )
    say(f"{hashtag} was {short_id(commit)} as of {when.isoformat()}")
    return commit
