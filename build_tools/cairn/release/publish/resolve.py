"""Resolve a set's dependencies among the files of a channel, by uv over an index made for that.

`uv pip compile` knows any Python and platform, backtracks and explains a contradiction. It is not shown the
channel's own pages, because with those (uv 0.13) it

- builds an sdist to learn what it needs. That runs foreign code, for this machine and not for the platform
  of the set, and the `rocm` sdist chooses its requirements by the machine that builds it;
- stops at the first requirement that cannot be met, where a user wants to hear of all of them;
- reads folders and HTTP only, and pages can lag behind the state while a writer is at work.

So a server in this process offers, from the snapshot, every version that fits as one wheel for everything,
whose metadata we write: with the requirements of the file, each one that nothing can meet replaced by a
stand-in. The stand-ins that uv then chooses are what is missing, markers and extras considered.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import re
import socketserver
import sys
import tempfile
import threading
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import isolation, process, requirements, venv
from cairn.errors import StoreError, UsageError
from cairn.release.index import keys, render
from cairn.release.index.generation import FileEntry, FileRef, project_of
from cairn.release.index.snapshot import Snapshot, refs_of
from cairn.release.publish import distribution
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.distribution import Dist, Needs
from cairn.store.protocol import MissingKeyError
from cairn.wheels.wheelset import WheelSet

# What an extra may be called (PEP 685). Old metadata has others, such as `*`: no one can ask for them, and uv
# stops at them.
_EXTRA = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TIMEOUT = 600.0  # seconds; a closure of hundreds of projects takes one or two


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement that the channel cannot satisfy.

    Attributes:
        requirement: it, without its marker.
        wanted_by: the file that has it in its metadata, or `the caller`.
        found: the versions that are there and do not meet it.
    """

    requirement: str
    wanted_by: str
    found: tuple[str, ...] = ()

    def __str__(self) -> str:
        versions = f" (there: {', '.join(self.found)})" if self.found else ""
        return f"{self.requirement}, wanted by {self.wanted_by}{versions}"


@dataclass(frozen=True, kw_only=True)
class Closure:
    """The dependencies of a set.

    Attributes:
        files: the files of the channel that satisfy it, the roots not among them, sorted by name.
        missing: what is not there.
        read: the projects whose pages uv asked for, each with the files whose metadata it asked for.
    """

    files: tuple[FileRef, ...]
    missing: tuple[Missing, ...]
    read: Mapping[str, Collection[FileRef]] = field(default_factory=dict, compare=False)


def closure(
    snapshot: Snapshot,
    *,
    roots: Sequence[Dist],
    requirements: Sequence[str] = (),
    platform: Platform,
) -> Closure:
    """Resolve the dependencies of `roots`, with their extras, and of `requirements` within a channel.

    Extras for device wheels that are not among the roots are left out (`distribution.extras_beside`).

    Args:
        snapshot: the channel.
        roots: distributions that satisfy each other's requirements whether published or not.
        requirements: further ones, which no metadata names.
        platform: where it will be installed.

    Raises:
        StoreError: requirements that can each be met contradict each other; the message is uv's explanation.
        UsageError: one of `requirements` cannot be read, or uv does not know the platform.
    """
    index = _OfferedIndex(snapshot, roots, [parsed(line) for line in requirements], platform)
    chosen = _resolve(index, platform)
    missing = {index.unmet[name] for name in chosen if name in index.unmet}
    return Closure(
        files=tuple(sorted(index.files(chosen), key=lambda ref: ref.filename)),
        missing=tuple(sorted(missing, key=lambda item: (item.requirement, item.wanted_by))),
        read=index.read,
    )


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The result of resolving a whole set, with every extra that it has.

    Attributes:
        problems: a sentence for everything that is missing, and for every file that uv takes and the set does
            not have, or the other way round.
        metadata_bytes: what an installer reads to choose: pages and metadata, and no file.
    """

    problems: tuple[str, ...]
    metadata_bytes: int


def resolve_set(snapshot: Snapshot, wheel_set: WheelSet) -> Resolution:
    """Resolve a set from an index alone, for the set's Python and platform, with the extras that it has.

    Args:
        snapshot: the index, as it is or as it will be (`Snapshot.with_change`).
        wheel_set: a sealed set, whose files the store has.

    Raises:
        StoreError: requirements that can each be met contradict each other, or metadata was lost.
        UsageError: uv has no name for the platform.
    """
    store, requested = snapshot.index.store, list[str]()
    distributions = {wheel.distribution for wheel in wheel_set.wheels}
    for wheel in wheel_set.wheels:  # each exactly, and with all the extras that the set has
        data = store.read(keys.sidecar_key(wheel.sha256, wheel.file_name)).data
        needs = distribution.needs_of(data, filename=wheel.file_name)
        extras = ",".join(distribution.extras_beside(needs, wheel.distribution, distributions))
        requested.append(f"{wheel.distribution}{f'[{extras}]' if extras else ''}=={wheel.version}")
    requested += wheel_set.requirements
    platform = Platform(python=wheel_set.python, tag=wheel_set.platform)
    chosen = closure(snapshot, roots=(), requirements=requested, platform=platform)
    missing = [f"{snapshot.index.name} lacks {item}" for item in chosen.missing]
    prefix = keys.simple_prefix(snapshot.index.name)
    pages = (render.project_page(snapshot.project(name), prefix=prefix).json for name in chosen.read)
    sidecars = (keys.sidecar_key(ref.sha256, ref.filename) for refs in chosen.read.values() for ref in refs)
    return Resolution(
        problems=(*missing, *_differences(chosen.files, refs_of(wheel_set))),
        metadata_bytes=sum(map(len, pages)) + sum(len(store.read(key).data) for key in sidecars),
    )


def _differences(taken: Sequence[FileRef], expected: Sequence[FileRef]) -> Iterator[str]:
    """The differences between the files that uv takes and those of the set, project by project."""
    names = sorted({project_of(ref.filename) for ref in set(taken) ^ set(expected)})
    for name in names:
        sides = (
            " and ".join(ref.filename for ref in refs if project_of(ref.filename) == name) or f"no {name}"
            for refs in (taken, expected)
        )
        instead, of_set = sides
        if instead == of_set:
            yield f"{instead} has other bytes than in the set"
        else:
            yield f"an installer takes {instead}, and the set has {of_set}"


def parsed(line: str) -> Requirement:
    """Parse a requirement that the caller named.

    Raises:
        UsageError: it is not one.
    """
    try:
        return requirements.requirement(line)
    except ValueError as error:
        raise UsageError(str(error), tip="write it like NAME==VERSION") from error


class _OfferedIndex:
    """A channel as uv sees it, with each page made when uv asks for it.

    Attributes:
        asked: the requirements that uv starts from.
        unmet: what each stand-in stands for, by its name, those that uv saw and did not choose included.
        offers_unmet: whether there are stand-ins. Without them, uv looks for older versions that need less.
        problem: the first failure of this run while uv waited for an answer, or None.
        read: as `Closure` has it.
    """

    def __init__(
        self, snapshot: Snapshot, roots: Sequence[Dist], extra: Sequence[Requirement], platform: Platform
    ) -> None:
        self._snapshot = snapshot
        self._platform = platform
        self._fitting: dict[str, dict[str, list[FileEntry]]] = {}
        self._pinned: set[tuple[str, str]] = set()  # projects and versions
        self.unmet: dict[str, Missing] = {}
        self.offers_unmet = False
        self.problem: Exception | None = None
        self.read: dict[str, set[FileRef]] = {}
        # What is not in the channel: project -> version -> METADATA. Of a project that the roots belong to,
        # these are all there is.
        self._made: dict[str, dict[str, bytes]] = {}
        for root in roots:
            self._made.setdefault(root.name, {})[root.version] = _metadata(root.name, root.version)
        self._roots = frozenset(self._made)
        # What holds without a condition is looked at together: `a<2` and `a>=1.5` of two roots are one
        # requirement that a mirror can fetch something for.
        self._bounds: dict[str, SpecifierSet] = {}
        for requirement in (*extra, *(r for root in roots for r in root.needs.requires)):
            name = canonicalize_name(requirement.name)
            if requirement.marker is None and name not in self._roots:
                self._bounds[name] = self._bounds.get(name, SpecifierSet()) & requirement.specifier
        self.asked = [self._line(requirement, "the caller") for requirement in extra]
        for root in roots:
            # Several roots may be of one version (one per Python) or of several, so what each needs hangs
            # on a project of its own, named so that uv's explanation of a contradiction reads well.
            folder_name = re.sub(r"[^a-z0-9]+", "-", root.path.name.lower()).strip("-")
            if folder_name in self._made:  # such as `a-1.0-1-py3…` (a build number) beside `a-1.0.1-py3…`
                folder_name += f"-{root.sha256[:8]}"
            lines = [self._line(requirement, root.path.name) for requirement in root.needs.requires]
            self._made[folder_name] = {
                root.version: _metadata(folder_name, root.version, lines, root.needs.extras)
            }
            given = distribution.extras_beside(root.needs, root.name, self._roots)
            extras = ",".join(filter(_EXTRA.fullmatch, given))
            self.asked.append(f"{folder_name}[{extras}]=={root.version}")

    def page(self, name: str) -> bytes | None:
        """The page of a project (PEP 691), or None where there is no such project."""
        versions = self._made.get(name) or self._versions(name)
        if not versions or (name in self.unmet and not self.offers_unmet):
            return None
        if name not in self._made:
            self.read.setdefault(name, set())
        # uv takes a yanked version for an exact requirement of the user alone, pip (as PEP 592 has it) for
        # any.
        offered = {version for version in versions if name in self._made or (name, version) in self._pinned}
        stem = name.replace("-", "_")
        entries = [
            {
                "filename": f"{stem}-{version}-py3-none-any.whl",
                "url": f"/wheel/{name}/{version}/{stem}-{version}-py3-none-any.whl",
                "hashes": {},
                "core-metadata": True,
                "yanked": version not in offered and self._yanked(name, version),
            }
            for version in versions
        ]
        return json.dumps({"meta": {"api-version": "1.0"}, "name": name, "files": entries}).encode()

    def metadata(self, name: str, version: str) -> bytes:
        """The METADATA of a version that the page of a project lists.

        Raises:
            StoreError: the channel has lost it, or it cannot be read.
        """
        if name in self._made:
            return self._made[name][version]
        file = self._versions(name)[version][0]
        self.read.setdefault(name, set()).add(file.ref)
        needs = self._needs_of(file)
        lines = [self._line(requirement, file.filename) for requirement in needs.requires]
        return _metadata(name, version, lines, needs.extras)

    def files(self, chosen: dict[str, str]) -> Iterator[FileRef]:
        """The files of the channel that fit, of the versions that uv chose."""
        for name, version in chosen.items():
            if name not in self._made:
                versions = self._versions(name)
                same = (files for text, files in versions.items() if Version(text) == Version(version))
                yield from (file.ref for files in same for file in files)

    def _versions(self, name: str) -> dict[str, list[FileEntry]]:
        """A project's files that fit, by version: wheels, or sdists where there is no wheel."""
        if name not in self._fitting:
            by_version: dict[str, list[FileEntry]] = {}
            for file in self._snapshot.project(name).files:
                if self._platform.fits(file):
                    by_version.setdefault(file.version, []).append(file)
            for version, files in by_version.items():
                by_version[version] = [file for file in files if file.filename.endswith(".whl")] or files
            self._fitting[name] = by_version
        return self._fitting[name]

    def _needs_of(self, file: FileEntry) -> Needs:
        store = self._snapshot.index.store
        key = keys.sidecar_key(file.sha256, file.filename)
        try:
            needs = distribution.needs_of(store.read(key).data, filename=file.filename)
        except MissingKeyError as error:
            raise StoreError(f"{file.filename} has lost its metadata: no {key}") from error
        # An unreliable sdist lists what the machine that made it wanted; that is a hint, never a demand.
        requires = [r for r in needs.requires if needs.reliable or self._met(r.name, r.specifier)]
        if not file.filename.endswith(".whl"):
            # As a file: an archive is read back and forth, and what a bucket streams is not.
            with store.as_file(keys.file_key(file.sha256, file.filename)) as path, path.open("rb") as stream:
                requires += distribution.build_requirements(stream, filename=file.filename)
        return Needs(requires=tuple(requires), extras=needs.extras)

    def _line(self, requirement: Requirement, wanted_by: str) -> str:
        """A requirement as uv sees it: without a URL, which uv would fetch, or replaced by a stand-in."""
        name = canonicalize_name(requirement.name)
        shown = Requirement(str(requirement))
        shown.marker, shown.specifier = None, shown.specifier & self._bounds.get(name, SpecifierSet())
        if self._met(name, shown.specifier):
            shown.url = None
        else:
            available = self._made.get(name) or {file.version for file in self._snapshot.project(name).files}
            versions = tuple(sorted(available, key=Version))
            missing = Missing(requirement=str(shown), wanted_by=wanted_by, found=versions)
            # By its own name, so that uv's threads agree on it.
            stand_in = f"unmet-{hashlib.sha256(str(missing).encode()).hexdigest()[:16]}"
            self.unmet[stand_in] = missing
            self._made[stand_in] = {"0": _metadata(stand_in, "0")}
            shown = Requirement(stand_in)
        shown.marker = requirement.marker
        return str(shown)

    def _met(self, name: str, specifier: SpecifierSet) -> bool:
        """Whether a version that fits satisfies a specifier and may be taken for it."""
        name = canonicalize_name(name)
        if name in self._made:
            return any(specifier.contains(version, prereleases=True) for version in self._made[name])
        # PEP 592: a yanked file may be taken for an exact pin only.
        pinned = any(s.operator in ("==", "===") and not s.version.endswith(".*") for s in specifier)
        versions = self._versions(name)
        if pinned:
            self._pinned |= {(name, version) for version in specifier.filter(versions, prereleases=True)}
            return any(specifier.filter(versions))
        return any(specifier.filter(version for version in versions if not self._yanked(name, version)))

    def _yanked(self, name: str, version: str) -> bool:
        return all(file.yanked is not None for file in self._versions(name)[version])


def _metadata(name: str, version: str, lines: Iterable[str] = (), extras: Iterable[str] = ()) -> bytes:
    text = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    text += [f"Provides-Extra: {extra}" for extra in extras if _EXTRA.fullmatch(extra)]
    return "\n".join([*text, *(f"Requires-Dist: {line}" for line in lines), ""]).encode()


def _resolve(index: _OfferedIndex, platform: Platform) -> dict[str, str]:
    """Run uv; return the chosen versions by project, with stand-ins only where there is no other way."""
    command = [venv.uv_program(), "pip", "compile", "-", "--no-config", "--quiet"]
    # uv asks for an interpreter; since nothing is built, ours serves for every version of the set.
    command += ["--no-build", "--no-python-downloads", "--python", sys.executable]
    command += ["--no-header", "--no-annotate"]  # the answer is one `name==version` a line
    env = isolation.variables(isolation.Isolation.TOOL)
    with _served(index) as url:
        command += ["--default-index", url, *platform.uv_options()]
        # The second run also offers yanked versions that are pinned by what uv only came to see in the first.
        for last_resort in (False, True):
            # The first run may have failed at an older version that does not matter any more.
            index.offers_unmet, index.problem = last_resort, None
            lines = "\n".join(index.asked).encode()
            with _cache() as cache:
                answer = process.run(
                    [*command, "--cache-dir", cache],
                    env=env,
                    stdin=lines,
                    separate_stderr=True,
                    timeout=_TIMEOUT,
                    check=False,
                    confined=False,
                )
            if answer.returncode == 0:
                return dict(line.split("==") for line in answer.output.splitlines())
    if index.problem is not None:
        raise index.problem
    reason = " ".join(answer.stderr.split())
    if "invalid metadata" in reason:  # packaging reads some markers that uv does not
        raise StoreError(f"uv cannot read what the set needs: {reason[reason.find('hint:') :]}")
    if "No solution found" not in reason:
        raise StoreError(
            f"uv cannot resolve what the set needs: {reason}",
            tip="if it is older than 0.12: python3 -m pip install --upgrade uv",
        )
    raise StoreError(
        f"the requirements of the set contradict each other: {reason[max(reason.find('Because'), 0) :]}",
        tip="add a version that all of them accept to the channel",
    )


@functools.cache
def _interpreters() -> dict[Path, bytes]:
    """The files of uv's cache that say what our interpreter is; asking it takes longer than resolving."""
    return {}


@contextlib.contextmanager
def _cache() -> Iterator[Path]:
    """A cache for one run of uv: of an index, whose pages change from run to run, nothing is kept."""
    with tempfile.TemporaryDirectory(prefix="cairn-resolve-") as folder:
        for path, data in tuple(_interpreters().items()):  # another thread may add to them
            Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, path).write_bytes(data)
        yield Path(folder)
        for path in Path(folder).glob("interpreter-*/**/*"):
            if path.is_file():
                _interpreters()[path.relative_to(folder)] = path.read_bytes()


@contextlib.contextmanager
def _served(index: _OfferedIndex) -> Iterator[str]:
    """Serve an index and yield its address, until the block ends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: else each answer waits 40 ms for an acknowledgement

        def do_GET(self) -> None:
            parts = urllib.parse.unquote(self.path).split("/")
            data = None
            try:
                if parts[1] == "simple":
                    data = index.page(parts[2])
                elif self.path.endswith(".metadata"):
                    data = index.metadata(parts[2], parts[3])
            except Exception as error:  # noqa: BLE001 - uv only hears that there is nothing; `_resolve` raises it
                index.problem = index.problem or error
            self.send_response(HTTPStatus.NOT_FOUND if data is None else HTTPStatus.OK)
            self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            """Say nothing: the screen belongs to the command that asks."""

    class Server(http.server.ThreadingHTTPServer):
        server_bind = (
            socketserver.TCPServer.server_bind
        )  # HTTPServer's looks up our name, slowly where DNS is slow

        def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class
            if not isinstance(sys.exception(), ConnectionError):  # uv hangs up when it has what it needs
                super().handle_error(request, client_address)

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple"
        finally:
            server.shutdown()
            thread.join()
