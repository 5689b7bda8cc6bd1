"""Publish a stack's own ROCm SDK, and the sets that are built with it, to an index."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec import structs
from packaging.utils import canonicalize_name

from cairn import files, venv
from cairn.build import cache, environments, job, rocm_sdk
from cairn.build.model import InstalledSdk, Job
from cairn.errors import StoreError
from cairn.output import Progress, console, silent
from cairn.release.index import keys
from cairn.release.index.generation import project_of
from cairn.release.index.snapshot import Index
from cairn.release.provenance.attest import Attester
from cairn.release.publish import files as publish_files
from cairn.release.publish import mirror, mirror_lock, sdk_index, stage
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.files import Published
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.release.publish.resolve import Missing, parsed
from cairn.release.serve import serving
from cairn.release.trust import anchor
from cairn.stack import Stack
from cairn.store.folder import LocalStore
from cairn.store.protocol import Store
from cairn.venv import PackageSource
from cairn.wheels import build_statement, wheelset
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet

SET_FILE = "set.json"


def publish_sdk(store: Store, index: str, dists: Sequence[Path]) -> None:
    """Publish the packages of an SDK, and mirror their dependencies."""
    publish_files.publish(store, index, dists)
    mirror.mirror(store, index, dists=dists)


def install_sdk(build: Job, dists: Sequence[Path], index_url: str, *, log: Path) -> InstalledSdk:
    """Install an SDK for a build, from an index that has its packages: all of them, it was built with."""
    digests = _sha256s_of(dists)
    sdk = structs.replace(build.sdk, source=PackageSource(index_url=index_url), digest=cache.key_of(digests))
    return structs.replace(job.install_rocm(structs.replace(build, sdk=sdk), log=log), files=digests)


def _sha256s_of(dists: Sequence[Path]) -> dict[str, str]:
    return {path.name: files.sha256_of(path) for path in dists}


def install_own_sdk(
    build: Job, targets: Sequence[str], work_dir: Path, *, logs: Path, index: str = "staging"
) -> tuple[InstalledSdk, tuple[Path, ...]]:
    """Make the ROCm SDK of a stack that brings its own, and install it from an index of its own.

    Args:
        build: what it is for.
        targets: of the SDK.
        work_dir: keeps the SDK and the index.
        logs: the folder of the logs.
        index: what the index is called.

    Returns:
        The installation, and the packages that were made.
    """
    with console.current().stage("make the ROCm SDK") as stage:
        log = logs / "sdk.log"
        dists = rocm_sdk.make(build.stack, tuple(targets), work_dir / "sdk", log=log, say=stage.update)
    local = LocalStore(work_dir / "sdk-index" / cache.key_of(_sha256s_of(dists)))
    publish_sdk(local, index, dists)
    with serving(local) as server:
        index_url = keys.index_url(server.url, index)
        return install_sdk(build, dists, index_url, log=logs / "install-sdk.log"), dists


def hipify_python(stack: Stack, folder: Path, *, log: Path, say: Progress = silent) -> Path | None:
    """The interpreter that hipifies the checkouts of a stack, with the stack's own torch.

    Args:
        stack: the stack.
        folder: has the environment, or receives it.
        log: of pip.
        say: called with what pip does.

    Returns:
        None where no project is hipified by a torch that is installed first.
    """
    if not any(project.hipify == "torch-utils" for project in stack.projects):
        return None
    marker, requirements = folder / "cairn-tools", "\n".join(stack.extra_wheels)
    if marker.is_file() and files.text_or_empty(marker) == requirements:
        return venv.describe(folder).python
    marker.unlink(missing_ok=True)  # first, so that what a killed run has left of it never counts
    env = venv.create(folder)
    subject = "the wheels that hipify needs"
    environments.install(env, stack.extra_wheels, PackageSource(), subject=subject, log=log, on_line=say)
    files.write_text(marker, requirements)
    return env.python


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
    sdk_url: str = "",
    dry_run: bool = False,
    say: Progress = silent,
) -> WheelSet:
    """Seal the set that a build has left in a folder, and publish it with its dependencies.

    Of a ROCm SDK that the build installed from an index, the files that the set needs are copied from there,
    each by the sha256 in the builder's statement; in a store with a root, only those in the lock's [sdk].
    They are not handed over with the wheels: they have gigabytes, and the store has them from the leg or the
    night before. A file that the index has dropped can be published by hand, into any index of the store.

    Args:
        store: where the index lives.
        index: its name.
        folder: what has the set, and the statement of who built it.
        wheels: the files of the set.
        stack: whose lock of mirrored files is synced first; what the wheels need besides, the gate names.
        platform: of the set.
        manifest: what it was built from, in the spelling whose sha256 the set names.
        attester: attests the wheels; None for no attestation.
        sdk_url: the index that the build installed its ROCm SDK from; empty where `index` has it already.
        dry_run: refuse what would be refused, and write nothing.
        say: progress callback.
    """
    wheel_set, statement = wheelset.read(folder / SET_FILE), build_statement.beside(folder / SET_FILE)
    if not dry_run:
        if (lock := mirror_lock.of(stack)) is not None:
            mirror.sync(store, index, lock, only=platform)
        built_with = build_statement.decode(statement, name=BUILDER_FILE).sdk
        copy = functools.partial(_copy_sdk, Index(store, index), built_with, sdk_url, lock, say)
        needs = wheel_set.requirements
        mirror.mirror(store, index, dists=wheels, requirements=needs, publish_sdk=copy if sdk_url else None)
    return stage.stage_set(
        store,
        index,
        wheel_set,
        wheels,
        manifest=manifest,
        statement=statement,
        stack=stack,
        attester=attester,
        dry_run=dry_run,
        on_step=say,
    )


def _copy_sdk(
    index: Index,
    built_with: Mapping[str, str],
    sdk_url: str,
    lock: MirrorLock | None,
    say: Progress,
    lacking: Sequence[Missing],
) -> Published:
    """Publish the files of the SDK that a build installed, of the projects that an index lacks.

    Raises:
        StoreError: the set needs more of the SDK than was installed; or the store has a root, and the lock
            lacks a file that was installed.
        NetworkError: the SDK's index has a file no more, or with other bytes.
    """
    has_root = anchor.anchor(index.store) is not None
    if has_root and (problems := tuple(mirror_lock.unvouched((), lock, built_with, believed=False))):
        raise StoreError(
            f"the ROCm SDK of the build was not reviewed: {'; '.join(problems)}",
            tip="lock it, or begin a night with one that is locked",
        )
    projects = {str(canonicalize_name(parsed(item.requirement).name)) for item in lacking}
    needed = {name: sha256 for name, sha256 in built_with.items() if project_of(name) in projects}
    by_hand = f"cairn index publish FILE … --store {index.store.url} --index {index.name}"
    if unknown := sorted(projects - set(map(project_of, needed))):
        raise StoreError(
            f"the set needs {' and '.join(unknown)}, which its build has not installed",
            tip=f"publish what it needs, by hand: {by_hand}",
        )
    tip = f"begin another night, or publish the very files that were installed: {by_hand}"

    def fetch(names: Collection[str], folder: Path) -> list[Path]:
        absent = {name: needed[name] for name in names}
        return sdk_index.fetch_installed(sdk_url, absent, folder, tip=tip, say=say)

    return mirror.publish_by_hash(index, needed, fetch)
