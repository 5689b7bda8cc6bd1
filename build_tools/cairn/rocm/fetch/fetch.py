"""From the archives of a run to a tree of artifacts; what is in place already is not fetched again."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cairn import datafile, files
from cairn.concurrency import side_by_side
from cairn.errors import UsageError
from cairn.rocm.fetch import choose, download, unpack
from cairn.rocm.fetch.choose import Artifact, Wanted
from cairn.store.protocol import Store
from cairn.store.transfer import Count, OnProgress

NOTES = ".fetched"
"""Folder with what is known of each artifact that was fetched, and with what of archives has arrived."""

Layout = Literal["extract", "flatten", "archives"]
"""A folder per artifact; all in one tree; or the archives as they are."""


class FetchedNote(datafile.Value, tag_field="schema", tag="cairn.fetched/1"):
    """What is noted of an artifact once all of it is in place.

    Attributes:
        key: of its archive.
        sha256: of its archive; empty while it is put there.
        layout: how it was put there.
        place: the store that it came from.
    """

    key: str
    sha256: str
    layout: Layout
    place: str


@dataclass(frozen=True, kw_only=True)
class FetchRequest:
    """What to fetch, and how.

    Attributes:
        wanted: which artifacts.
        output_dir: where they go.
        layout: in which form.
        keep_archives: leave the archives beside what was unpacked.
        verified_only: refuse an archive without a sha256 beside it.
        jobs: downloads at once.
        unpack_jobs: archives that are unpacked at once.
    """

    wanted: Wanted
    output_dir: Path
    layout: Layout = "extract"
    keep_archives: bool = False
    verified_only: bool = True
    jobs: int = 10
    unpack_jobs: int = 4


@dataclass(frozen=True, kw_only=True)
class FetchedArtifact:
    """One artifact that was, or would be, fetched.

    Attributes:
        artifact: its archive.
        sha256: of the archive; None where nothing beside it says, and it was not fetched.
        path: the folder or the archive that it became.
        already: it was in place, from the same archive.
    """

    artifact: Artifact
    sha256: str | None
    path: Path
    already: bool


def fetch(
    store: Store, request: FetchRequest, *, dry_run: bool = False, on_progress: OnProgress = lambda _: None
) -> tuple[FetchedArtifact, ...]:
    """Fetch artifacts of a run. Run again after it was interrupted, it goes on where it ended.

    Args:
        store: where the run's artifacts are.
        request: which, and where to.
        dry_run: find out what would be fetched, and change nothing.
        on_progress: called from time to time.

    Raises:
        UsageError: there is nothing of what is wanted.
        StoreError: an archive is not what the sha256 beside it says.
        UnsafeArchiveError: an archive is malformed, or would write outside of its folder.
    """
    chosen = choose.choose(choose.listed(store), request.wanted, where=store.url)
    digests = dict(
        zip(chosen, side_by_side(lambda a: download.expected_sha256(store, a), chosen), strict=True)
    )
    if request.verified_only:
        missing = [artifact.key for artifact, digest in digests.items() if digest is None]
        download.refuse_unverified(missing, where=store.url)
    fetcher = _Fetcher(store, request, on_progress)
    in_place = {a: fetcher.is_in_place(a, digests[a]) for a in chosen}
    if not dry_run:
        with _alone(request.output_dir):
            digests |= fetcher.fetch([a for a in chosen if not in_place[a]], digests)
    return tuple(
        FetchedArtifact(
            artifact=artifact,
            sha256=digests[artifact],
            path=fetcher.path(artifact),
            already=in_place[artifact],
        )
        for artifact in chosen
    )


class _Fetcher:
    """Brings archives of one store into one folder."""

    def __init__(self, store: Store, request: FetchRequest, on_progress: OnProgress) -> None:
        self._store, self._request, self._on_progress = store, request, on_progress
        self._notes = request.output_dir / NOTES
        self._tree = threading.Lock()  # artifacts share the folders of one tree
        self._unpacking = threading.Semaphore(request.unpack_jobs)

    def path(self, artifact: Artifact) -> Path:
        """What an artifact becomes."""
        folder = self._request.output_dir
        if self._request.layout == "archives":
            return folder / artifact.key
        return folder if self._request.layout == "flatten" else folder / artifact.name

    def is_in_place(self, artifact: Artifact, sha256: str | None) -> bool:
        """Whether an earlier run has put it there, from an archive of the same bytes."""
        if sha256 is None or not self.path(artifact).exists():
            return False
        try:
            note = datafile.read(self._note(artifact), FetchedNote)
        except UsageError:
            return False
        return (note.sha256, note.layout) == (sha256, self._request.layout)

    def fetch(self, artifacts: list[Artifact], digests: dict[Artifact, str | None]) -> dict[Artifact, str]:
        """Fetch and unpack; the sha256 of each archive."""
        for artifact in artifacts:
            self._refuse_foreign(artifact)
        # What a run that was killed left, but for the archives, with which this one goes on.
        for leftover in self._notes.glob("unpacking.*"):
            shutil.rmtree(leftover)
        for leftover in filter(files.is_part, self._notes.glob(".*")):
            leftover.unlink()
        count = Count({artifact.key: artifact.size for artifact in artifacts}, self._on_progress)

        def one(artifact: Artifact) -> str:
            archive = self._notes / "archives" / artifact.key
            archive.parent.mkdir(parents=True, exist_ok=True)
            sha256 = download.download(
                self._store, artifact, archive, sha256=digests[artifact], on_bytes=count.bytes
            )
            with self._unpacking:
                self._put_in_place(artifact, archive)
            note = FetchedNote(
                key=artifact.key, sha256=sha256, layout=self._request.layout, place=self._store.url
            )
            datafile.write(self._note(artifact), note)
            count.file()
            return sha256

        results = side_by_side(one, artifacts, jobs=self._request.jobs)
        with contextlib.suppress(OSError):  # archives stay there that this run did not ask for
            (self._notes / "archives").rmdir()
        return dict(zip(artifacts, results, strict=True))

    def _put_in_place(self, artifact: Artifact, archive: Path) -> None:
        # What is there does not count from now on, but is ours: this may be killed at any moment.
        begun = FetchedNote(key=artifact.key, sha256="", layout=self._request.layout, place=self._store.url)
        datafile.write(self._note(artifact), begun)
        if self._request.layout != "archives":
            new = self._notes / f"unpacking.{secrets.token_hex(4)}"
            try:
                unpack.unpack(archive, new)
                self._move(artifact, new)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        if self._request.layout == "archives" or self._request.keep_archives:
            archive.replace(self._request.output_dir / artifact.key)
        else:
            archive.unlink()

    def _refuse_foreign(self, artifact: Artifact) -> None:
        """Refuse to put an artifact in the place of what no run has put there."""
        place = self.path(artifact)
        if self._request.layout != "extract" or not os.path.lexists(place):
            return
        is_folder = place.is_dir() and not place.is_symlink()
        if not is_folder or (any(place.iterdir()) and not self._note(artifact).exists()):
            raise UsageError(
                f"{place} is in the way of an artifact", tip="move it, or name a different --output-dir"
            )

    def _move(self, artifact: Artifact, new: Path) -> None:
        place = self.path(artifact)
        if self._request.layout == "flatten":
            with self._tree:
                unpack.move_into(new, place)
            return
        if place.exists():
            place.replace(new.with_name(f"{new.name}.old"))
            shutil.rmtree(new.with_name(f"{new.name}.old"))
        new.replace(place)

    def _note(self, artifact: Artifact) -> Path:
        return self._notes / f"{artifact.name}.json"


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with files.locked(folder / NOTES / "fetch.lock", timeout=4 * 3600):
        yield
