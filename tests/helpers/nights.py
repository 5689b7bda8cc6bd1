"""A store with the sets of three nights, made once and copied for each test."""

from __future__ import annotations

from pathlib import Path

from cairn.release.index.generation import MIRRORED
from cairn.release.index.snapshot import Index
from cairn.release.publish import distribution
from cairn.release.publish.files import publish_dists
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.wheels.wheelset import WheelSet
from helpers.release import make_set, make_wheel, stage_set

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
