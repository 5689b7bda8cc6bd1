"""The builder's statement: which wheels a build made, of which commits and of which inputs.

It lies as `builder.json` beside `set.json`, and beside the sealed set in a store: an in-toto statement with
SLSA's provenance, about all wheels of the set at once. Promotion asks for it. It is not signed here: whoever
may write all of wheel, set.json and builder.json can make all three agree. A signature is one more file, of
the same bytes (DSSE).

The statement is held against the manifest and the wheels: each bill of materials must name the manifest's
commits.
"""

from __future__ import annotations

import hashlib
import os
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

import cairn
from cairn import datafile
from cairn.errors import CairnError, StoreError, UsageError, WheelError
from cairn.formats import cyclonedx, in_toto
from cairn.formats.in_toto import PREDICATE_TYPE, STATEMENT_TYPE, Resource
from cairn.formats.zip.reader import Archive
from cairn.output.wording import short_id
from cairn.wheels.metadata import device_names, wheel_info
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet

BUILD_TYPE = "urn:cairn:build:1"
"""How to build it again: check out the commits, take the manifest, run `cairn build` with the parameters."""

_MANIFEST = "manifest.json"  # its name among the dependencies; no project of a stack has a dot in its name
_DERIVED = "set.json"  # likewise: the set whose wheels these are under other versions
_SCHEMA = "cairn.manifest/1"

LOCAL = "urn:cairn:builder:local"
"""The id of a machine that is nobody's business: its name and its user's are not published."""


class Builder(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that ran Cairn: the "builder" in SLSA's terms.

    Attributes:
        id: the address of the workflow with its ref, or `LOCAL`.
        invocation: the address of the run; None where there is none.
        version: of Cairn.
    """

    id: str
    invocation: str | None = None
    version: str = cairn.__version__


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One project's sources.

    Attributes:
        name: of the project.
        origin: where they come from, without credentials.
        hashtag: the branch, tag or commit that was requested.
        commit: the full hash of the commit that it resolved to.
    """

    name: str
    origin: str
    hashtag: str
    commit: str


class _Submodule(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    commit: str


class _Project(Source, frozen=True, kw_only=True):
    distribution: str
    submodules: tuple[_Submodule, ...] = ()


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    projects: tuple[_Project, ...]
    recipe: str = ""


class BuildStatement(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a builder's statement about a set.

    Attributes:
        wheels: file name to sha256.
        bills: file name to the sha256 of the bill of materials in it; a device wheel has none.
        parameters: those of the set (`WheelSet.parameters`).
        manifest_sha256: of the manifest that it was built from.
        sources: the projects of that manifest with their commits, in its order.
        inputs: project to a digest of all that may change its wheel: the tree, settings, variables, tools;
            and file name to sha256 of the ROCm SDK that it was built with.
        derived_from: id of the set whose wheels these are under other versions; None for a build.
        builder: who says so.
    """

    wheels: Mapping[str, str]
    bills: Mapping[str, str]
    parameters: Mapping[str, str]
    manifest_sha256: str
    sources: tuple[Source, ...]
    inputs: Mapping[str, str]
    derived_from: str | None = None
    builder: Builder

    @property
    def sdk(self) -> dict[str, str]:
        """The files of the ROCm SDK that the build installed, name to sha256."""
        # No project of a stack has such an ending in its name.
        return {name: sha256 for name, sha256 in self.inputs.items() if name.endswith((".whl", ".tar.gz"))}


def of_set(
    wheel_set: WheelSet, wheels: Sequence[Path], *, manifest: bytes, inputs: Mapping[str, str]
) -> BuildStatement:
    """Return the builder's statement about a set that this machine has just made.

    Args:
        wheel_set: the set.
        wheels: its files.
        manifest: what they were built from, in its canonical spelling.
        inputs: see `BuildStatement`.

    Raises:
        WheelError: a wheel is not of the manifest's commits.
    """
    read = _read_manifest(manifest, wheel_set.manifest_sha256, _MANIFEST)
    expected = _bills_of(read)
    if problems := [problem for path in wheels for problem in _bill_problems(path, expected)]:
        raise WheelError(
            f"what was built is not what the manifest has: {'; '.join(problems)}",
            tip="the checkouts were moved during the build: run it again",
        )
    bills = {path.name: bill for path in wheels if (bill := _bill(path)) is not None}
    return BuildStatement(
        wheels={wheel.file_name: wheel.sha256 for wheel in wheel_set.wheels},
        bills={name: hashlib.sha256(bill).hexdigest() for name, bill in bills.items()},
        parameters=wheel_set.parameters,
        manifest_sha256=wheel_set.manifest_sha256,
        sources=_sources_of(read),
        inputs=inputs,
        derived_from=wheel_set.derived_from,
        builder=this_builder(),
    )


def of_part(statement: bytes, part: WheelSet) -> bytes:
    """Return what a builder's statement about a set says of some of its wheels, which form a set too.

    Raises:
        StoreError: it is not such a statement.
    """
    whole, names = decode(statement, name=BUILDER_FILE), {wheel.file_name for wheel in part.wheels}
    return encode(
        structs.replace(
            whole,
            wheels={name: sha256 for name, sha256 in whole.wheels.items() if name in names},
            bills={name: sha256 for name, sha256 in whole.bills.items() if name in names},
            parameters=part.parameters,
        )
    )


def problems(
    wheel_set: WheelSet, wheels: Sequence[Path], *, manifest: bytes, statement: bytes
) -> Iterator[str]:
    """The contradictions between a set, its builder's statement and the commits of its manifest.

    Args:
        wheel_set: the set, open or sealed.
        wheels: files of it, which need not be all.
        manifest: the bytes that the set names.
        statement: the builder's.
    """
    try:
        claim = decode(statement, name=BUILDER_FILE)
        read = _read_manifest(manifest, wheel_set.manifest_sha256, _MANIFEST)
    except CairnError as error:
        yield str(error)
        return
    for what, is_, claimed in (
        ("manifest", wheel_set.manifest_sha256, claim.manifest_sha256),
        ("commits", _sources_of(read), claim.sources),
        ("stack, line, Python, platform or targets", dict(wheel_set.parameters), dict(claim.parameters)),
        ("earlier set", wheel_set.derived_from, claim.derived_from),
    ):
        if is_ != claimed:
            yield f"the builder's statement is of another {what}"
    sha256_by_name = {wheel.file_name: wheel.sha256 for wheel in wheel_set.wheels}
    for name in sorted(sha256_by_name.keys() | claim.wheels.keys()):
        if sha256_by_name.get(name) != claim.wheels.get(name):
            of_build = (
                f"made it with sha256 {claim.wheels[name]}" if name in claim.wheels else "did not make it"
            )
            of_set = f"has sha256 {sha256_by_name[name]}" if name in sha256_by_name else "is not in the set"
            yield f"{name} {of_set}, and the builder says that it {of_build}"
    expected = _bills_of(read)
    for path in wheels:
        yield from _bill_problems(path, expected, sha256=claim.bills.get(path.name))


def _bill_problems(
    wheel: Path, expected: Mapping[str, Mapping[str, str]], *, sha256: str | None = None
) -> Iterator[str]:
    """The contradictions between the bill of materials in a wheel and a manifest's commits.

    Device wheels have none: they were split from a wheel that has, and that knows them by their sha256.

    Args:
        wheel: its file.
        expected: see `_bills_of`.
        sha256: the digest that the bill must have, where it is known.
    """
    project = wheel_info.parse_file_name(wheel.name).distribution
    if project not in expected:
        if not any(device_names.processor_of(project, host) for host in expected):
            yield f"{wheel.name} is of no project of the manifest"
        return
    try:
        bill = _bill(wheel)
        commits = {} if bill is None else cyclonedx.commits(bill)
    except CairnError as error:
        yield f"{wheel.name}: {error}"
        return
    if bill is None:
        yield f"{wheel.name} has no bill of materials that says which commit it is of"
        return
    if sha256 is not None and hashlib.sha256(bill).hexdigest() != sha256:
        yield f"the bill of materials in {wheel.name} is not the builder's"
    for name in sorted(expected[project].keys() | commits.keys()):
        if commits.get(name) != expected[project].get(name):
            is_, commit = commits.get(name, "nothing"), expected[project].get(name, "nothing")
            yield f"{wheel.name} is of {is_} of {name}, and the manifest has {commit}"


def _bill(wheel: Path) -> bytes | None:
    with Archive.open(wheel) as archive:
        folder = wheel_info.find_dist_info(archive, wheel_info.parse_file_name(wheel.name).distribution)
        return archive.read_any(f"{folder}/{cyclonedx.NAME}")


def beside(set_file: Path) -> bytes:
    """Read the builder's statement that lies beside a set.json.

    Raises:
        StoreError: there is none.
    """
    try:
        return set_file.with_name(BUILDER_FILE).read_bytes()
    except OSError as error:
        raise StoreError(
            f"there is no {BUILDER_FILE} beside {set_file}: nobody says that they built these wheels",
            tip="build the set again; where nothing changed, that takes seconds and builds nothing",
        ) from error


def encode(statement: BuildStatement) -> bytes:
    """Serialise a statement as JSON in UTF-8; equal statements give the same bytes."""
    earlier = [statement.derived_from] if statement.derived_from else []
    return msgspec.json.encode(
        in_toto.Statement(
            subject=tuple(
                Resource(name=n, digest={"sha256": s}) for n, s in sorted(statement.wheels.items())
            ),
            predicate=in_toto.Predicate(
                definition=in_toto.Definition(
                    build_type=BUILD_TYPE,
                    external_parameters=statement.parameters,
                    internal_parameters=statement.inputs,
                    resolved_dependencies=(
                        *dependencies(statement.manifest_sha256, statement.sources),
                        *(Resource(name=_DERIVED, digest={"sha256": digest}) for digest in earlier),
                    ),
                ),
                details=details(
                    statement.builder,
                    byproducts=tuple(
                        Resource(name=f"{name}/{cyclonedx.NAME}", digest={"sha256": sha256})
                        for name, sha256 in sorted(statement.bills.items())
                    ),
                ),
            ),
        )
    )


def decode(data: bytes, *, name: str) -> BuildStatement:
    """Read a builder's statement.

    Raises:
        StoreError: it is not such a statement.
    """
    try:
        read = datafile.convert(datafile.parse_json(data, name=name), in_toto.Statement)
        return _read(read)
    except (UsageError, msgspec.ValidationError, KeyError) as error:
        raise StoreError(f"{name} is not a builder's statement of Cairn's: {error}") from error


def _read(read: in_toto.Statement) -> BuildStatement:
    definition, how = read.predicate.definition, read.predicate.details
    kind = (read.type, read.predicate_type, definition.build_type)
    if kind != (STATEMENT_TYPE, PREDICATE_TYPE, BUILD_TYPE):
        raise UsageError(f"it is of the types {', '.join(kind)[:200]}")
    if len({subject.name for subject in read.subject}) != len(read.subject):
        raise UsageError("it names a file twice")
    derived = [r.digest["sha256"] for r in definition.resolved_dependencies if r.name == _DERIVED]
    manifest_sha256, sources = read_dependencies(definition.resolved_dependencies)
    return BuildStatement(
        wheels={subject.name: subject.digest["sha256"] for subject in read.subject},
        bills={r.name.removesuffix(f"/{cyclonedx.NAME}"): r.digest["sha256"] for r in how.byproducts},
        parameters=definition.external_parameters,
        manifest_sha256=manifest_sha256,
        sources=sources,
        inputs=definition.internal_parameters,
        derived_from=derived[0] if derived else None,
        builder=read_builder(how),
    )


def dependencies(manifest_sha256: str, sources: Sequence[Source]) -> tuple[Resource, ...]:
    """Return a manifest and its commits as the dependencies of a build."""
    # As SPDX and pip write it. An `@` in the hashtag would be read as the one before it.
    at = [
        (source, f"git+{source.origin}@{urllib.parse.quote(source.hashtag, safe='/+')}") for source in sources
    ]
    return (
        Resource(name=_MANIFEST, digest={"sha256": manifest_sha256}),
        *(Resource(name=source.name, uri=uri, digest={"gitCommit": source.commit}) for source, uri in at),
    )


def read_dependencies(resources: Sequence[Resource]) -> tuple[str, tuple[Source, ...]]:
    """Return the manifest's digest and the commits that `dependencies` wrote.

    Raises:
        UsageError: the resources were not written by `dependencies`.
    """
    manifest = [r.digest for r in resources if r.name == _MANIFEST]
    if len(manifest) != 1 or set(manifest[0]) != {"sha256"}:
        raise UsageError("it does not name its wheels and one manifest by their sha256")
    sources = tuple(_source(r) for r in resources if r.name not in (_MANIFEST, _DERIVED))
    return manifest[0]["sha256"], sources


def details(who: Builder, *, byproducts: tuple[Resource, ...] = ()) -> in_toto.Details:
    """Return the in-toto run details for a builder."""
    return in_toto.Details(
        builder=in_toto.Builder(id=who.id, version={"cairn": who.version}),
        metadata=in_toto.Metadata(invocation_id=who.invocation),
        byproducts=byproducts,
    )


def read_builder(how: in_toto.Details) -> Builder:
    """Return the builder that `details` wrote."""
    version = how.builder.version.get("cairn", "unknown")
    return Builder(id=how.builder.id, invocation=how.metadata.invocation_id, version=version)


def _source(resource: Resource) -> Source:
    origin, at, hashtag = resource.uri.removeprefix("git+").rpartition("@")
    if not at or set(resource.digest) != {"gitCommit"} or not resource.uri.startswith("git+"):
        raise UsageError(f"it says of {resource.name!r} neither an origin nor a commit")
    return Source(
        name=resource.name,
        origin=origin,
        hashtag=urllib.parse.unquote(hashtag),
        commit=resource.digest["gitCommit"],
    )


def sources_in(data: bytes, *, sha256: str, name: str) -> tuple[Source, ...]:
    """Read the commits in a manifest, which must have this digest.

    Whoever releases or checks wheels needs no more of a manifest than its digest and its commits, and does
    not depend on the part of Cairn that makes checkouts.

    Args:
        data: the manifest in its canonical spelling, as a store keeps it.
        sha256: the digest by which a set names it.
        name: stands for it in errors.

    Raises:
        StoreError: it is a different manifest, was changed, or is of another version.
    """
    return _sources_of(_read_manifest(data, sha256, name))


def _sources_of(manifest: _Manifest) -> tuple[Source, ...]:
    fields = Source.__struct_fields__
    return tuple(Source(**{name: getattr(project, name) for name in fields}) for project in manifest.projects)


def _bills_of(manifest: _Manifest) -> dict[str, dict[str, str]]:
    """The commits that each bill of materials must name: by distribution, repository to commit."""
    return {
        str(canonicalize_name(project.distribution)): {
            project.name: project.commit,
            **{module.path: module.commit for module in project.submodules},
        }
        for project in manifest.projects
    }


def recipe_in(data: bytes, *, sha256: str) -> str:
    """Read the digest of the recipe in a manifest, likewise; empty where it names none."""
    return _read_manifest(data, sha256, _MANIFEST).recipe


def _read_manifest(data: bytes, sha256: str, name: str) -> _Manifest:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise StoreError(f"{name} was changed: it is not the manifest {short_id(sha256)} that the set names")
    try:
        read = datafile.decode(data, _Manifest)
    except msgspec.DecodeError as error:
        raise StoreError(f"{name} is not a manifest: {error}") from error
    if read.schema != _SCHEMA:
        raise StoreError(f"{name} has schema {read.schema[:100]!r}, expected {_SCHEMA!r}")
    return read


def this_builder(environ: Mapping[str, str] | None = None) -> Builder:
    """This machine as a builder, by the variables that GitHub Actions sets for each step.

    The id is the one that GitHub's own attestations have and that Fulcio puts into the certificate of a
    workflow (`<server>/<owner>/<repository>/.github/workflows/<file>@<ref>`).
    """
    variables = os.environ if environ is None else environ
    needed = ("GITHUB_SERVER_URL", "GITHUB_WORKFLOW_REF", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    if variables.get("GITHUB_ACTIONS") != "true" or not all(variables.get(name) for name in needed):
        return Builder(id=LOCAL)
    server, workflow, repository, run = (variables[name] for name in needed)
    attempt = variables.get("GITHUB_RUN_ATTEMPT") or "1"
    return Builder(
        id=f"{server}/{workflow}", invocation=f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}"
    )
