"""Publish a stack's own ROCm SDK, and the sets that are built with it, to an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cairn import files
from cairn.build import cache, job
from cairn.build.model import InstalledSdk, Job
from cairn.release.provenance.attest import Attester
from cairn.release.publish import files as publish_files
from cairn.release.publish import mirror, mirror_lock, wheel_set
from cairn.release.publish.compatibility import Platform
from cairn.stack import Stack
from cairn.store.protocol import Store
from cairn.venv import PackageSource
from cairn.wheels import build_statement, wheelset
from cairn.wheels.wheelset import WheelSet

SET_FILE = "set.json"


def publish_sdk(store: Store, index: str, dists: Sequence[Path]) -> None:
    """Publish the packages of an SDK, and mirror their dependencies."""
    publish_files.publish(store, index, dists)
    mirror.mirror(store, index, dists=dists)


def digest_of(dists: Sequence[Path]) -> str:
    """Return a digest of an SDK's packages, which identifies it wherever it is served."""
    return cache.key_of({path.name: files.sha256_of(path) for path in dists})


def install_sdk(build: Job, dists: Sequence[Path], index_url: str, *, log: Path) -> InstalledSdk:
    """Install an SDK for a build, from an index that has its packages."""
    sdk = replace(build.sdk, source=PackageSource(index_url=index_url), digest=digest_of(dists))
    return job.install_rocm(replace(build, sdk=sdk), log=log)


def stage_set(  # noqa: PLR0913 - each is one independent part of the request
    store: Store,
    index: str,
    folder: Path,
    wheels: Sequence[Path],
    *,
    stack: Stack,
    platform: Platform,
    manifest: bytes,
    attester: Attester | None,
    dry_run: bool = False,
) -> WheelSet:
    """Seal the set that a build has left in a folder, and publish it with its dependencies.

    Args:
        store: where the index lives.
        index: its name.
        folder: what has the set, and the statement of who built it.
        wheels: the files of the set.
        stack: whose lock of mirrored files is synced first; what the wheels need besides, the gate names.
        platform: of the set.
        manifest: what it was built from, in the spelling whose sha256 the set names.
        attester: attests the wheels; None for no attestation.
        dry_run: refuse what would be refused, and write nothing.
    """
    if not dry_run:
        if (lock := mirror_lock.of(stack)) is not None:
            mirror.sync(store, index, lock, only=platform)
        mirror.mirror(store, index, dists=wheels)
    return wheel_set.stage_set(
        store,
        index,
        wheelset.read(folder / SET_FILE),
        wheels,
        manifest=manifest,
        statement=build_statement.beside(folder / SET_FILE),
        attester=attester,
        dry_run=dry_run,
    )
