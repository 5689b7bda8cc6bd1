"""An sdist, fetched by pip and checked by its hash, read into a repository's files without running it."""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from cairn import files, process, requirements
from cairn.errors import NetworkError, ProcessError, SourceError, UsageError
from cairn.sources.origins import pkginfo_backend
from cairn.sources.origins.fast_import import EXECUTABLE, FILE, NewCommit, NewEntry, NewRepository

_AUTHOR = "Cairn <cairn@localhost>"
_DATE = datetime(2000, 1, 1, tzinfo=UTC)  # always the same, so that the commit has the same id everywhere
_RUNNABLE = 0o100
_TIMEOUT = 600.0  # seconds for one download


def exact_version(requirement: str) -> tuple[str, str]:
    """The name and the version of `NAME==VERSION`.

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
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input"]
    choice = ["--no-deps", "--no-binary=:all:", "--require-hashes", "--requirement", str(requirements)]
    # pip asks the build backend for the metadata of all it downloads, even with --no-deps (pypa/pip#1884):
    # setuptools would run setup.py. Without isolation it imports the backend that PYTHONPATH has: ours.
    backend = ["--use-pep517", "--no-build-isolation", "--dest", str(target)]
    with tempfile.TemporaryDirectory(prefix="cairn-backend-") as shim:
        # Without "stdlib", distutils-precedence.pth would import parts of setuptools that ours lacks.
        environment = {**os.environ, "PYTHONPATH": _shim(Path(shim)), "SETUPTOOLS_USE_DISTUTILS": "stdlib"}
        try:
            process.run([*command, *choice, *backend], cwd=folder, env=environment, timeout=_TIMEOUT)
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
    """The sdist's files as the one commit of the branch `main`, tagged `v<version>`.

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


def _shim(folder: Path) -> str:
    """A module search path on which setuptools' backend is `pkginfo_backend`, which only reads PKG-INFO.

    Without a [build-system] table, pip calls `setuptools.build_meta:__legacy__` (PEP 517, "Source trees").
    """
    package = folder / "setuptools"
    package.mkdir()
    (package / "__init__.py").touch()
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
    """The files, without the one folder `NAME-VERSION` that holds all of an sdist (PEP 625, PEP 517)."""
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
