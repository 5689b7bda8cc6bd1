"""Publish a stack's own ROCm SDK, and the sets that are built with it, to an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cairn import files, venv
from cairn.build import cache, job, rocm_sdk
from cairn.build.environments import pip_install
from cairn.build.model import InstalledSdk, Job
from cairn.output import Progress, console, silent
from cairn.release.index import keys
from cairn.release.provenance.attest import Attester
from cairn.release.publish import files as publish_files
from cairn.release.publish import mirror, mirror_lock, stage
from cairn.release.publish.compatibility import Platform
from cairn.release.serve import serving
from cairn.stack import Stack
from cairn.store.folder import LocalStore
from cairn.store.protocol import Store
from cairn.venv import PackageSource
from cairn.wheels import build_statement, wheelset
from cairn.wheels.wheelset import WheelSet

SET_FILE = "set.json"


def publish_sdk(store: Store, index: str, dists: Sequence[Path]) -> None:
    """Publish the packages of an SDK, and mirror their dependencies."""
    publish_files.publish(store, index, dists)
    mirror.mirror(store, index, dists=dists)


def install_sdk(build: Job, dists: Sequence[Path], index_url: str, *, log: Path) -> InstalledSdk:
    """Install an SDK for a build, from an index that has its packages: all of them, it was built with."""
    own = _sha256s_of(dists)
    sdk = replace(build.sdk, source=PackageSource(index_url=index_url), digest=cache.key_of(own))
    return replace(job.install_rocm(replace(build, sdk=sdk), log=log), files=own)


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
    pip_install(env, stack.extra_wheels, PackageSource(), log=log, on_line=say)
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
    return stage.stage_set(
        store,
        index,
        wheelset.read(folder / SET_FILE),
        wheels,
        manifest=manifest,
        statement=build_statement.beside(folder / SET_FILE),
        stack=stack,
        attester=attester,
        dry_run=dry_run,
    )
