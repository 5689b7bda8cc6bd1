"""Whether an index as it will be leads an installer to exactly a set."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import msgspec
import pytest

from cairn.release.index import keys, listing
from cairn.release.index.generation import ProjectState
from cairn.release.index.render import project_page
from cairn.release.index.snapshot import Change, Index, Snapshot, refs_of
from cairn.release.publish.files import publish
from cairn.release.publish.resolve import resolve_set
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.release import make_set, make_wheel, make_wheels, move, put, stage_set

TAG = "cp311-cp311-linux_x86_64"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryStore, WheelSet]:
    store, folder = MemoryStore(), tmp_path_factory.mktemp("built")
    publish(store, "staging", make_wheels(folder, {"numpy 1.0": [], "einsum 1.0": [], "core 1.0": []}))
    return store, stage_set(store, "staging", *three(folder, "2.9.0"), requirements=["core"])


@pytest.fixture
def store(built: tuple[MemoryStore, WheelSet]) -> MemoryStore:
    """A store that has `sealed` in staging."""
    return MemoryStore(built[0].objects)


@pytest.fixture
def sealed(built: tuple[MemoryStore, WheelSet]) -> WheelSet:
    return built[1]


def three(folder: Path, version: str) -> tuple[WheelSet, list[Path]]:
    requires = ["numpy>=1", 'einsum; extra == "opt"']
    torch = make_wheel(folder, "torch", version, requires=requires, extras=["opt"], tag=TAG)
    others = [
        make_wheel(folder, name, version, requires=[f"torch=={version}", "numpy"], tag=TAG)
        for name in ("torchvision", "torchaudio")
    ]
    return make_set([torch, *others]), [torch, *others]


def release(store: MemoryStore, sealed: WheelSet) -> Snapshot:
    """`release` as it would be with the set, before anything is written."""
    source, target = Index(store, "staging").load(), Index(store, "release").load()
    entry = listing.index_set(sealed)
    return target.with_change(listing.change_to_promote(source, target, sealed, entry=entry))


def test_an_index_with_the_set_leads_to_exactly_its_files(
    store: MemoryStore, sealed: WheelSet, tmp_path: Path
) -> None:
    assert resolve_set(release(store, sealed), sealed).problems == ()
    assert not Index(store, "release").load().exists
    # A newer dependency of the index would be installed instead.
    publish(store, "staging", [make_wheel(tmp_path, "numpy", "1.1")])
    assert resolve_set(Index(store, "staging").load(), sealed).problems == (
        "an installer takes numpy-1.1-py3-none-any.whl, and the set has numpy-1.0-py3-none-any.whl",
    )
    assert resolve_set(release(store, sealed), sealed).problems == ()


def test_the_installed_size_is_that_of_all_its_files(store: MemoryStore, sealed: WheelSet) -> None:
    total = 0
    for ref in refs_of(sealed):
        with zipfile.ZipFile(io.BytesIO(store.read(keys.file_key(ref.sha256, ref.filename)).data)) as wheel:
            total += sum(entry.file_size for entry in wheel.infolist())
    assert release(store, sealed).set(sealed.id).installed == total > 0
    # What an earlier Cairn published does not say.
    source, target = Index(store, "staging").load(), Index(store, "release").load()
    numpy = source.project("numpy")
    old = ProjectState(name="numpy", files=tuple(msgspec.structs.replace(f, unpacked=0) for f in numpy.files))
    source = source.with_change(Change(projects={"numpy": old}))
    change = listing.change_to_promote(source, target, sealed, entry=listing.index_set(sealed))
    assert change.sets[sealed.id].installed == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("numpy", "release lacks numpy>=1, wanted by torch-2.9.0"),
        ("einsum", "release lacks einsum, wanted by torch-2.9.0"),
        ("core", "release lacks core, wanted by the caller"),
        ("torchaudio", "release lacks torchaudio==2.9.0, wanted by the caller"),
    ],
)
def test_what_the_index_would_lack_is_named(
    store: MemoryStore, sealed: WheelSet, name: str, said: str
) -> None:
    source, target = Index(store, "staging").load(), Index(store, "release").load()
    change = listing.change_to_promote(source, target, sealed, entry=listing.index_set(sealed))
    less = Change(projects={key: value for key, value in change.projects.items() if key != name})
    problems = resolve_set(target.with_change(less), sealed).problems
    assert any(problem.startswith(said) for problem in problems)
    assert any(problem.startswith(f"an installer takes no {name}, and the set has") for problem in problems)


def test_other_bytes_under_the_name_of_a_dependency_are_named(store: MemoryStore, sealed: WheelSet) -> None:
    snapshot = release(store, sealed)
    numpy = snapshot.project("numpy")
    (file,) = numpy.files
    evil = msgspec.structs.replace(file, sha256="e" * 64)
    key = keys.sidecar_key(file.sha256, file.filename)
    store.write(keys.sidecar_key(evil.sha256, file.filename), store.read(key).data)
    projects = {**snapshot.changed.projects, "numpy": ProjectState(name="numpy", files=(evil,))}
    changed = Index(store, "release").load().with_change(Change(projects=projects))
    assert resolve_set(changed, sealed).problems == (
        "numpy-1.0-py3-none-any.whl has other bytes than in the set",
    )


def test_what_an_installer_reads_is_pages_and_metadata_of_what_it_takes(
    store: MemoryStore, sealed: WheelSet
) -> None:
    snapshot = release(store, sealed)
    pages = [
        project_page(project, prefix=keys.simple_prefix("release")).json for project in snapshot.projects()
    ]
    sidecars = [store.read(keys.sidecar_key(file.sha256, file.file_name)).data for file in sealed.files]
    expected = sum(map(len, pages)) + sum(map(len, sidecars))
    assert resolve_set(snapshot, sealed).metadata_bytes == expected


def test_of_sixty_nightlies_one_set_is_chosen_by_less_than_a_megabyte(
    store: MemoryStore, sealed: WheelSet, tmp_path: Path
) -> None:
    older = [path for night in range(60) for path in three(tmp_path, f"2.8.0.dev{20260101 + night}")[1]]
    put(store, "release", older)
    move(store, sealed)
    found = resolve_set(Index(store, "release").load(), sealed)
    assert found.problems == ()
    assert found.metadata_bytes < 1_000_000
