"""A night whose ROCm SDK comes from an index: its files are staged, promoted and collected with the set."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cairn import stack as stacks
from cairn.errors import GateError, SourceError, StoreError, TestsFailedError
from cairn.files import sha256_of
from cairn.output import console
from cairn.pipeline import staging
from cairn.pipeline.night import plan
from cairn.release.index import keys
from cairn.release.index.snapshot import Index, read_set
from cairn.release.publish import mirror_lock
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.release.publish.sdk_index import device_packages as packages_of_device_code
from cairn.release.trust import anchor
from cairn.sources.manifest import manifest
from cairn.store.folder import LocalStore
from cairn.wheels.wheelset import WheelSet
from helpers import packing, sample, sdk_index, tiny_stack
from helpers.sdk_index import Place
from helpers.trust import rooted
from helpers.whl_next import WhlNext

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sdk-in-closure")]

STAGING, NIGHTLY = (f"{channel}/{sdk_index.FAMILY}" for channel in ("staging", "nightly"))
SDK = [
    f"rocm-{sdk_index.VERSION}.tar.gz",
    f"rocm_sdk_core-{sdk_index.VERSION}-py3-none-{tiny_stack.HERE.platform}.whl",
    f"rocm_sdk_libraries_gfx94x_dcgpu-{sdk_index.VERSION}-py3-none-any.whl",
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("sdk-in-closure")
    sdk_index.write_packages(folder / "sdk")
    sdk_index.write_stack(folder / "stack")
    with WhlNext(folder / "sdk").serving() as index, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "cache"))
        place = Place(folder, index)
        frozen = place.freeze()
        assert frozen.code == 0, frozen.err
        (leg,) = frozen.answer["missing"]
        made = place.build(leg)
        assert made.code == 0, made.err
        yield place


@pytest.fixture
def place(built: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The night as its build has left it; what a test does to the index of the SDK is undone."""
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("store", "artifacts", "stack", "sdk"):
        shutil.copytree(built.folder / name, tmp_path / name, symlinks=True)
    built.index.folder = tmp_path / "sdk"
    yield Place(tmp_path, built.index)
    built.index.folder, built.index.hashed = built.folder / "sdk", False
    built.index.hidden, built.index.down = [], False


def test_the_sdk_of_a_build_is_staged_and_promoted_with_its_set(place: Place) -> None:
    ended = place.stage()
    assert ended.code == 0, ended.err
    (leg,) = ended.answer
    assert leg["set"], leg["reason"]
    made = read_set(place.store, leg["set"])
    assert [file.file_name for file in made.closure] == SDK
    assert {file.origin for file in made.closure} == {"rocm-sdk"}
    assert leg["sdk_size"] == sum(file.size for file in made.closure)
    tested = place.night("step", "test", "--leg", leg["leg"], "--output-dir", place.folder / "tests")
    assert tested.code == 0, tested.err
    promoted = place.night("promote", "--json")
    assert promoted.code == 0, promoted.err + promoted.out
    assert promoted.answer["legs"][0]["promoted"], promoted.out
    listed = Index(place.store, NIGHTLY).load().set(made.id)
    judged = place.store.read(keys.set_key(made.id, f"judgements/{listed.judgement}.json")).data.decode()
    assert "no finding in 3 wheels and 1 sdist" in judged
    report = place.night("report", "--json")
    size = console.size(leg["sdk_size"])
    assert report.answer["counts"].endswith(f"; {size} of the ROCm SDK added to the store"), report.out
    # The index alone is enough, and is whole.
    python, site = sample.empty_environment(place.folder / "user")
    url = keys.index_url((place.folder / "store").as_uri(), NIGHTLY)
    sample.process.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--index-url", url, "tiny"],
        env=sample.environment(),
        confined=False,
    )
    assert (site / "_rocm_sdk_core/lib/libamdhip64.so.7").is_file()
    assert place.types("index", "check", "--store", place.folder / "store").code == 0
    # The second leg that needs the same files fetches none.
    again = place.stage()
    assert [(one["kept"], one["sdk_size"]) for one in again.answer] == [(True, 0)]


def test_a_package_that_does_not_import_goes_to_no_channel_though_nobody_has_its_gpu(place: Place) -> None:
    shutil.rmtree(place.folder / "store")
    origin, toml = place.folder / "stack/origin", place.folder / "stack/stack.toml"
    toml.write_text(re.sub(r'url = ".*"', f'url = "{origin}"', toml.read_text()))
    (origin / "tiny/__init__.py").write_text("raise RuntimeError('no such device')\n")
    tiny_stack.commit(place.folder / "stack", "Break it")
    (leg,) = place.freeze().answer["missing"]
    shutil.rmtree(place.folder / "artifacts")
    assert place.build(leg).code == 0
    (staged,) = place.stage().answer
    assert staged["set"], staged["reason"]
    tested = place.night("step", "test", "--leg", leg, "--output-dir", place.folder / "tests")
    assert "test_imports[tiny]: import tiny: RuntimeError: no such device" in tested.err
    assert tested.code == TestsFailedError.exit_code
    assert not place.night("promote", "--json").answer["legs"][0]["promoted"]
    stack = ("--stack", place.folder / "stack", "--store", place.folder / "store")
    assert place.types("release", "night", "1", *stack).code == GateError.exit_code
    for channel in ("nightly", "untested", "release"):
        assert not list(Index(place.store, f"{channel}/{sdk_index.FAMILY}").load().sets())


def test_a_stack_that_was_edited_since_its_freeze_is_neither_built_nor_staged(place: Place) -> None:
    toml = place.folder / "stack/stack.toml"
    toml.write_text(f"{toml.read_text()}\n# Edited.\n")
    (leg,) = plan.read(place.store, "1").legs
    for ended, code in ((place.stage(), 10), (place.build(leg.id), 4)):
        assert ended.code == code, ended
        assert "not the frozen one: stack.toml (changed)" in ended.err
        assert "cairn ci night freeze" in ended.err
    assert not any(place.store.list("files/"))


def test_a_file_that_was_changed_since_the_build_is_refused_by_name(place: Place) -> None:
    changed = packing.write_wheel(
        place.folder / "sdk", "rocm-sdk-libraries-gfx94x-dcgpu", sdk_index.VERSION, {"evil.py": ""}
    )
    (leg,) = place.stage().answer
    assert leg["set"] is None
    assert re.search(rf"/{changed.name} has other bytes: sha256 \w+, and not ", leg["reason"])
    place.index.hashed = True
    (leg,) = place.stage().answer
    assert f"{place.url} has {changed.name} with sha256 " in leg["reason"]
    assert not any(place.store.list("files/"))


def test_a_file_that_the_index_has_dropped_is_named_and_can_be_published_by_hand(place: Place) -> None:
    (gone,) = (place.folder / "sdk").glob("rocm_sdk_core-*")
    kept = gone.rename(place.folder / gone.name)
    ended = place.stage()
    (leg,) = ended.answer
    assert leg["set"] is None
    assert f"{place.url} has no {gone.name} any more; it has rocm {sdk_index.VERSION}" in leg["reason"]
    line = re.search(r"cairn (index publish) FILE … (--store \S+ --index \S+)", leg["reason"])
    assert line, leg["reason"]
    by_hand = place.types(*line[1].split(), kept, *line[2].split())
    assert by_hand.code == 0, by_hand.err
    (leg,) = place.stage().answer
    assert leg["set"], leg["reason"]


def test_a_store_with_a_root_takes_what_was_reviewed_and_nothing_else(place: Place) -> None:
    (folder,) = (place.folder / "artifacts").iterdir()
    stack, store = stacks.load(place.folder / "stack"), LocalStore(place.folder / "rooted")
    sdk = {path.name: sha256_of(path) for path in (place.folder / "sdk").iterdir()}
    here = tiny_stack.HERE

    def stage(reviewed: Mapping[str, str]) -> WheelSet:
        lock = MirrorLock(stack="tiny", pythons=(here.version,), platforms=(here.platform,), sdk=reviewed)
        mirror_lock.write(mirror_lock.path_of(stack), lock)
        return staging.stage_set(
            store,
            STAGING,
            folder,
            list(folder.glob("*.whl")),
            stack=stack,
            platform=Platform(python=here.version, tag=here.platform),
            manifest=manifest.read(folder / "manifest.json").canonical(),
            attester=None,
            sdk_url=place.url,
        )

    with anchor.acting(root=rooted(store).fingerprint):
        others = {name: sha256 for name, sha256 in sdk.items() if name != SDK[1]}
        for reviewed in ({}, others, {**others, SDK[1]: "0" * 64}):
            with pytest.raises(StoreError, match=f"was not reviewed: .*{SDK[1]} with sha256 "):
                stage(reviewed)
            assert not any(store.list("files/"))
        # All of it is copied; the set is refused, since the lock is of the recipe, which was frozen without.
        with pytest.raises(SourceError, match="is not the frozen one"):
            stage(sdk)
        listed = Index(store, STAGING).load().projects()
        assert [file.filename for project in listed for file in project.files] == SDK


def test_packages_of_device_code_are_named_by_the_index_alone(place: Place) -> None:
    """A build that leaves device wheels installs none of them, and its device wheels need them."""
    here = Platform(python=tiny_stack.HERE.version, tag=tiny_stack.HERE.platform)
    made = [
        packing.write_wheel(
            place.folder / "sdk", f"rocm-sdk-device-{gpu}", version, {}, tag=f"py3-none-{tag}"
        )
        for gpu, version, tag in (
            ("gfx942", sdk_index.VERSION, here.tag),
            ("gfx942", sdk_index.VERSION, "win_arm64"),
            ("gfx942", "7.11.0", here.tag),
            ("gfx90a", sdk_index.VERSION, here.tag),
        )
    ]
    url = place.url
    named = packages_of_device_code(url, sdk_index.VERSION, ["gfx942", "gfx950"], here)
    assert named == {made[0].name: sha256_of(made[0])}


def test_a_version_that_the_index_has_dropped_is_named_with_what_it_has(place: Place) -> None:
    packing.write_wheel(place.folder / "sdk", "rocm", "7.12.0", {"rocm/__init__.py": ""})
    (leg,) = plan.read(place.store, "1").legs
    place.index.hidden = [f"rocm-{sdk_index.VERSION}"]
    ended = place.build(leg.id)
    assert ended.code == 2, ended
    assert f"has no rocm[libraries,devel]=={sdk_index.VERSION}; it has rocm 7.12.0" in ended.err
    new = ("--rocm-version", sdk_index.VERSION)
    again = dataclasses.replace(place, folder=place.folder / "again")
    shutil.copytree(place.folder / "stack", again.folder / "stack")
    assert f"has no ROCm {sdk_index.VERSION}; it has rocm 7.12.0" in again.freeze(*new).err
    place.index.down = True
    assert "cannot read" in (err := again.freeze().err)
    assert "it answers 503" in err


def test_a_lock_and_a_build_for_a_gpu_take_the_sdk_of_the_index(place: Place) -> None:
    stack = ("--stack", place.folder / "stack")
    locked = place.types("index", "mirror", "lock", *stack, "--rocm-index-url", place.url)
    assert locked.code == 0, locked.err
    lock = mirror_lock.read(place.folder / "stack" / mirror_lock.FILE)
    assert lock.sdk == {path.name: sha256_of(path) for path in (place.folder / "sdk").iterdir()}
    assert set(lock.unverified) == lock.sdk.keys()
    where = ("--root-checkout-dir", place.folder / "src", "--output-dir", place.folder / "out")
    ended = place.types("build", "--gpu", "gfx942", *stack, "--index-url", place.url, *where)
    assert ended.code == 0, ended.err
    assert f"ROCm SDK  {sdk_index.VERSION} of {place.url}" in ended.err
    assert list((place.folder / "out").glob("tiny-*.whl"))
