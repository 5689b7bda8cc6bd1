"""Making the lock of a mirror: uv resolves what is asked, once for each Python and platform of the stack."""

from __future__ import annotations

import posixpath
import sys
import tempfile
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import datafile, process, requirements, venv
from cairn.errors import NetworkError
from cairn.pip_settings import PipSettings
from cairn.release.publish import distribution
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.distribution import Dist
from cairn.release.publish.mirror_lock import Asked, LockedFile, MirrorLock, in_order, is_of_sdk, lines_for
from cairn.stack import Stack

_TIMEOUT = 600.0  # seconds; hundreds of projects take a few
_PYLOCK = "pylock.toml"  # uv takes the format of its output from this name (PEP 751)


def asked_by(dists: Iterable[Dist], further: Sequence[str], *, stack: Stack) -> tuple[Asked, ...]:
    """What distributions of a stack, and the user, ask of other indexes.

    Args:
        dists: wheels of one or several Pythons and platforms, and sdists; what any of them requires, or takes
            to be built, counts for all.
        further: requirements of the user.
        stack: its own projects, and the ROCm SDK, come from nowhere else.
    """
    dists = tuple(dists)
    own = {str(canonicalize_name(p.distribution)) for p in stack.projects} | {dist.name for dist in dists}
    by_name: dict[str, tuple[dict[str, None], set[str]]] = {}
    for dist in dists:
        requires, extras = by_name.setdefault(dist.name, ({}, set()))
        every = (*dist.needs.requires, *_builders(dist))
        names = ((str(r), canonicalize_name(r.name)) for r in every)
        requires |= {text: None for text, name in names if name not in own and not is_of_sdk(name)}
        extras |= set(dist.needs.extras)
    asked = [
        Asked(by=name, requires=tuple(requires), extras=tuple(sorted(extras)))
        for name, (requires, extras) in sorted(by_name.items())
        if requires
    ]
    lines = tuple(dict.fromkeys(str(requirements.requirement(line)) for line in further))
    return (*asked, Asked(by=stack.name, requires=lines)) if lines else tuple(asked)


def merged(before: Iterable[Asked], new: Iterable[Asked], *, stack: Stack) -> tuple[Asked, ...]:
    """What is asked in all: a project's newest wheels say all that it asks; what the user asks adds up."""
    by_name = {one.by: one for one in before}
    for one in new:
        if one.by == stack.name and one.by in by_name:
            lines = tuple(dict.fromkeys((*by_name[one.by].requires, *one.requires)))
            by_name[one.by] = Asked(by=one.by, requires=lines)
        else:
            by_name[one.by] = one
    return tuple(by_name.values())


def resolve(
    stack: Stack,
    platforms: Sequence[Platform],
    asked: Sequence[Asked],
    *,
    settings: PipSettings,
    before: MirrorLock | None = None,
) -> MirrorLock:
    """The lock of what is asked, from the index that pip is set up for.

    Args:
        stack: whose lock it is.
        platforms: every Python and platform that it is to cover.
        asked: what to resolve.
        settings: where uv looks.
        before: an earlier lock, whose versions are kept where they still do.

    Raises:
        NetworkError: a requirement cannot be met there, or the index cannot be reached; uv's explanation.
        UsageError: uv has no name for a platform.
    """
    locked: list[LockedFile] = []
    for platform in platforms:
        lines = tuple(lines_for(asked, platform))
        known = [f for f in (before.files if before else ()) if platform.takes(f.file_name, None)]
        locked += _locked(lines, platform, settings=settings, known=known)
    return MirrorLock(
        stack=stack.name,
        pythons=tuple(dict.fromkeys(platform.python for platform in platforms)),
        platforms=tuple(dict.fromkeys(platform.tag for platform in platforms)),
        asked=tuple(asked),
        files=in_order(locked),
    )


def _builders(dist: Dist) -> tuple[Requirement, ...]:
    """What has to be there before an sdist is built on the machine of who installs it."""
    if dist.path.suffix == ".whl":
        return ()
    with dist.path.open("rb") as stream:
        return distribution.build_requirements(stream, filename=dist.path.name)


def _locked(
    lines: Sequence[str], platform: Platform, *, settings: PipSettings, known: Sequence[LockedFile]
) -> Iterator[LockedFile]:
    """The files of one platform."""
    with tempfile.TemporaryDirectory(prefix="cairn-lock-") as folder:
        output, constraints = Path(folder, _PYLOCK), Path(folder, "constraints.txt")
        constraints.write_text("".join(_constraints(known)), encoding="utf-8")
        command = [venv.uv_program(), "pip", "compile", "-", "--no-config", "--quiet", "--no-header"]
        command += ["--no-build", "--no-python-downloads", "--python", sys.executable]
        command += [*settings.uv_options(), *platform.uv_options(anywhere=True), "--output-file", str(output)]
        # What is asked now may not go with the versions that are locked: then all is resolved anew.
        for options in (["--constraints", str(constraints)], []):
            answer = process.run(
                [*command, *options],
                env=settings.uv_environment(),
                stdin="\n".join(lines).encode(),
                timeout=_TIMEOUT,
                check=False,
            )
            if answer.returncode == 0 or "No solution found" not in answer.output:
                break
        if answer.returncode != 0:
            message = " ".join(answer.output.split())
            raise NetworkError(
                f"uv cannot resolve what is asked for {platform}: {message[-600:]}",
                tip="see python3 -m pip config list for the index that is asked",
            )
        packages = datafile.read_toml(output).get("packages", [])
    for package in packages:
        yield from _files_of(package, platform)


def _constraints(known: Iterable[LockedFile]) -> Iterator[str]:
    """What keeps uv at versions that are locked, a line for each project.

    Preferences, which uv takes from an output that is there already, would be simpler; but of an index that
    has only some files of the preferred version uv then takes an older one, also where a second index has
    the rest (0.13). Where Pythons differ in the version, the highest of them that fits is the locked one.
    """
    versions: dict[str, list[str]] = {}
    for file in known:
        versions.setdefault(file.name, []).append(file.version)
    for name, of_project in versions.items():
        yield f"{name}>={min(of_project, key=Version)},<={max(of_project, key=Version)}\n"


def _files_of(package: Mapping[str, Any], platform: Platform) -> Iterator[LockedFile]:
    """The wheels of a package of a pylock.toml."""
    for wheel in package.get("wheels", ()):
        # `name` may be left out where the end of the address says it.
        place = urllib.parse.urlsplit(wheel["url"]).path if "url" in wheel else wheel.get("path", "")
        file_name = wheel.get("name") or urllib.parse.unquote(posixpath.basename(place))
        sha256 = wheel.get("hashes", {}).get("sha256")
        if sha256 is None:
            raise NetworkError(f"the index gives no sha256 of {file_name}", tip="ask an index that does")
        if platform.takes(file_name, None):
            yield LockedFile(
                name=package["name"],
                version=package["version"],
                file_name=file_name,
                sha256=sha256,
                size=wheel.get("size"),
            )
