"""One bare local mirror per origin, shared by every checkout and every concurrent run.

A mirror holds objects and, for each commit that a checkout was ever made of, a ref
`refs/cairn/kept/<commit>`: checkouts borrow its objects (git's alternates), so `git gc` in it must never
drop them, even when the origin moved its branch away. Names are resolved at the origin each time, and
never stored: they move. What is fetched is what a name needs, not the origin's thousands of branches.

Shallow histories live in a mirror of their own, since a shallow commit would cut the history of every
other checkout at that point. Commits alone, without their files, are enough for a changelog and for what a
branch was at a date, and cheap: they too have a mirror of their own, where the whole one is not here.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from cairn import files
from cairn.errors import SourceError
from cairn.sources.git import command, repository, url
from cairn.sources.mirror import fetch

Say = Callable[[str], None]

_KEPT = "refs/cairn/kept"
_ABBREVIATED = re.compile(r"[0-9a-f]{7,39}")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|^[-/+]|/$|\.lock$|^$")
_PULL_REQUEST = re.compile(r"^#(\d+)$")
_FETCHED = re.compile(r"^([0-9a-f]+)\t(?:not-for-merge)?\t(?:(?:(branch|tag) )?'([^']*)' of )?")
_LOCK_WAIT = 4 * 3600.0  # seconds; the other holder may be at the first fetch of a big repository


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a hashtag is at its origin now.

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


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """The local copy of one origin.

    Attributes:
        origin: its URL, credentials included, or absolute path.
        path: the bare repository; made by the first fetch.
        depth: commits of history wanted; None for all of it.
        only: git's filter of what is wanted; None for everything.
        retry: with network faults.
    """

    origin: str
    path: Path
    depth: int | None = None
    only: str | None = None
    retry: command.RetryPolicy = field(default_factory=command.RetryPolicy)

    def find(self, hashtag: str, *, say: Say) -> Found:
        """Bring what `hashtag` names into the mirror, from the origin unless it is a commit we have.

        Raises:
            SourceError: the origin has no such hashtag, or there is no origin.
            NetworkError: it could not be reached.
        """
        hashtag = _PULL_REQUEST.sub(r"refs/pull/\1/head", hashtag.strip())
        if _FORBIDDEN.search(hashtag):
            raise SourceError(f"{hashtag!r} is no repo hashtag", tip="give a branch, a tag or a commit")
        with self._held():
            if command.COMMIT_ID.fullmatch(hashtag) and (known := self._known(hashtag)) is not None:
                return known
            say(f"fetching {hashtag} of {url.without_credentials(self.origin)}")
            return self._fetched(hashtag, say)

    def _fetched(self, hashtag: str, say: Say) -> Found:
        try:
            self._fetch(say, hashtag)
        except command.UnknownRefError as error:
            # A server may refuse commits by id, and none knows an abbreviated one: look through all history.
            if not (command.COMMIT_ID.fullmatch(hashtag) or _ABBREVIATED.fullmatch(hashtag)):
                raise self._unknown(hashtag) from error
            return self._found_in_everything(hashtag, say)
        match = _FETCHED.match((self.path / "FETCH_HEAD").read_text(encoding="utf-8"))
        if match is None:
            # Git takes nothing, and says nothing, where the origin has a part of the history only.
            raise SourceError(
                f"{url.without_credentials(self.origin)} does not have the whole history of {hashtag}",
                tip="pass --depth 1, or complete the origin with `git fetch --unshallow`",
            )
        found = replace(self._kept(match[1]), kind=match[2] or "", name=match[3] or "")
        # Of a tag and a branch of one name, git fetches the tag (gitrevisions(7) has the order).
        if found.kind == "tag" and found.name == hashtag and self._has_branch(hashtag, say):
            return replace(found, other=f"refs/heads/{hashtag}")
        return found

    def _found_in_everything(self, hashtag: str, say: Say) -> Found:
        say(f"looking for {hashtag} in every branch")
        with contextlib.suppress(command.UnknownRefError):
            self._fetch(say, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        commit = self._commit_of(hashtag)
        if commit is None:
            raise self._unknown(hashtag)
        return self._kept(commit)

    def _fetch(self, say: Say, *refs: str) -> None:
        source = fetch.Source(
            origin=self.origin,
            path=self.path,
            depth=self.depth,
            only=self.only,
            retry=self.retry,
            say=say,
        )
        fetch.fetch(source, *refs)

    def _kept(self, target: str) -> Found:
        commit = self._commit_of(target)
        if commit is None:
            raise SourceError(f"{target} of {url.without_credentials(self.origin)} is not a commit")
        lines = [f"update {_KEPT}/{name} {name}\n" for name in dict.fromkeys((target, commit))]
        command.run(self.path, "update-ref", "--stdin", stdin="".join(lines).encode())
        return Found(commit=commit, target=target)

    def _known(self, target: str) -> Found | None:
        """A commit or tag that is here with everything it needs; alone, it may be of a killed fetch."""
        if self.depth not in (None, 1):
            return None  # the history here may be shorter than the one asked for
        if kept := self._commit_of(f"{_KEPT}/{target}"):
            return Found(commit=kept, target=target)
        if self.depth is not None or self.only is not None or fetch.is_unfinished(self.path):
            return None
        everything = ("rev-list", "--objects", "--quiet", target, "--not", f"--glob={_KEPT}/*")
        if self._commit_of(target) is None or not command.succeeds(self.path, *everything):
            return None
        return self._kept(target)

    def _commit_of(self, name: str) -> str | None:
        try:
            return command.line(self.path, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        except SourceError:
            return None

    def _unknown(self, hashtag: str) -> SourceError:
        origin = url.without_credentials(self.origin)
        tip = _similar(hashtag, self._names())
        return SourceError(f"{origin} has no branch, tag or commit {hashtag!r}", tip=tip)

    def _has_branch(self, name: str, say: Say) -> bool:
        ref = f"refs/heads/{name}"
        listed = command.retrying(lambda: self._ask("--heads", "origin", ref), retry=self.retry, say=say)
        return any(line.partition("\t")[2] == ref for line in listed.splitlines())

    def _ask(self, *words: str) -> str:
        return command.run(
            self.path, "ls-remote", *words, config={"remote.origin.url": self.origin}, online=True
        )

    def _names(self) -> list[str]:
        listed = self._ask("--heads", "--tags", "--refs", "origin")
        refs = (line.partition("\t")[2] for line in listed.splitlines())
        return [ref.split("/", 2)[2] for ref in refs if ref.count("/") > 1]

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        lock = self.path.with_name(f"{self.path.name}.lock")
        with files.locked(lock, timeout=_LOCK_WAIT):
            if not (self.path / "HEAD").exists():
                with files.folder_beside(self.path) as part:
                    command.run(part, "init", "--quiet", "--bare", ".")
            with repository.busy(self.path):
                yield


def of(origin: str, *, depth: int | None = None, retry: command.RetryPolicy | None = None) -> Mirror:
    """The mirror of an origin, in the cache folder.

    A depth makes the first fetch of an origin small. Where the whole history is here already, that is used.
    """
    whole = _whole(origin, retry)
    if depth is None or _is_in_use(whole.path):
        return whole
    return replace(whole, path=whole.path.with_suffix(".shallow.git"), depth=depth)


def of_commits(origin: str, *, retry: command.RetryPolicy | None = None) -> Mirror:
    """The whole history of an origin, perhaps without files: of its commits only what they say is there."""
    whole = _whole(origin, retry)
    if _is_in_use(whole.path):
        return whole
    return replace(whole, path=whole.path.with_suffix(".commits.git"), only="tree:0")


def _whole(origin: str, retry: command.RetryPolicy | None) -> Mirror:
    origin = url.absolute(origin)
    path = files.cache_dir() / "mirrors" / f"{url.slug(origin)}.git"
    return Mirror(origin=origin, path=path, retry=retry or command.RetryPolicy())


def _is_in_use(path: Path) -> bool:
    """Whether anything was ever found in a mirror; without asking git, which takes longer."""
    packed = path / "packed-refs"
    return (path / _KEPT).is_dir() or (packed.exists() and _KEPT in packed.read_text(encoding="utf-8"))


def _similar(hashtag: str, names: list[str]) -> str | None:
    """What the origin has instead, for somebody who mistyped."""
    if close := difflib.get_close_matches(hashtag, names, n=4, cutoff=0.5):
        return f"it has {', '.join(dict.fromkeys(close))}"
    if names:
        return f"it has {len(names)} branches and tags, among them {', '.join(names[:4])}"
    return None
