"""The stored form of an index: immutable generations, and one small pointer to the current one.

A generation names the projects and the sets of the index by bins (`names`), each a part with its own digest,
so that a change reads and writes only what it touches, however large the index is. A bin names projects by
their parts. The part of a project in its turn may be what changed over earlier parts, so that what a change
writes does not grow with the project.
"""

from __future__ import annotations

import bisect
import functools
import getpass
import hashlib
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from cairn import datafile, requirements, targets
from cairn.errors import StoreError, UsageError
from cairn.targets import CPU, in_order
from cairn.wheels.metadata import wheel_info

ProjectStatus = Literal["active", "archived", "quarantined", "deprecated"]
"""The statuses of PEP 792."""

ProvenanceKind = Literal["pep740", "local-key"]
"""How a provenance is written: only the first is one that PEP 740's clients can read."""

Action = Literal["publish", "mirror", "stage", "promote", "yank", "unyank", "rollback", "retain", "record"]
"""Which command made a generation."""

PUBLISHED, MIRRORED = "published", "mirrored"
"""`FileEntry.build` of a file that came by itself, and of one from the lock of a mirror."""

PACKAGES = ("torch", "torchvision", "torchaudio")
"""What an install line names where a set has them: they need the rest of it, by exact pins."""


class DamagedIndexError(StoreError):
    """A part of an index is lost, or its bytes were changed."""


def now() -> str:
    """The current time as RFC 3339 in UTC with microseconds, as PEP 700 has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def who() -> str:
    """The user for the log: the actor and the run of a GitHub workflow, otherwise the user's name."""
    if actor := os.environ.get("GITHUB_ACTOR"):
        run = os.environ.get("GITHUB_RUN_ID")
        return f"{actor} (run {run})" if run else actor
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, as in some containers
        return "unknown"


class FileRef(datafile.Value):
    """A reference to exactly one file: a name and the sha256 of its bytes."""

    filename: str
    sha256: str


class VariantsFile(datafile.Value):
    """The file that describes the wheel variants of a version (PEP 825).

    Attributes:
        filename: `<name>-<version>-variants.json`.
        sha256: of its bytes.
        size: in bytes.
    """

    filename: str
    sha256: str
    size: int


class FileEntry(datafile.Value, omit_defaults=True, gc=False):  # of which an index has 100,000
    """A file as an index offers it.

    Attributes:
        filename: as pip sees it; it tells project, version and tags.
        sha256: of its bytes, lowercase hex.
        size: in bytes.
        version: of its distribution, as PEP 700 lists it.
        build: what its version belongs to: the sha256 of the manifest that it was built from, `mirrored` or
            `published`. Files of one version are of one build.
        upload_time: when this index took it, RFC 3339 in UTC (PEP 700); None in the index of a set.
        needs: the projects that its metadata requires, normalised, whatever their markers say.
        requires_python: the specifier in its metadata.
        metadata_sha256: of the metadata offered beside it (PEP 658); None where it cannot be relied on.
        provenance: digest of its provenance, or None.
        provenance_kind: `pep740` where Sigstore signed it, `local-key` where an own key did.
        yanked: why it was yanked (PEP 592), or None.
        untested: on what it was not tested, and on whose word it is here all the same, or None.
        failed: what has failed of every set that it is here for, or None.
        sets: the ids of the sets it came with.
        variants: of a wheel variant, what the index says of all variants of its version.
        unpacked: bytes that it takes when it is installed; 0 where an earlier Cairn did not say.
    """

    filename: str
    sha256: str
    size: int
    version: str
    build: str
    upload_time: str | None = None
    needs: tuple[str, ...] = ()
    requires_python: str | None = None
    metadata_sha256: str | None = None
    provenance: str | None = None
    provenance_kind: ProvenanceKind | None = None
    yanked: str | None = None
    untested: str | None = None
    failed: str | None = None
    sets: tuple[str, ...] = ()
    variants: VariantsFile | None = None
    unpacked: int = 0

    @property
    def ref(self) -> FileRef:
        """The file's name and digest alone."""
        return FileRef(filename=self.filename, sha256=self.sha256)


class Attested(msgspec.Struct, frozen=True, kw_only=True):
    """The provenance of a file, as an index names it; see `FileEntry`."""

    provenance: str
    provenance_kind: ProvenanceKind

    def on(self, file: FileEntry) -> FileEntry:
        """A copy of the file's entry with this provenance."""
        return structs.replace(file, provenance=self.provenance, provenance_kind=self.provenance_kind)


class ProjectState(datafile.Value, tag_field="schema", tag="cairn.project/2", omit_defaults=True):
    """All that an index offers of one project.

    Attributes:
        name: normalised (PEP 503).
        files: sorted by version, then by name.
        status: PEP 792, with `status_reason` where one was given.
        serial: number of the generation that last changed it. Pages say it, so that a page never has the same
            bytes twice: after a rollback, a writer that stalled before it would take the page for the one it
            has read.
        page: the digest of its page (`render.digest_of`), from which the next page may take lines; or empty.
    """

    name: str
    files: tuple[FileEntry, ...]
    status: ProjectStatus = "active"
    status_reason: str | None = None
    serial: int = 0
    page: str = ""

    def file(self, filename: str) -> FileEntry | None:
        """The file of that name; None if there is none."""
        return next((f for f in self.files if f.filename == filename), None)

    def with_files(self, entries: tuple[FileEntry, ...]) -> ProjectState:
        """This project with `entries` added, each in place of one of the same name."""
        by_name = {entry.filename: entry for entry in entries}
        files = [
            by_name.pop(file.filename, file)
            for file in self.files
            if by_name.get(file.filename, file).version == file.version  # then it has the same place
        ]
        new = sorted(by_name.values(), key=_order)
        if not (files and new) or _order(files[-1]) < _order(new[0]):
            files += new
        elif len(new) * 12 > len(files):  # versions that are looked at to find a place among thousands
            files = sorted((*files, *new), key=_order)
        else:  # the files are sorted already
            for entry in new:
                bisect.insort(files, entry, key=_order)
        return structs.replace(self, files=tuple(files))

    def without(self, filenames: frozenset[str]) -> ProjectState:
        """This project without the named files."""
        return structs.replace(self, files=tuple(f for f in self.files if f.filename not in filenames))

    @property
    def versions(self) -> tuple[str, ...]:
        """Its versions, lowest first, each once."""
        return tuple(dict.fromkeys(file.version for file in self.files))


def _order(file: FileEntry) -> tuple[Version, str]:
    return _version(file.version), file.filename


_version = functools.lru_cache(maxsize=1 << 14)(Version)


class ProjectChange(datafile.Value, tag_field="schema", tag="cairn.project-change/1", omit_defaults=True):
    """What an index offers of one project, stored as a difference from an earlier part.

    Attributes:
        name, status, status_reason, serial, page: as the `ProjectState` has them that it stands for.
        files: those that are new or different.
        gone: the names of those that are not offered any more.
        over: digests of the parts that it changes: the one before it, and what that one changes, down to a
            whole `ProjectState`.
    """

    name: str
    files: tuple[FileEntry, ...]
    gone: tuple[str, ...]
    over: tuple[str, ...]
    status: ProjectStatus = "active"
    status_reason: str | None = None
    serial: int = 0
    page: str = ""

    def followed_by(self, later: ProjectChange, over: tuple[str, ...]) -> ProjectChange:
        """This change and a later one as one; `over` are the parts below this one."""
        gone = {*later.gone}
        files = {file.filename: file for file in (*self.files, *later.files) if file.filename not in gone}
        left = tuple(name for name in dict.fromkeys((*self.gone, *later.gone)) if name not in files)
        return structs.replace(later, files=tuple(files.values()), gone=left, over=over)

    def applied(self, before: ProjectState) -> ProjectState:
        """Apply the change to the state that it is based on."""
        left = before.without(frozenset(self.gone)) if self.gone else before
        return structs.replace(left.with_files(self.files), **_besides_files(self))


ProjectPart = ProjectState | ProjectChange
"""How a project is stored."""


def change_of(before: ProjectState, after: ProjectState, over: tuple[str, ...]) -> ProjectChange:
    """The change from one state of a project to another; `over` are the parts that hold the first."""
    old = {file.filename: file for file in before.files}
    new = {file.filename for file in after.files}
    return ProjectChange(
        name=after.name,
        files=tuple(file for file in after.files if old.get(file.filename) != file),
        gone=tuple(name for name in old if name not in new),
        over=over,
        **_besides_files(after),
    )


def _besides_files(part: ProjectPart) -> dict[str, Any]:
    return {name: getattr(part, name) for name in ("status", "status_reason", "serial", "page")}


def weight_of(part: ProjectPart) -> int:
    """The weight of a part: one for itself, and one for each file that comes or goes."""
    return 1 + len(part.files) + (len(part.gone) if isinstance(part, ProjectChange) else 0)


class IndexSet(datafile.Value, tag_field="schema", tag="cairn.index-set/1", gc=False):
    """A set as an index lists it; its contents are in `set.json`, whose digest is its id.

    Attributes:
        set_id: the set.
        stack, line, python, platform, family, targets, manifest_sha256: as its `set.json` has them.
        projects: distribution to version, of its own wheels.
        added, staged: when this index took it, and when it was staged (empty there, and in what Cairn 0.1
            promoted), RFC 3339 in UTC.
        records, judgement, builder: digests of the test records that let it in, of what the gate found (None
            where none was asked), and of the builder's statement (None in an entry of an earlier Cairn).
        untested: why it is here without a passed test, or on what it was not tested; None for a tested set.
        untested_targets: the targets that no passed test is of.
        installed_with: the installers that the gate installed it with; others could not be tried.
        yanked: why it was yanked, or None.
        failed: the test records that stand against it by now, in words, or None.
        weakened: where the policy asked less than it should that let it in, a sentence each.
        download, installed: bytes of all that it installs, packed and unpacked; 0 where that is not known.
        rebuilds: who built it again by now, and whether it came out the same, a sentence each.
        derived_from: the set whose wheels it has under other versions, empty for a build; None in an entry of
            an earlier Cairn, where `set.json` alone says it.
    """

    set_id: str
    stack: str
    line: str
    python: str
    platform: str
    family: str
    targets: tuple[str, ...]
    manifest_sha256: str
    projects: Mapping[str, str]
    added: str
    records: tuple[str, ...] = ()
    judgement: str | None = None
    builder: str | None = None
    untested: str | None = None
    untested_targets: tuple[str, ...] = ()
    installed_with: tuple[str, ...] = ()
    yanked: str | None = None
    failed: str | None = None
    weakened: tuple[str, ...] = ()
    download: int = 0
    rebuilds: tuple[str, ...] = ()
    installed: int = 0
    staged: str = ""
    derived_from: str | None = None

    def tested_targets_replaced_in(self, older: IndexSet) -> tuple[str, ...]:
        """The targets that this set was not tested on and `older`, for the same installers, was, in order."""
        same = (self.python, self.platform) == (older.python, older.platform)
        if not (same and older.records and self.projects.keys() & older.projects.keys()):
            return ()
        tested = set(older.targets or (CPU,)) - set(older.untested_targets)
        return in_order(tested & set(self.untested_targets))

    @property
    def lead(self) -> str:
        """The project that a set is known by: torch, where it has one."""
        return next((name for name in PACKAGES if name in self.projects), min(self.projects, default=""))

    @property
    def packages(self) -> tuple[str, ...]:
        """The projects that an install command names, without versions."""
        return tuple(name for name in PACKAGES if name in self.projects) or tuple(sorted(self.projects))

    @property
    def order(self) -> tuple[Version, str, str]:
        """A sort key: the versions that installers compare, then the time of arrival."""
        return comparable(self.projects.get(self.lead, "0")), self.added, self.set_id

    @property
    def processors(self) -> tuple[str, ...]:
        """The targets, without features, whose GPUs run its code; `cpu` for a build without ROCm."""
        generic = targets.generic_targets()
        bare = (name.partition(":")[0] for name in self.targets)
        return tuple(dict.fromkeys(target for name in bare for target in generic.get(name, (name,))))

    def untested_on(self, target: str) -> str | None:
        """Why it counts as untested, or as failed, on a target it serves; None if it was tested there."""
        if self.failed is not None:
            return f"a test has failed since it came: {self.failed}"
        if not self.untested_targets:
            return self.untested
        if any(name.partition(":")[0] == target for name in self.untested_targets):
            return self.untested or f"untested on hardware: {target}"
        return None

    @property
    def caveat(self) -> str | None:
        """The targets it was not tested on, and the weak policy that let it in; None if there is neither."""
        return "; ".join(filter(None, (self.untested, *(f"weak policy: {t}" for t in self.weakened)))) or None


class LogEntry(datafile.Value, omit_defaults=True):
    """The changes of one generation to the sets of an index.

    Attributes:
        number, action, who, why, when: as the `Generation` has them.
        sets: the ids of the sets that it brought, changed or took away.
    """

    number: int
    action: Action
    who: str
    when: str
    why: str | None = None
    sets: tuple[str, ...] = ()


RECENT = 20
"""So many changes of sets are repeated in a generation, for the pages."""


Stored = tuple[str, ...] | Mapping[str, str]
"""The digests of bins, an empty one for a bin without names; or, from Cairn 0.1, of parts by name."""


class Generation(datafile.Value, tag_field="schema", tag="cairn.generation/2"):
    """A complete state of an index; it never changes, and the next one names it as its parent.

    Attributes:
        index: whose state it is, so that it is not taken for that of a different index.
        number: one more than its parent's; 0 is the empty state that an index begins with.
        parent: digest of the generation before; None for 0.
        action: which command made it.
        who: who ran that.
        why: the reason, where one was given.
        when: RFC 3339 in UTC.
        change_id: random, so that two writers never make the same generation.
        projects, sets: what it names, see `names.Names`: as many bins as a power of two.
        brought, removed, marked: the ids of the sets that came with it, that went, and that were changed.
        changed: how many projects differ from those of the generation before.
        serial: number of the generation that last changed which projects there are; see `ProjectState`.
        ledger: number and sha256 of the last entry that the ledger had then; None before it began.
        recent: the last changes of sets, newest first, at most `RECENT`: the pages for people show them, and
            so are the same until a set comes, goes or is marked.
    """

    index: str
    number: int
    parent: str | None
    action: Action | None
    who: str
    when: str
    change_id: str
    why: str | None = None
    projects: Stored = ()
    sets: Stored = ()
    brought: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    changed: int = 0
    serial: int = 0
    ledger: tuple[int, str] | None = None
    recent: tuple[LogEntry, ...] = ()


class Pointer(datafile.Value, tag_field="schema", tag="cairn.pointer/1"):
    """`state.json`: the current generation, and the newest one that all pages show.

    Attributes:
        generation: number of the current one.
        digest: of its bytes.
        rendered: number of the newest one that every page shows; less while a writer is at work, or has died.
        rendered_digest: of the bytes of that one.
    """

    generation: int
    digest: str
    rendered: int
    rendered_digest: str


@functools.cache
def comparable(version: str) -> Version:
    """A version to sort by; an invalid one sorts below all others, so that no page fails because of it."""
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0.dev0")


def variants_of(files: Iterable[FileEntry]) -> tuple[VariantsFile, ...]:
    """The files that describe the wheel variants among these files: one for each version that has any."""
    return tuple(dict.fromkeys(file.variants for file in files if file.variants is not None))


def encode(value: datafile.Value) -> bytes:
    """Encode a part of the state, or of the ledger, on one line."""
    # Digests are of these very bytes, so one value must always give the same: no spaces, fields in order.
    return msgspec.json.encode(value) + b"\n"


def project_of(filename: str) -> str:
    """The normalised name of the project that a wheel's or sdist's file name begins with.

    Raises:
        StoreError: it is the name of neither.
    """
    plain = filename if wheel_info.FILE_NAME.fullmatch(filename) else ""  # packaging takes any build number
    is_wheel = filename.endswith(".whl")
    try:
        wheel = wheel_info.split_label(plain)[0]
        parts = parse_wheel_filename(wheel) if is_wheel else parse_sdist_filename(plain)
        name = str(canonicalize_name(parts[0]))
    except ValueError as error:
        raise StoreError(f"{filename[:200]!r} is the name of neither a wheel nor an sdist") from error
    if not requirements.is_project_name(name):  # packaging takes the letters of every script
        raise StoreError(f"{filename[:200]!r} does not begin with the name of a project")
    return name


def version_of(filename: str) -> str:
    """The version that a wheel's or sdist's file name has, normalised; raises like `project_of`."""
    project_of(filename)
    if filename.endswith(".whl"):
        return str(parse_wheel_filename(wheel_info.split_label(filename)[0])[1])
    return str(parse_sdist_filename(filename)[1])


def digest_of(data: bytes) -> str:
    """The digest that an immutable object is stored under: sha256, in hex."""
    return hashlib.sha256(data).hexdigest()


def decode_pointer(data: bytes, *, name: str) -> Pointer:
    """Read a `state.json`.

    Raises:
        DamagedIndexError: it is damaged, or of a different version of Cairn.
    """
    try:
        return datafile.loads(data, Pointer, name=name)
    except UsageError as error:
        tip = datafile.tip_of_stored(error, "see which may be current: cairn index repair")
        raise DamagedIndexError(str(error), tip=tip) from error
