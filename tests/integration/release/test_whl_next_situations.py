"""AMD's index while it is being published, or has dropped what it had: a build, a night and a lock from it.

What `cairn install` does then is in test_whl_next.py; staging and a store with a root, in
test_sdk_in_closure.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.pipeline.night import plan
from cairn.release.publish import mirror_lock
from helpers import sdk_index
from helpers.sdk_index import Ended, Place
from helpers.whl_next import WhlNext

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("whl-next-situations")]

SCRIPT = Path(__file__).parents[3] / "external-builds/pytorch/build_prod_wheels.py"
NEW, OLD = sdk_index.VERSION, "7.9.0"
# What the pages leave out, which version is taken then, and what is said of the newer one.
SITUATIONS = {
    "whole": ([], NEW, ""),
    "sibling": ([f"rocm_sdk_devel-{NEW}"], OLD, f"ROCm {NEW} without rocm-sdk-devel"),
    "family": ([f"rocm_sdk_device_gfx942-{NEW}"], OLD, f"ROCm {NEW} without rocm-sdk-device-gfx942"),
    "page": (["rocm_sdk_libraries-"], "", "without rocm-sdk-libraries"),
    "gone": ([f"rocm{part}-{NEW}" for part in ("", "_sdk_core", "_sdk_devel", "_sdk_libraries")], OLD, ""),
}
situations = pytest.mark.parametrize(("hidden", "version", "lacks"), SITUATIONS.values(), ids=SITUATIONS)
in_part = pytest.mark.parametrize("name", ["sibling", "family"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ROCm builds side by side, with device code apart, and a stack that takes its SDK of an index."""
    folder = tmp_path_factory.mktemp("situations")
    for version in (OLD, NEW):
        sdk_index.write_packages(folder / "sdk", version, targets=("gfx942",))
    sdk_index.write_stack(folder / "stack")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("stack", "sdk"):
        shutil.copytree(made / name, tmp_path / name, symlinks=True)
    with WhlNext(tmp_path / "sdk").serving() as index:
        yield Place(tmp_path, index)


def build(place: Place, *words: object) -> Ended:
    where = ("--root-checkout-dir", place.folder / "src", "--output-dir", place.folder / "out")
    stack = ("--stack", place.folder / "stack")
    return place.types("build", "--gpu", "gfx942", *stack, "--index-url", place.url, *where, *words)


def lock(place: Place, *words: object) -> Ended:
    stack = ("--stack", place.folder / "stack")
    return place.types("index", "mirror", "lock", *stack, "--rocm-index-url", place.url, *words)


@situations
def test_a_build_for_a_gpu_takes_the_newest_whole_rocm(
    place: Place, hidden: list[str], version: str, lacks: str
) -> None:
    place.index.hidden = hidden
    ended = build(place)
    assert lacks in ended.err
    if not version:
        assert ended.code == 2, ended
        assert not (place.folder / "src").exists(), "known before anything is checked out"
        return
    assert ended.code == 0, ended.err
    assert f"ROCm SDK  {version} of {place.url}" in ended.err
    assert list((place.folder / "out").glob("tiny-*.whl"))


@situations
def test_a_night_takes_the_newest_whole_rocm(
    place: Place, hidden: list[str], version: str, lacks: str
) -> None:
    place.index.hidden = hidden
    ended = place.freeze()
    assert lacks in ended.err
    assert ended.code == (0 if version else 2), ended
    if version:
        assert plan.manifest_of(place.store, plan.read(place.store, "1")).sdk_version == version


@situations
def test_a_lock_takes_the_newest_whole_rocm(
    place: Place, hidden: list[str], version: str, lacks: str
) -> None:
    place.index.hidden = hidden
    ended = lock(place)
    assert lacks in ended.err
    path = place.folder / "stack" / mirror_lock.FILE
    assert ended.code == (0 if version else 2), ended
    assert path.exists() == bool(version)
    if version:
        names = set(mirror_lock.read(path).sdk)
        assert names == {p.name for p in (place.folder / "sdk").iterdir() if f"-{version}" in p.name}


@in_part
def test_a_version_that_is_not_whole_is_refused_where_it_is_named(place: Place, name: str) -> None:
    place.index.hidden, _, lacks = SITUATIONS[name]
    for ended in (build(place, "--rocm-version", NEW), lock(place, "--rocm-version", NEW)):
        assert ended.code == 2, ended
        assert lacks in ended.err
    ended = place.freeze("--rocm-version", NEW)
    assert ended.code == 2, ended
    assert lacks in ended.err
    assert not (place.folder / "src").exists()


def test_of_two_builds_side_by_side_the_named_one_is_taken(place: Place) -> None:
    assert f"ROCm SDK  {OLD} of" in build(place, "--rocm-version", OLD, "--dry-run").out
    assert lock(place, "--rocm-version", OLD).code == 0
    names = mirror_lock.read(place.folder / "stack" / mirror_lock.FILE).sdk
    assert all(f"-{OLD}" in name for name in names)
    assert place.freeze("--rocm-version", OLD).code == 0
    assert plan.manifest_of(place.store, plan.read(place.store, "1")).sdk_version == OLD


def test_a_night_keeps_its_rocm_while_a_newer_one_comes(place: Place) -> None:
    (leg,) = place.freeze().answer["missing"]
    sdk_index.write_packages(place.folder / "sdk", "7.11.0", targets=("gfx942",))
    ended = place.build(leg)
    assert ended.code == 0, ended.err
    manifest = next((place.folder / f"artifacts/wheels-{leg}-1").glob("manifest.json")).read_text()
    assert f'"{NEW}"' in manifest
    assert "7.11.0" not in manifest


def test_what_was_there_yesterday_is_missed_by_name(place: Place) -> None:
    (leg,) = place.freeze().answer["missing"]
    place.index.hidden = SITUATIONS["gone"][0]
    nightly = place.build(leg)  # before its stack gets a lock
    place.index.hidden = []
    assert lock(place).code == 0
    before = mirror_lock.read(place.folder / "stack" / mirror_lock.FILE)
    place.index.hidden = SITUATIONS["gone"][0]
    for ended in (nightly, build(place, "--rocm-version", NEW), lock(place, "--rocm-version", NEW)):
        assert ended.code == 2, ended
        assert f"; it has rocm {OLD}" in ended.err
    # A lock that is made again says what it keeps of a version that is no longer there.
    ended = lock(place)
    assert ended.code == 0, ended.err
    assert f"{place.url} has no ROCm {NEW} any more, which the lock goes on naming" in ended.err
    assert before.sdk.items() <= mirror_lock.read(place.folder / "stack" / mirror_lock.FILE).sdk.items()
    assert lock(place, "--upgrade").code == 0
    assert all(f"-{OLD}" in n for n in mirror_lock.read(place.folder / "stack" / mirror_lock.FILE).sdk)


@pytest.mark.parametrize("listed", ["rocm_sdk_core-", "rocm-"])
def test_a_file_that_is_listed_and_not_there_is_named(place: Place, listed: str) -> None:
    place.index.absent = [listed]
    ended = build(place)
    assert ended.code == 5, ended
    assert f"{place.url} lists {place.index.address}/rocm/core/whl-next/" in ended.err
    assert f"/{listed}{NEW}" in ended.err
    ended = lock(place)
    assert ended.code == 5, ended
    assert f"/{listed}{NEW}" in ended.err


def test_one_file_without_a_hash_is_named(place: Place) -> None:
    place.index.hashed, place.index.unhashed = True, [f"rocm_sdk_device_gfx942-{NEW}"]
    ended = lock(place)
    assert ended.code == 0, ended.err
    (unverified,) = mirror_lock.read(place.folder / "stack" / mirror_lock.FILE).unverified
    assert unverified.startswith("rocm_sdk_device_gfx942-")
    assert f"unverified, since the index gives no sha256: {unverified}" in ended.err


def script(place: Place, *words: object) -> subprocess.CompletedProcess[str]:
    """Upstream's script, as it is typed."""
    command = [sys.executable, str(SCRIPT), *map(str, words), "--stack", str(place.folder / "stack")]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=place.folder)


def test_upstreams_script_installs_the_sdk_and_builds_with_it(place: Place) -> None:
    words = ("install-rocm", "--index-url", place.url, "--rocm-extras", "device-gfx942")
    done = script(place, *words)
    assert done.returncode == 0, done.stderr
    assert NEW in done.stdout + done.stderr
    place.index.hidden = [f"rocm_sdk_device_gfx942-{NEW}"]
    done = script(place, *words, "--rocm-sdk-version", NEW)
    assert done.returncode == 2, done.stderr
    assert f"has no rocm-sdk-device-gfx942=={NEW}; it has rocm {NEW}, {OLD}" in done.stderr
    place.index.hidden = SITUATIONS["gone"][0]
    done = script(place, *words, "--rocm-sdk-version", NEW)
    assert done.returncode == 2, done.stderr
    assert f"it has rocm {OLD}" in done.stderr
    place.index.hidden, place.index.down = [], True
    done = script(place, *words, "--rocm-sdk-version", "7.8.0")
    assert done.returncode == 5, done.stderr
    assert "503" in done.stderr


@pytest.mark.parametrize("split", [(), ("--split",)], ids=["whole", "split"])
def test_a_build_that_installs_the_sdk_of_the_index(place: Place, split: tuple[str, ...]) -> None:
    version = "7.14.0" if split else NEW  # the first whose runtime finds code in device wheels
    if split:
        sdk_index.write_packages(place.folder / "sdk", version, targets=("gfx942",))
        shutil.rmtree(place.folder / "stack")
        sdk_index.write_stack(place.folder / "stack", version)
    src = ("--root-checkout-dir", place.folder / "src", "--stack", place.folder / "stack")
    assert place.types("checkout", "all", *src).code == 0
    words = ("build", *src, "--output-dir", place.folder / "out", "--targets", "gfx942", *split)
    index = ("--install-rocm", "--index-url", place.url)
    ended = place.types(*words, *index)
    assert ended.code == 0, ended.err
    wheels = sorted(path.name for path in (place.folder / "out").glob("*.whl"))
    assert all(f"rocm{version}" in name for name in wheels)
    assert len(wheels) == (2 if split else 1)
    place.index.hidden = SITUATIONS["page"][0]
    ended = place.types(*words, *index, "--rocm-version", OLD)
    assert ended.code == 2, ended.err
    assert f"has no rocm-sdk-libraries=={OLD}" in ended.err
