"""Materialize declared origins as git repositories, so that one code path serves all origins.

A *tree* is a folder with the files of a repository's newest state and a `history.toml` that says which
commits, branches and tags lead there. An *sdist* is a source archive of a package index. Both become bare
repositories in a cache folder; the same description gives the same commits on every machine. An sdist is
fetched by pip, checked by its hash, and read without running it.
"""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import msgspec

from cairn import extras, files, process, requirements, venv
from cairn.errors import NetworkError, ProcessError, SourceError, UsageError
from cairn.sources.origins import history_toml, pkginfo_backend
from cairn.sources.origins.history_toml import EXECUTABLE, FILE, NewCommit, NewEntry, NewRepository
from cairn.venv import PackageSource

_AUTHOR = "Cairn <cairn@localhost>"
_DATE = datetime(2000, 1, 1, tzinfo=UTC)  # always the same, so that the commit has the same id everywhere
_RUNNABLE = 0o100
_TIMEOUT = 600.0  # seconds for one download


def exact_version(requirement: str) -> tuple[str, str]:
    """Split `NAME==VERSION` into name and version.

    Raises:
        UsageError: it is anything else.
    """
    try:
        parsed = requirements.requirement(requirement)
    except ValueError as error:
        raise UsageError(str(error)) from error
    specifiers = list(parsed.specifier)
    is_exact = len(specifiers) == 1 and specifiers[0].operator == "==" and "*" not in specifiers[0].version
    if not is_exact or parsed.extras or parsed.marker or parsed.url:
        raise UsageError(
            f"an sdist must be named by its exact version, not by {requirement!r}", tip="write NAME==VERSION"
        )
    return parsed.name, specifiers[0].version


def fetch(requirement: str, sha256: str, folder: Path) -> Path:
    """Download the sdist of `NAME==VERSION` into `folder` with pip and the user's pip configuration.

    Raises:
        NetworkError: pip could not find or fetch it.
        SourceError: its sha256 differs.
    """
    requirements = folder / "requirements.txt"
    files.write_text(requirements, f"{requirement} --hash=sha256:{sha256}\n")
    target = folder / "sdist"
    command = [*extras.pip(), "download", "--disable-pip-version-check", "--no-input"]
    choice = ["--no-deps", "--no-binary=:all:", "--require-hashes", "--requirement", str(requirements)]
    # pip asks the build backend for the metadata of all it downloads, even with --no-deps (pypa/pip#1884):
    # setuptools would run setup.py. Without isolation it imports the backend that PYTHONPATH has: ours.
    backend = ["--use-pep517", "--no-build-isolation", "--dest", str(target)]
    with tempfile.TemporaryDirectory(prefix="cairn-backend-") as shim, venv.own_pip(PackageSource()) as env:
        # Without "stdlib", distutils-precedence.pth would import parts of setuptools that ours lacks.
        env |= {"PYTHONPATH": _shim(Path(shim)), "SETUPTOOLS_USE_DISTUTILS": "stdlib"}
        words = [*command, *choice, *backend]
        try:
            process.run(words, cwd=folder, env=env, timeout=_TIMEOUT, network=True)
        except ProcessError as error:
            raise _refused(requirement, error) from error
    downloads = list(target.iterdir())
    if len(downloads) != 1:
        raise SourceError(f"pip fetched {len(downloads)} files for {requirement}, expected its sdist")
    # pip has compared it too; what is imported here must not depend on how pip does that.
    if files.sha256_of(downloads[0]) != sha256:
        raise SourceError(f"the sdist of {requirement} is not the one expected: its sha256 differs")
    return downloads[0]


def to_repository(sdist: Path, requirement: str) -> NewRepository:
    """Turn an sdist into a repository with one commit on the branch `main`, tagged `v<version>`.

    Raises:
        SourceError: it is not a tar archive, or has a member that cannot be in a repository.
    """
    name, version = exact_version(requirement)
    try:
        with tarfile.open(sdist) as archive:
            content = dict(_entries(archive, sdist.name))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SourceError(f"{sdist.name} cannot be read as a tar archive: {error}") from error
    message = f"Import {name} {version} from its sdist\n\n{sdist.name}\n"
    commit = NewCommit(message=message, date=_DATE, parent=None, files=content)
    tags = {f"v{version}": 0}
    return NewRepository(
        author=_AUTHOR, default_branch="main", commits=(commit,), branches={"main": 0}, tags=tags
    )


# Runs where Python starts, before the program of pip's that calls a backend (pyproject_hooks' _in_process.py)
# reads which: by these variables, called PEP517_… before its release 1.1.
_ALWAYS_OURS = """\
import os
for prefix in ("_PYPROJECT_HOOKS", "PEP517"):
    for name in ("BACKEND_PATH", "BACKEND_PATH_JSON"):
        os.environ.pop(f"{prefix}_{name}", None)
    os.environ[f"{prefix}_BUILD_BACKEND"] = "setuptools.build_meta"
"""


def _shim(folder: Path) -> str:
    """Make a module search path where every sdist's backend is `pkginfo_backend`, which reads PKG-INFO only.

    Without a [build-system] table, pip calls `setuptools.build_meta:__legacy__` (PEP 517, "Source trees");
    one that names its own, in its tree perhaps, has it replaced by the variables that pip passes to it.
    """
    package = folder / "setuptools"
    package.mkdir()
    (package / "__init__.py").touch()
    (folder / "sitecustomize.py").write_text(_ALWAYS_OURS, encoding="utf-8")
    files.copy_into(Path(pkginfo_backend.__file__), package / "build_meta.py")
    return str(folder)


def _refused(requirement: str, error: ProcessError) -> NetworkError | SourceError:
    reason = next((line for line in error.output.splitlines() if line.startswith("ERROR:")), str(error))
    if "DO NOT MATCH THE HASHES" in error.output:
        return SourceError(
            f"the sdist of {requirement} is not the one expected: its sha256 differs",
            tip="compare the sha256 in the stack with the one of the index; build nothing until they agree",
        )
    return NetworkError(
        f"pip could not fetch the sdist of {requirement}: {reason}",
        tip="check the network and pip's configuration (`pip config list`), then try again",
    )


def _entries(archive: tarfile.TarFile, name: str) -> Iterator[tuple[str, NewEntry]]:
    """Yield the files of an sdist, without its top-level folder `NAME-VERSION` (PEP 625, PEP 517)."""
    top = None
    for member in archive:
        # As PEP 706 (filter "data"), and stricter: no way out of the folder, no links at all, no `.git`.
        path = PurePosixPath(member.name)
        if path.is_absolute() or not {"..", ".git"}.isdisjoint(path.parts):
            raise SourceError(f"{name} holds {member.name!r}, which is outside its own folder")
        top = top or (path.parts[0] if path.parts else None)
        if not path.parts or path.parts[0] != top:
            raise SourceError(f"{name} holds {member.name!r} beside its folder {top!r}")
        if member.isdir():
            continue
        if not member.isreg():
            raise SourceError(f"{name} holds {member.name!r}, which is a link or a device")
        if file := archive.extractfile(member):  # None only for what is not a file
            # Permissions beyond the executable bit are not git's to keep.
            mode = EXECUTABLE if member.mode & _RUNNABLE else FILE
            yield "/".join(path.parts[1:]), NewEntry(mode=mode, data=file.read())


# Part of every digest: to be raised when the same description comes to mean a different repository.
_FORMAT = "1"
_DIGEST_FILE = "cairn-origin"


class TreeOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """A repository described by a folder.

    Attributes:
        name: what the caller calls it; the repository on disk is called after the folder, since
            neighbours name each other relatively (`../torchvision.git`).
        path: the folder with `history.toml` and `tree/`.
    """

    name: str
    path: Path


class SdistOrigin(msgspec.Struct, frozen=True, kw_only=True):
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


class _Written(msgspec.Struct, frozen=True, kw_only=True):
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
        exact_version(origin.requirement)
        digest = _digest(b"sdist", origin.requirement.encode(), origin.sha256.encode())
        written = _Written(folder=self._cache / f"{origin.name}.git", digest=digest)
        if not _is_current(written):
            with tempfile.TemporaryDirectory(prefix="cairn-sdist-") as temporary:
                sdist = fetch(origin.requirement, origin.sha256, Path(temporary))
                _write(written, to_repository(sdist, origin.requirement))
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
            commits = {name: history_toml.commits_of(n.folder) for name, n in neighbours.items()}

            def commit_of(repository: str, ref: str) -> str:
                if ref not in commits[repository]:
                    raise UsageError(f"{path}: {repository} has no branch or tag {ref!r}")
                return commits[repository][ref]

            _write(written, history_toml.to_repository(history, tree, commit_of))
        return written


def _is_current(written: _Written) -> bool:
    try:
        return (written.folder / _DIGEST_FILE).read_text(encoding="ascii") == written.digest
    except OSError:
        return False


def _write(written: _Written, repository: history_toml.NewRepository) -> None:
    # Moved into place when it is whole: one that is there with its digest was never half written.
    with files.folder_beside(written.folder) as part:
        history_toml.write_repository(repository, part)
        (part / _DIGEST_FILE).write_text(written.digest, encoding="ascii")


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256(_FORMAT.encode())
    for part in parts:
        # Lengths keep the boundaries, so that no two descriptions read the same.
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
