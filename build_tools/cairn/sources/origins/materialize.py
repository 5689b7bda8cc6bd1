"""Declared origins as real git repositories, so that one code path serves all of them.

A *tree* is a folder with the files of a repository's newest state and a `history.toml` that says which
commits, branches and tags lead there. An *sdist* is a source archive of a package index. Both become bare
repositories in a cache folder; the same description gives the same commits on every machine.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import files
from cairn.errors import SourceError, UsageError
from cairn.sources.origins import fast_import, history_toml
from cairn.sources.origins import sdist as origins_sdist

# Part of every digest: to be raised when the same description comes to mean a different repository.
_FORMAT = "1"
_DIGEST_FILE = "cairn-origin"


@dataclass(frozen=True, kw_only=True)
class TreeOrigin:
    """A repository described by a folder.

    Attributes:
        name: what the caller calls it; the repository on disk is called after the folder, since
            neighbours name each other relatively (`../torchvision.git`).
        path: the folder with `history.toml` and `tree/`.
    """

    name: str
    path: Path


@dataclass(frozen=True, kw_only=True)
class SdistOrigin:
    """A repository imported from an sdist.

    Attributes:
        name: what the caller and the repository on disk are called.
        requirement: `NAME==VERSION`.
        sha256: of the sdist, in lowercase hexadecimal.
    """

    name: str
    requirement: str
    sha256: str


def materialize(origins: Iterable[TreeOrigin | SdistOrigin], cache_dir: Path) -> Mapping[str, Path]:
    """Write the origins, and the neighbours they name, as bare repositories `<cache_dir>/<name>.git`.

    A repository whose description is unchanged is left as it is. Several runs at a time are safe.

    Returns:
        The repository's folder, by the origin's name.

    Raises:
        UsageError: a description is missing or malformed.
        SourceError: an sdist is not the one expected, or neighbours name each other's commits in a circle.
        NetworkError: an sdist could not be fetched.
        PrerequisiteError: git is not installed.
        SystemFailureError: another run held the cache for too long.
    """
    with files.locked(cache_dir / "origins.lock"):
        writer = _Materializer(cache_dir)
        return {origin.name: writer.repository_of(origin).folder for origin in origins}


@dataclass(frozen=True, kw_only=True)
class _Written:
    folder: Path
    digest: str


class _Materializer:
    """Writes each repository of one call once, neighbours first."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache = cache_dir
        self._trees: dict[Path, _Written] = {}
        self._under_way: list[Path] = []

    def repository_of(self, origin: TreeOrigin | SdistOrigin) -> _Written:
        if isinstance(origin, SdistOrigin):
            return self._sdist(origin)
        return self._tree(origin.path.absolute())

    def _sdist(self, origin: SdistOrigin) -> _Written:
        origins_sdist.exact_version(origin.requirement)
        digest = _digest(b"sdist", origin.requirement.encode(), origin.sha256.encode())
        written = _Written(folder=self._cache / f"{origin.name}.git", digest=digest)
        if not _is_current(written):
            with tempfile.TemporaryDirectory(prefix="cairn-sdist-") as temporary:
                sdist = origins_sdist.fetch(origin.requirement, origin.sha256, Path(temporary))
                _write(written, origins_sdist.to_repository(sdist, origin.requirement))
        return written

    def _tree(self, path: Path) -> _Written:
        if path not in self._trees:
            if path in self._under_way:
                circle = " -> ".join(p.name for p in (*self._under_way, path))
                raise SourceError(f"repositories name each other's commits in a circle: {circle}")
            self._under_way.append(path)
            self._trees[path] = self._write_tree(path)
            self._under_way.pop()
        return self._trees[path]

    def _write_tree(self, path: Path) -> _Written:
        history = history_toml.load(path)
        neighbours = {name: self._tree(path.parent / name) for name in history.neighbours()}
        tree = history_toml.read_tree(path, history.executable)
        parts = [part for name, entry in tree.items() for part in (name.encode(), entry.data)]
        description = (path / "history.toml").read_bytes()
        # Commits of neighbours are in the files, so their digests belong to this one.
        digest = _digest(b"tree", description, *(n.digest.encode() for n in neighbours.values()), *parts)
        written = _Written(folder=self._cache / f"{path.name}.git", digest=digest)
        if not _is_current(written):

            def commit_of(repository: str, ref: str) -> str:
                try:
                    return fast_import.resolve(neighbours[repository].folder, ref)
                except SourceError as error:
                    raise UsageError(f"{path}: {repository} has no branch or tag {ref!r}") from error

            _write(written, history_toml.to_repository(history, tree, commit_of))
        return written


def _is_current(written: _Written) -> bool:
    try:
        return (written.folder / _DIGEST_FILE).read_text(encoding="ascii") == written.digest
    except OSError:
        return False


def _write(written: _Written, repository: fast_import.NewRepository) -> None:
    # Moved into place when it is whole: one that is there with its digest was never half written.
    with files.folder_beside(written.folder) as part:
        fast_import.write_repository(repository, part)
        (part / _DIGEST_FILE).write_text(written.digest, encoding="ascii")


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256(_FORMAT.encode())
    for part in parts:
        # Lengths keep the boundaries, so that no two descriptions read the same.
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
