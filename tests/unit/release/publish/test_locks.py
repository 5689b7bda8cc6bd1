"""The locks of a set as text: what is in them, under which names, and which set an index locks."""

from __future__ import annotations

import posixpath
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.pylock import Pylock, is_valid_pylock_path

from cairn.errors import StoreError
from cairn.release.index import keys, listing, people
from cairn.release.index.generation import IndexSet
from cairn.release.index.snapshot import Change, Index
from cairn.release.publish import locks
from cairn.release.publish.files import publish
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.release import commit, make_sdist, make_set, make_wheel, make_wheels, stage_set

LINUX = "cp311-cp311-linux_x86_64"


def texts(store: MemoryStore, made: WheelSet) -> dict[str, str]:
    """The locks of a set by their file names."""
    found = locks.of_set(made, locks.metadata_of(store, made))
    return {key.rpartition("/")[2]: data.decode() for key, data in found.items()}


def packages(store: MemoryStore, made: WheelSet) -> dict[str, dict[str, Any]]:
    read = tomllib.loads(texts(store, made)["pylock.toml"])
    return {package["name"]: package for package in read["packages"]}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryStore, WheelSet]:
    """A set with an extra, a dependency for Windows alone, and an sdist that decides late and is built."""
    store, folder = MemoryStore(), tmp_path_factory.mktemp("built")
    others = {"numpy 1.0": [], "deep 1.0": [], "builder 1.0": [], "core 1.0": [], "einsum 3.0": ["deep"]}
    sdist = make_sdist(folder, "rocm", "7.10.0", requires=["windows-part"], build_requires=["builder"])
    publish(store, "staging", [*make_wheels(folder, others), sdist])
    requires = ["numpy", "rocm==7.10.0", 'einsum; extra == "opt"', 'winpart; sys_platform == "win32"']
    torch = make_wheel(folder, "torch", "2.9.0+rocm7.10.0", requires=requires, extras=["opt"], tag=LINUX)
    return store, stage_set(store, "staging", make_set([torch]), [torch], requirements=["core==1.0"])


@pytest.fixture
def store(built: tuple[MemoryStore, WheelSet]) -> MemoryStore:
    """A store that has `sealed` in staging."""
    return MemoryStore(built[0].objects)


@pytest.fixture
def sealed(built: tuple[MemoryStore, WheelSet]) -> WheelSet:
    return built[1]


def test_what_is_installed_with_the_set_is_pinned_and_what_only_builds_is_not(
    store: MemoryStore, sealed: WheelSet
) -> None:
    lines = texts(store, sealed)["constraints.txt"].splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        *("core==1.0", "deep==1.0", "einsum==3.0", "numpy==1.0", "rocm==7.10.0", "torch==2.9.0+rocm7.10.0")
    ]
    assert any("builder" in file.file_name for file in sealed.closure)
    assert sealed.id in lines[0]
    assert "Python 3.11, linux_x86_64" in lines[1]
    only_extra = dict.fromkeys(("deep", "einsum"), "'opt' in extras")
    markers = {name: package.get("marker") for name, package in packages(store, sealed).items()}
    assert markers == dict.fromkeys(("core", "numpy", "rocm", "torch")) | only_extra


def test_requirements_name_every_file_by_its_hash_without_what_extras_need(
    store: MemoryStore, sealed: WheelSet
) -> None:
    text = texts(store, sealed)["requirements.txt"]
    wanted = {
        name: sha
        for name, sha in sealed.sha256s.items()
        if not name.startswith(("builder", "einsum", "deep"))
    }
    assert all(f"--hash=sha256:{sha}" in text for sha in wanted.values())
    assert text.count("--hash=") == text.count("==") == len(wanted)


def test_a_pylock_is_one_by_the_standard_and_names_the_files_of_the_store(
    store: MemoryStore, sealed: WheelSet
) -> None:
    text = texts(store, sealed)["pylock.toml"]
    Pylock.from_dict(tomllib.loads(text)).validate()
    found = packages(store, sealed)
    (wheel,) = found["torch"]["wheels"]
    torch = sealed.wheels[0]
    assert wheel["path"] == f"../../../{keys.file_key(torch.sha256, torch.file_name)}"
    assert wheel["hashes"] == {"sha256": torch.sha256}
    assert wheel["size"] == torch.size
    assert found["rocm"]["sdist"]["name"] == "rocm-7.10.0.tar.gz"
    read = tomllib.loads(text)
    assert read["requires-python"] == "==3.11.*"
    assert read["environments"] == ["sys_platform == 'linux' and platform_machine == 'x86_64'"]
    assert read["tool"]["cairn"]["set"] == sealed.id


def test_device_wheels_are_installed_with_their_extra_alone(store: MemoryStore, tmp_path: Path) -> None:
    targets = ("gfx942", "gfx1100")
    extras = [f'torch-device-{name}==2.9.0; extra == "device-{name}"' for name in targets]
    devices = {f"torch-device-{name} 2.9.0": ["torch==2.9.0"] for name in targets}
    wheels = make_wheels(tmp_path, {"torch 2.9.0": extras, "torchvision 0.24": ["torch==2.9.0"], **devices})
    made = stage_set(store, "staging", make_set(wheels, family="all", targets=targets), wheels)
    markers = {name: package.get("marker") for name, package in packages(store, made).items()}
    assert markers == {
        "torch": None,
        "torchvision": None,
        "torch-device-gfx942": "'device-gfx942' in extras",
        "torch-device-gfx1100": "'device-gfx1100' in extras",
    }
    assert "device" not in texts(store, made)["requirements.txt"]


def test_the_same_set_gives_the_same_bytes(store: MemoryStore, sealed: WheelSet) -> None:
    metadata = locks.metadata_of(store, sealed)
    assert locks.of_set(sealed, metadata) == locks.of_set(sealed, dict(reversed(metadata.items())))
    assert all(keys.is_own(key) for key in locks.of_set(sealed, metadata))


def test_what_a_set_says_of_itself_is_no_requirement(store: MemoryStore, tmp_path: Path) -> None:
    torch = make_wheel(tmp_path, "torch", "2.9.0")
    made = msgspec.structs.replace(make_set([torch]), line="main\nevil==1.0", stack="a\x85b\u2028c")
    found = texts(store, stage_set(store, "staging", made, [torch]))
    for name in ("constraints.txt", "requirements.txt"):
        lines = [line for line in found[name].splitlines() if not line.startswith(("#", "    --hash"))]
        assert [line.removesuffix(" \\") for line in lines] == ["torch==2.9.0"]
    assert list(tomllib.loads(found["pylock.toml"])["tool"]["cairn"]) == ["set"]


@pytest.mark.parametrize(
    "url", ["https://x.example/a/sets/1/locks/pylock.toml?x=y", "file:///s/sets/1/locks/p"]
)
def test_a_lock_for_one_address_has_urls(store: MemoryStore, sealed: WheelSet, url: str) -> None:
    made = locks.absolute(texts(store, sealed)["pylock.toml"].encode(), url)
    read = tomllib.loads(made.decode())
    Pylock.from_dict(read).validate()
    (torch,) = (package for package in read["packages"] if package["name"] == "torch")
    base = url.partition("sets/")[0]
    key = keys.file_key(sealed.wheels[0].sha256, sealed.wheels[0].file_name)
    assert torch["wheels"][0]["url"] == base + key.replace("+", "%2B")
    assert "path" not in torch["wheels"][0]


def test_what_was_changed_or_is_no_lock_locks_nothing(store: MemoryStore, sealed: WheelSet) -> None:
    with pytest.raises(StoreError, match="is not a pylock"):
        locks.absolute(b"<html>", "https://x.example/pylock.toml")
    torch = sealed.wheels[0]
    store.write(keys.sidecar_key(torch.sha256, torch.file_name), b"Metadata-Version: 2.2\nName: torch\n")
    with pytest.raises(StoreError, match="was changed"):
        locks.metadata_of(store, sealed)


def entry(set_id: str, **about: Any) -> IndexSet:
    """A set as an index lists it."""
    made = IndexSet(
        set_id=set_id * 64,
        stack="pytorch",
        line="release/2.9",
        python="3.11",
        platform="linux_x86_64",
        family="gfx110X-all",
        targets=("gfx1100",),
        manifest_sha256="0" * 64,
        projects={"torch": "2.9.0"},
        added="2026-01-01T00:00:00.000000Z",
    )
    return msgspec.structs.replace(made, **about)


def test_the_name_of_a_lock_is_one_for_urls_and_for_pylock() -> None:
    name = people.lock_name(entry("a"))
    assert name == "pytorch-release_2_9-gfx110X_all-3_11-linux_x86_64"
    assert is_valid_pylock_path(Path(f"pylock.{name}.toml"))
    assert keys.is_own(f"release/locks/pylock.{name}.toml")
    assert keys.is_own(f"release/gfx110X-all/locks/constraints.{name}.txt")


def test_the_newest_set_that_is_tested_and_not_yanked_is_the_last_known_good() -> None:
    later, latest = "2026-02-01T00:00:00.000000Z", "2026-03-01T00:00:00.000000Z"
    old, other = entry("a"), entry("e", python="3.12")
    untested = entry("b", added=later, untested="untested on hardware: gfx1100")

    def good(*sets: IndexSet) -> list[str]:
        for order in (sets, sets[::-1]):
            found = [one.set_id[0] for one in people.of_names(order).values()]
        return sorted(found)

    assert good(entry("b", added=later), old, entry("c", added=latest, yanked="bad"), other) == ["b", "e"]
    assert good(untested, old) == ["a"]
    assert good(untested) == ["b"]


@pytest.mark.parametrize("index", ["staging", "staging/gfx110X-all"])
def test_an_index_offers_the_locks_of_its_last_known_good_set(
    store: MemoryStore, sealed: WheelSet, index: str
) -> None:
    there = Index(store, index)
    good = msgspec.structs.replace(listing.index_set(sealed), untested=None)
    commit(there, "stage", lambda _now_there: Change(sets={sealed.id: good}))
    name = people.lock_name(good)
    data = store.read(f"{index}/locks/pylock.{name}.toml").data
    torch = next(p for p in tomllib.loads(data.decode())["packages"] if p["name"] == "torch")
    path = torch["wheels"][0]["path"]
    assert store.exists(posixpath.normpath(f"{index}/locks/{path}"))
    for kind in ("constraints", "requirements"):
        lines = store.read(f"{index}/locks/{kind}.{name}.txt").data.splitlines()
        assert lines[1:] == store.read(f"sets/{sealed.id}/locks/{kind}.txt").data.splitlines()


def test_a_name_without_a_good_set_has_a_lock_that_says_so(store: MemoryStore, sealed: WheelSet) -> None:
    index = Index(store, "staging")
    bad = msgspec.structs.replace(listing.index_set(sealed), yanked="bad")
    commit(index, "yank", lambda _now_there: Change(sets={sealed.id: bad}))
    name = people.lock_name(bad)
    assert store.read(f"staging/locks/constraints.{name}.txt").data == (
        b"# Generation 3 of staging\n# No good set has this name.\n"
    )
