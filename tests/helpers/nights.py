"""A store with the sets of three nights, made once and copied for each test."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from cairn.release.index import generation, keys
from cairn.release.index.generation import MIRRORED, digest_of
from cairn.release.index.snapshot import Index
from cairn.release.publish import distribution
from cairn.release.publish.files import publish_dists
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.wheels.wheelset import WheelSet
from helpers.release import keys_of, make_set, make_wheel, stage_set

# torch (torchvision has the same version) -> triton, which two of them share, and numpy, from a mirror.
NEEDS = {"2.8.0": ("3.4", "1.0"), "2.9.0": ("3.5", "2.0"), "2.10.0": ("3.5", "2.0")}


def stage_night(store: Store, folder: Path, version: str) -> WheelSet:
    """Stage the set of one night with what it needs."""
    triton, numpy = NEEDS.get(version, ("3.5", "2.0"))
    mirrored = distribution.read(make_wheel(folder, "numpy", numpy))
    publish_dists(Index(store, "staging"), [mirrored], "mirror", build=MIRRORED)
    wheels = [
        make_wheel(folder, "triton", triton),
        make_wheel(folder, "torch", version, requires=[f"triton=={triton}", f"numpy=={numpy}"]),
        make_wheel(folder, "torchvision", version, requires=[f"torch=={version}"]),
    ]
    return stage_set(store, "staging", make_set(wheels), wheels)


def stage_nights(folder: Path) -> tuple[MemoryStore, dict[str, WheelSet]]:
    """A store whose staging has a set of each version in `NEEDS`, and these sets by version."""
    store = MemoryStore()
    return store, {version: stage_night(store, folder, version) for version in NEEDS}


def age(store: MemoryStore, days: float, prefix: str = "") -> None:
    """Have what is there be older."""
    for key in keys_of(store, prefix):
        store.modified[key] -= timedelta(days=days)


def backdate(store: MemoryStore, index: str, days: float) -> None:
    """Have the generations of an index say that they were made earlier, each under a name that fits."""
    there = Index(store, index)
    now = there.load()
    parent, pointer = None, now.pointer
    assert pointer is not None
    digests = {0: ""}
    for _, found in reversed(list(there.chain(now))):
        when = datetime.fromisoformat(found.when) - timedelta(days=days)
        text = when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = next(k for k in store.objects if k.startswith(f"{index}/generations/{found.number:08}"))
        data = generation.encode(msgspec.structs.replace(found, when=text, parent=parent))
        parent = digest_of(data)
        store.delete(old)
        store.write(keys.generation_key(index, found.number, parent), data)
        digests[found.number] = parent
    # A writer may have died before it wrote the pages of the last.
    shown = digests[pointer.rendered]
    pointer = msgspec.structs.replace(pointer, digest=parent, rendered_digest=shown)
    store.write(keys.state_key(index), generation.encode(pointer))


def everything_is_a_year_old(store: MemoryStore) -> None:
    for index in ("staging", "release"):
        backdate(store, index, 365)
    age(store, 365)
