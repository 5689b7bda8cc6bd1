"""Small real distributions, built the way the formats say, for the tests of the index."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from cairn import datafile
from cairn.formats import cyclonedx
from cairn.release.audit import audit as check
from cairn.release.gate.judgement import Demand, GateReport
from cairn.release.index import keys, listing, render
from cairn.release.index.commit import attempts
from cairn.release.index.generation import Action, Pointer, digest_of, encode
from cairn.release.index.names import Bin
from cairn.release.index.snapshot import Change, Index, Snapshot, empty
from cairn.release.provenance.attest import Attester
from cairn.release.publish import distribution, stage
from cairn.release.publish.files import publish_dists
from cairn.sources.manifest.manifest import Manifest, ProjectSource
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import OnBytes, Store, no_progress
from cairn.wheels import build_statement, sbom, wheels_to_set
from cairn.wheels.metadata import wheel_info
from cairn.wheels.wheelset import WheelSet
from helpers import packing

# An in-tree build backend (PEP 517, backend-path): it needs nothing from any index.
BACKEND = packing.backend("""
import os

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    pkg_info = Path("PKG-INFO").read_text()
    fields = dict(line.split(": ", 1) for line in pkg_info.splitlines() if ": " in line)
    name, version = fields["Name"], fields["Version"]
    stem = name.replace("-", "_")
    lines = ["Metadata-Version: 2.2", f"Name: {name}", f"Version: {version}", "Dynamic: Requires-Dist"]
    lines += [f"Requires-Dist: {text}" for text in os.environ.get("TEST_SDIST_REQUIRES", "").split()]
    members = {
        f"{stem}/__init__.py": "BUILT_FROM_SDIST = True\\n",
        f"{stem}-{version}.dist-info/METADATA": "\\n".join([*lines, ""]),
    }
    return write_wheel(wheel_directory, name, version, members).name
""")


def _metadata(
    name: str,
    version: str,
    requires: Sequence[str],
    extras: Sequence[str] = (),
    python: str | None = None,
    metadata_version: str = "2.2",
) -> str:
    lines = [f"Metadata-Version: {metadata_version}", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {python}"] if python else []
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    return "\n".join(lines) + "\n"


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    extras: Sequence[str] = (),
    python: str | None = ">=3.9",
    tag: str = "py3-none-any",
    content: str | None = None,
    summary: str | None = None,
) -> Path:
    """A wheel with one module that says its version."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    members = {
        f"{stem}/__init__.py": content if content is not None else f"VERSION = {version!r}\n",
        f"{info}/METADATA": _metadata(name, version, requires, extras, python)
        + (f"Summary: {summary}\n" if summary else ""),
        f"{info}/{cyclonedx.NAME}": bill_of(name, version),
    }
    return packing.write_wheel(folder, name, version, members, tag=tag)


def make_wheels(folder: Path, contents: Mapping[str, Sequence[str]]) -> list[Path]:
    """Wheels by `NAME VERSION`, with what each requires; they have the extras of which that speaks."""
    wheels = []
    for title, requires in contents.items():
        name, version = title.split()
        extras = sorted(set(re.findall(r'extra == "(.+?)"', " ".join(requires))))
        wheels.append(make_wheel(folder, name, version, requires=requires, extras=extras))
    return wheels


def commit_of(project: str) -> str:
    """The commit that wheels of a project are of."""
    return hashlib.sha1(project.encode(), usedforsecurity=False).hexdigest()


def bill_of(name: str, version: str) -> str:
    """The bill of materials that a build leaves in a wheel."""
    project = str(canonicalize_name(name))
    source = cyclonedx.Source(name=project, commit=commit_of(project))
    return cyclonedx.document(project, version, sources=[source], rocm_version=None).decode()


def with_bill(wheel: Path) -> Path:
    """The wheel, with the bill of materials that a build would have left in it."""
    name = wheel_info.read(wheel).distribution
    source = cyclonedx.Source(name=name, commit=commit_of(name))
    return sbom.add(wheel, wheel.with_name("with-bill"), sources=[source], rocm_version=None)


def make_sdist(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    dynamic: bool = True,
    build_requires: Sequence[str] = (),
    metadata_version: str = "2.2",
) -> Path:
    """An sdist with a build backend of its own; `dynamic` ones decide their requirements when built."""
    stem = name.replace("-", "_")
    info = _metadata(name, version, requires, metadata_version=metadata_version)
    if dynamic:
        info += "Dynamic: Requires-Dist\n"
    wanted = ", ".join(f'"{requirement}"' for requirement in build_requires)
    project = f'[build-system]\nrequires = [{wanted}]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for member, text in {"PKG-INFO": info, "pyproject.toml": project, "backend.py": BACKEND}.items():
            entry = tarfile.TarInfo(f"{stem}-{version}/{member}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def put(store: Store, index: str, files: Sequence[Path]) -> None:
    """Have an index hold these files already, a gated one too."""
    publish_dists(Index(store, index), [distribution.read(path) for path in files], "publish")


def audit(store: Store, index: str, *, hashes: bool) -> tuple[str, ...]:
    """What the audit says is wrong with an index."""
    found = check.audit(store, hashes=hashes)
    if index not in found.indexes:
        check.audit(store, (index,))  # which refuses it
    return tuple(problem.said for problem in found.problems if problem.index in (index, None))


def keys_of(store: Store, prefix: str = "") -> list[str]:
    """The keys in a store that begin so."""
    return [listed.key for listed in store.list(prefix)]


def contents(store: Store, prefix: str = "") -> dict[str, bytes]:
    """What a store holds under the keys that begin so."""
    return {key: store.read(key).data for key in keys_of(store, prefix)}


def in_folder(store: MemoryStore, path: Path) -> LocalStore:
    """A copy of a store in a folder, where commands can open it."""
    folder = LocalStore(path)
    for key, data in store.objects.items():
        folder.write(key, data)
    return folder


def fill(store: MemoryStore, other: MemoryStore) -> None:
    """Have a store hold what another one does."""
    store.objects.update(other.objects)
    store.modified.update(other.modified)


def make_set(
    wheels: Sequence[Path],
    *,
    family: str = "cpu",
    targets: Sequence[str] = ("cpu",),
    python: str = "3.11",
    platform: str = "linux_x86_64",
    recipe: str = "",
) -> WheelSet:
    """The set of these wheels, for Python 3.11 on Linux unless it says otherwise."""
    return wheels_to_set.make(
        wheels,
        manifest_sha256=hashlib.sha256(manifest_of(python, platform, recipe)).hexdigest(),
        stack="sample",
        line="main",
        python=python,
        platform=platform,
        family=family,
        targets=tuple(targets),
    )


PROJECTS = ("triton", "torch", "torchaudio", "torchvision", "alpha", "beta", "alone", "a", "b", "x")
"""Those that the sets of these tests are of."""


def projects_of(*names: str) -> tuple[ProjectSource, ...]:
    """What a manifest has of projects whose wheels `make_wheel` makes."""
    return tuple(
        ProjectSource(
            name=name,
            distribution=name,
            origin=f"https://git.example/{name}.git",
            hashtag="main",
            commit=commit_of(name),
            tree=commit_of(name),
        )
        for name in names
    )


def manifest_of(python: str = "3.11", platform: str = "linux_x86_64", recipe: str = "") -> bytes:
    """A manifest of the stack `sample`, for one Python and platform and many targets."""
    gpus = ("gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1102", "gfx1103")
    return Manifest(
        stack="sample",
        line="main",
        projects=projects_of(*PROJECTS),
        targets=("cpu", *gpus),
        pythons=(python,),
        platform=platform,
        recipe=recipe,
    ).canonical()


MANIFEST = manifest_of()
"""What the sets of these tests were built from, unless they are for a different place."""


def stage_set(
    store: Store,
    index: str,
    made: WheelSet,
    wheels: Sequence[Path],
    *,
    requirements: Sequence[str] = (),
    attester: Attester | None = None,
    recipe: str = "",
) -> WheelSet:
    """Seal and publish a set that `make_set` made."""
    manifest = manifest_of(made.python, made.platform, recipe)
    return stage.stage_set(
        store,
        index,
        made,
        wheels,
        manifest=manifest,
        statement=statement_of(made, wheels, manifest),
        requirements=requirements,
        attester=attester,
    )


def statement_of(
    made: WheelSet,
    wheels: Sequence[Path],
    manifest: bytes | None = None,
    built_with: Mapping[str, str] | None = None,
) -> bytes:
    """What the builder of a set says of it; `built_with` are files of the SDK, by name, with their sha256."""
    frozen = manifest or manifest_of(made.python, made.platform)
    inputs = {**(built_with or {}), **{wheel.distribution: "0" * 64 for wheel in made.wheels}}
    return build_statement.encode(build_statement.of_set(made, wheels, manifest=frozen, inputs=inputs))


def commit(
    index: Index, action: Action, plan: Callable[[Snapshot], Change], *, why: str | None = None
) -> Snapshot:
    """Make the change of an index that `plan` proposes of what it is; the index afterwards."""
    for attempt in attempts(index):
        if attempt.commit(plan(attempt.before), action, why=why):
            break
    return index.load()


def move(
    store: Store,
    made: WheelSet,
    *,
    origin: str = "staging",
    target: str = "release",
    untested: str | None = None,
    judged: bool = True,
) -> tuple[str, ...]:
    """Offer a sealed set of staging elsewhere as if the gate had let it; the files that are new there."""
    source, there = Index(store, origin).load(), Index(store, target)
    demand = Demand(number=1, name="none", outcome="met", reason="this is a test")
    said = GateReport(set_id=made.id, target=target, judged="", demands=(demand,), untested=())
    judgement = datafile.dumps(said).encode()
    digest = hashlib.sha256(judgement).hexdigest()
    store.write(keys.set_key(made.id, f"judgements/{digest}.json"), judgement)
    entry = msgspec.structs.replace(
        listing.index_set(made), untested=untested, judgement=digest if judged else None
    )
    before = there.load()

    def plan(now_there: Snapshot) -> Change:
        if made.id in now_there.set_ids:
            return Change()
        return listing.change_to_promote(source, now_there, made, entry=entry)

    after = commit(there, "promote", plan, why=untested)
    names = {name: {f.filename for f in before.project(name).files} for name in after.project_names}
    fresh = [f.filename for p in after.projects() for f in p.files if f.filename not in names[p.name]]
    return tuple(sorted(fresh))


class Broken(Exception):  # noqa: N818 - what a crash looks like from inside
    pass


def die_before_pages(store: Store, index: str) -> None:
    """Have the writer of an index's last generation not have written its pages."""
    now = Index(store, index).load()
    assert now.pointer is not None
    parent = now.generation.parent or digest_of(encode(empty(index)))
    pointer = msgspec.structs.replace(now.pointer, rendered=now.generation.number - 1, rendered_digest=parent)
    store.write(keys.state_key(index), encode(pointer))


class Breaking(MemoryStore):
    """A copy of a store whose n-th write, of any kind, does not happen; nor does any after it."""

    def __init__(self, before: MemoryStore, *, left: int) -> None:
        super().__init__(before.objects)
        self.left = left
        self.written: list[str] = []

    def _count(self, key: str) -> None:
        if self.left <= 0:
            raise Broken(key)
        self.left -= 1
        self.written.append(key)

    def write(self, key: str, data: bytes) -> None:
        self._count(key)
        super().write(key, data)

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        self._count(key)
        return super().write_if(key, data, etag=etag)

    def put_file(
        self,
        key: str,
        source: Path,
        *,
        sha256: str | None = None,  # noqa: ARG002 - as the protocol has it
        on_bytes: OnBytes = no_progress,
    ) -> bool:
        self._count(key)
        super().write(key, source.read_bytes())
        on_bytes(source.stat().st_size)
        return True

    def delete(self, key: str) -> None:
        self._count(key)
        super().delete(key)


def with_forged_page(store: Store) -> dict[str, bytes]:
    """Write a state of `release` that names a forged page of torch 2.0, and that page; its bytes by key."""
    index = Index(store, "release")
    now, forged = index.load(), {}
    for kind in ("html", "json"):
        key = f"{keys.simple_prefix('release')}torch/index.{kind}"
        forged[key] = store.read(key).data.replace(b"torch-2.0-py3", b"torch-6.6-py3")
        store.write(key, forged[key])
    html, plain = forged.values()
    page = render.Page(html=html, json=plain).digest
    part = index.put_part(structs.replace(now.project("torch"), page=page))
    names = index.put_part(Bin(projects={**now.project_parts.whole(), "torch": part}))
    data = encode(structs.replace(now.generation, projects=(names,)))
    number, digest = now.generation.number, digest_of(data)
    store.write(keys.generation_key("release", number, digest), data)
    pointer = Pointer(generation=number, digest=digest, rendered=number, rendered_digest=digest)
    store.write(keys.state_key("release"), encode(pointer))
    return forged
