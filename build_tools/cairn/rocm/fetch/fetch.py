"""Downloading a run's archives into a tree of artifacts; artifacts already in place are not fetched again.

Each archive is checked by the sha256 beside it, and goes on where an earlier try ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from stat import S_ISDIR
from typing import Literal, TypeAlias, cast

import msgspec

from cairn import datafile, files
from cairn.concurrency import go_on, side_by_side
from cairn.errors import StoreError, UsageError
from cairn.rocm.fetch import choose, unpack
from cairn.rocm.fetch.choose import Artifact, ArtifactFilters
from cairn.rocm.fetch.releases import TarballFolder
from cairn.store.protocol import MissingKeyError, OnBytes, Store
from cairn.store.transfer import Count, OnProgress

JOBS = 10
"""Downloads at once."""

_BLOCK = 1 << 20
_LOCK_WAIT = 4 * 3600.0  # seconds
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")

NOTES = ".fetched"
"""Folder with what is known of each artifact that was fetched, and with what of archives has arrived."""

Source: TypeAlias = "Store | TarballFolder"
"""Where archives are read from."""
Layout = Literal["extract", "flatten", "archives"]
"""A folder per artifact; all in one tree; or the archives as they are."""


class FetchedNote(datafile.Value, tag_field="schema", tag="cairn.fetched/1"):
    """The note written about an artifact once all of it is in place.

    Attributes:
        key: of its archive.
        sha256: of its archive; empty while it is put there.
        layout: how it was put there.
        place: the store that it came from.
        files: sizes of the files that are there now, by path; of a link, its own.
    """

    key: str
    sha256: str
    layout: Layout
    place: str
    files: Mapping[str, int]


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to fetch, and how.

    Attributes:
        filters: which artifacts.
        output_dir: where they go.
        layout: in which form.
        keep_archives: leave the archives beside what was unpacked.
        verified_only: refuse an archive without a sha256 beside it.
        jobs: downloads at once.
        unpack_jobs: archives that are unpacked at once.
    """

    filters: ArtifactFilters
    output_dir: Path
    layout: Layout = "extract"
    keep_archives: bool = False
    verified_only: bool = True
    jobs: int = JOBS
    unpack_jobs: int = 4


class FetchedArtifact(msgspec.Struct, frozen=True, kw_only=True):
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
    store: Source,
    request: FetchRequest,
    *,
    artifacts: tuple[Artifact, ...] | None = None,
    dry_run: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> tuple[FetchedArtifact, ...]:
    """Fetch artifacts of a run, or the tarball of a release; run again, it goes on where it ended.

    Args:
        store: where they are.
        request: which, and where to.
        artifacts: what was chosen already; None for what the request chooses of the store.
        dry_run: find out what would be fetched, and change nothing.
        on_progress: called from time to time.

    Raises:
        UsageError: there is nothing of what is wanted.
        StoreError: an archive is not what the sha256 beside it says.
        UnsafeArchiveError: an archive is malformed, or would write outside of its folder.
    """
    if artifacts is None:
        chosen = choose.choose(choose.list_artifacts(cast("Store", store)), request.filters, where=store.url)
    else:
        chosen = artifacts
    digests = dict(zip(chosen, side_by_side(lambda a: _expected_sha256(store, a), chosen), strict=True))
    if request.verified_only:
        unverified = [artifact.key for artifact, digest in digests.items() if digest is None]
        if unverified:
            raise UsageError(
                f"{len(unverified)} archive(s) at {store.url} have no sha256sum beside them, "
                f"such as {unverified[0]}",
                tip="pass --allow-unverified to take them as they are",
            )
    fetcher = _Fetcher(store, request, on_progress)
    in_place = {a: fetcher.is_in_place(a, digests[a]) for a in chosen}
    if not dry_run:
        with files.locked(request.output_dir / NOTES / "fetch.lock", timeout=_LOCK_WAIT):
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


def of_other_places(output_dir: Path, place: str, fetched: Collection[FetchedArtifact]) -> tuple[str, ...]:
    """Return the artifacts in a folder that an earlier fetch brought from elsewhere, and this one did not."""
    names = {each.artifact.name for each in fetched}
    others = []
    for path in sorted((output_dir / NOTES).glob("*.json")):
        with contextlib.suppress(UsageError):
            if path.stem not in names and datafile.read(path, FetchedNote).place != place:
                others.append(path.stem)
    return tuple(others)


class _Fetcher:
    """Brings archives of one store into one folder."""

    def __init__(self, store: Source, request: FetchRequest, on_progress: OnProgress) -> None:
        self._store, self._request, self._on_progress = store, request, on_progress
        self._notes = request.output_dir / NOTES
        self._tree = threading.Lock()  # artifacts share the folders of one tree
        self._unpacking = threading.Semaphore(request.unpack_jobs)

    def path(self, artifact: Artifact) -> Path:
        """The path of the folder or archive that an artifact becomes."""
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
        is_same = (note.sha256, note.layout) == (sha256, self._request.layout)
        return is_same and note.files == _sizes(self._request.output_dir, note.files)

    def fetch(self, artifacts: list[Artifact], digests: dict[Artifact, str | None]) -> dict[Artifact, str]:
        """Fetch and unpack the artifacts, and return the sha256 of each archive."""
        for artifact in artifacts:
            self._refuse_foreign(artifact)
        # What a run that was killed left, but for the archives, with which this one goes on.
        for leftover in self._notes.glob("unpacking.*"):
            shutil.rmtree(leftover)
        for leftover in filter(files.is_part, self._notes.glob(".*")):
            leftover.unlink()
        count = Count({artifact.key: artifact.size for artifact in artifacts}, self._on_progress)

        def fetch_artifact(artifact: Artifact) -> str:
            archive = self._notes / "archives" / artifact.key
            archive.parent.mkdir(parents=True, exist_ok=True)
            sha256 = _download(self._store, artifact, archive, sha256=digests[artifact], on_bytes=count.bytes)
            with self._unpacking:
                paths = self._put_in_place(artifact, archive)
            self._write_note(artifact, sha256=sha256, sizes=_sizes(self._request.output_dir, paths))
            count.file()
            return sha256

        results = side_by_side(fetch_artifact, artifacts, jobs=self._request.jobs)
        with contextlib.suppress(OSError):  # archives stay there that this run did not ask for
            (self._notes / "archives").rmdir()
        return dict(zip(artifacts, results, strict=True))

    def _put_in_place(self, artifact: Artifact, archive: Path) -> list[str]:
        """Unpack or move an archive; return the paths of its files in the output folder."""
        # What is there does not count from now on, but is ours: this may be killed at any moment.
        self._write_note(artifact, sha256="", sizes={})
        placed = [artifact.key]
        if self._request.layout != "archives":
            new = self._notes / f"unpacking.{secrets.token_hex(4)}"
            try:
                if archive.name.endswith(unpack.TARBALL):
                    unpack.unpack_release(archive, new)
                else:
                    unpack.unpack(archive, new)
                placed = self._move(artifact, new)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        if self._request.layout == "archives" or self._request.keep_archives:
            archive.replace(self._request.output_dir / artifact.key)
        else:
            archive.unlink()
        return placed

    def _refuse_foreign(self, artifact: Artifact) -> None:
        """Refuse to overwrite a path that was not written by an earlier run."""
        place = self.path(artifact)
        if self._request.layout != "extract" or not os.path.lexists(place):
            return
        is_folder = place.is_dir() and not place.is_symlink()
        if not is_folder or (any(place.iterdir()) and not self._note(artifact).exists()):
            raise UsageError(
                f"{place} is in the way of an artifact", tip="move it, or name a different --output-dir"
            )

    def _move(self, artifact: Artifact, new: Path) -> list[str]:
        place = self.path(artifact)
        if self._request.layout == "flatten":
            with self._tree:
                return [path.relative_to(place).as_posix() for path in unpack.move_into(new, place)]
        if place.exists():
            place.replace(new.with_name(f"{new.name}.old"))
            shutil.rmtree(new.with_name(f"{new.name}.old"))
        is_release = artifact.key.endswith(unpack.TARBALL)
        (new / unpack.TREE if is_release else new).replace(place)
        every = (path for path in place.rglob("*") if path.is_symlink() or not path.is_dir())
        return [path.relative_to(self._request.output_dir).as_posix() for path in every]

    def _write_note(self, artifact: Artifact, *, sha256: str, sizes: Mapping[str, int]) -> None:
        layout, place = self._request.layout, self._store.url
        note = FetchedNote(key=artifact.key, sha256=sha256, layout=layout, place=place, files=sizes)
        datafile.write(self._note(artifact), note)

    def _note(self, artifact: Artifact) -> Path:
        return self._notes / f"{artifact.name}.json"


def _sizes(folder: Path, paths: Iterable[str]) -> dict[str, int]:
    """The sizes of the files with these paths below a folder; those that are no files are left out."""
    stats = {path: (folder / path).lstat() for path in paths if os.path.lexists(folder / path)}
    return {path: stat.st_size for path, stat in stats.items() if not S_ISDIR(stat.st_mode)}


def _expected_sha256(store: Source, artifact: Artifact) -> str | None:
    """The sha256 in the file beside an archive; None if there is no such file.

    Raises:
        StoreError: the file holds no sha256.
    """
    try:
        text = store.read(f"{artifact.key}.sha256sum").data[:200].decode("ascii", errors="replace")
    except MissingKeyError:
        return None
    # The digest alone, or as the program sha256sum writes it: TheRock's tools have both.
    first = (text.split() or [""])[0]
    if not _SHA256.fullmatch(first):
        raise StoreError(
            f"{store.url}/{artifact.key}.sha256sum does not begin with a sha256",
            tip="the upload of the run may not have ended: look at the run",
        )
    return first.lower()


def _download(store: Source, artifact: Artifact, path: Path, *, sha256: str | None, on_bytes: OnBytes) -> str:
    """Bring an archive to `path`; what an earlier try brought there is not fetched again.

    Args:
        store: where it is.
        artifact: the archive.
        path: where it goes. It is there only once it is whole; until then, it is beside it, with `.part`.
        sha256: what it must have; None where it is not known.
        on_bytes: called with how many bytes have arrived more.

    Returns:
        Its sha256.

    Raises:
        StoreError: it is not what its sha256 says.
    """
    part = path.with_name(f"{path.name}.part")
    if path.exists():
        if sha256 is not None and files.sha256_of(path) == sha256:
            on_bytes(artifact.size)
            return sha256
        path.unlink()
    for _ in range(2):
        begun = part.stat().st_size if part.exists() and sha256 is not None else 0
        if begun > artifact.size:
            begun = 0
        digest = _fetch(store, artifact.key, part, begun, on_bytes)
        if sha256 in (None, digest):
            part.replace(path)
            return digest
        part.unlink()
        on_bytes(-artifact.size)
        if not begun:
            break  # else what lay there may be at fault: a different build of the same name, a lost write
    raise StoreError(
        f"{store.url}/{artifact.key} is not what its sha256sum says",
        tip="it was damaged, or is being replaced: fetch it again later, or look at the run that made it",
    )


def _fetch(store: Source, key: str, part: Path, begun: int, on_bytes: OnBytes) -> str:
    """Bring what is missing after the first `begun` bytes; the sha256 of the whole."""
    digest = hashlib.sha256()
    with part.open("r+b" if begun else "wb") as file:
        while file.tell() < begun and (block := file.read(min(_BLOCK, begun - file.tell()))):
            digest.update(block)
            on_bytes(len(block))
        with store.open(key, start=begun) as stream:
            while block := stream.read(_BLOCK):
                go_on()
                file.write(block)
                digest.update(block)
                on_bytes(len(block))
        file.truncate()
    return digest.hexdigest()
