"""`cairn index publish` and `mirror`: wheels into a channel, and what they need of other indexes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Note, Piece, Warn
from cairn.cli.binder import command
from cairn.errors import StoreError, UsageError
from cairn.options import argument, flag, option, repeated
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.release.publish.distribution import Dist
    from cairn.release.publish.mirror_lock import MirrorLock
    from cairn.release.publish.sdk_index import SdkToLock
    from cairn.stack import Stack
    from cairn.store.protocol import Store


@dataclass(frozen=True, kw_only=True)
class Publish(signing.AttestOptions, common.StoreOptions):
    """Options of `cairn index publish`.

    Into the channels that users install from, sets come through the gate: see `cairn release promote`. In a
    store with a root, what a set takes from others is in the lock of its --stack.

        cairn index publish dist/*.whl --store ./store --set dist/set.json
    """

    files: tuple[Path, ...] = argument("FILE", "a wheel or an sdist", nargs="+", convert=converters.file)
    index: str = common.index("staging")
    set_file: Path | None = option(
        "set.json: the files are this set, whole; it is sealed with all it needs, and written again",
        "--set",
        convert=converters.file,
    )
    manifest: Path | None = option(
        "with --set: the manifest.json that it was built from (default: the one beside set.json)",
        convert=converters.file,
    )
    require: tuple[str, ...] = repeated(
        "with --set: what the set needs and no metadata says", metavar="REQUIREMENT"
    )
    stack: Path | None = common.stack(required=False)


def _publish(request: Publish) -> Answer:
    from cairn.release.publish.files import publish

    store = request.open_store()
    if request.set_file is not None:
        return _publish_set(store, request, request.set_file)
    for name, value in (
        ("--require", request.require),
        ("--manifest", request.manifest),
        ("--sign-key", request.sign_key),
        ("--sign-as-workflow", request.sign_as_workflow),
    ):
        if value:
            raise UsageError(f"{name} is about a set", tip="give --set set.json as well")
    with console.current().stage(f"publish into {request.index}") as stage:
        result = publish(store, request.index, request.files, dry_run=request.dry_run, on_step=stage.update)
    lacking = (
        Warn(f"{extra} cannot be installed from {request.index} without {wording.some(names)}")
        for extra, names in result.unserved.items()
    )
    answer = publish_answer((entry.filename for entry in result.added), result.already)
    return dataclasses.replace(answer, text=(*answer.text, *lacking), more={"unserved": result.unserved})


def _publish_set(store: Store, request: Publish, set_file: Path) -> Answer:
    from cairn import stack as stacks
    from cairn.release.publish.stage import stage_set
    from cairn.sources.manifest import manifest
    from cairn.wheels import build_statement, wheelset

    built_from = manifest.read(request.manifest or set_file.with_name("manifest.json"))
    name = f"publish into {request.index}"
    with request.attester() as attester, console.current().stage(name) as stage:
        sealed = stage_set(
            store,
            request.index,
            wheelset.read(set_file),
            request.files,
            manifest=built_from.canonical(),
            statement=build_statement.beside(set_file),
            requirements=request.require,
            stack=stacks.load(request.stack) if request.stack else None,
            attester=attester,
            dry_run=request.dry_run,
            on_step=stage.update,
        )
    if not request.dry_run:
        # Tests bind to the sealed set, so it takes the place of the open one.
        wheelset.write(set_file, sealed)
    closure = [file.file_name for file in sealed.closure]
    return Answer({"set": sealed.id, "closure": closure}, [sealed.id])


@dataclass(frozen=True, kw_only=True)
class _LockOptions(common.OptionalStack):
    lock: Path | None = option(
        "the lock (default: beside the stack.toml)", metavar="FILE", convert=converters.any_path
    )

    def load(self) -> tuple[Stack, Path]:
        """Load the stack; also return the path of its lock."""
        from cairn.release.publish import mirror_lock

        stack = self.load_stack()
        if stack is None:
            raise UsageError(
                "nothing to mirror: no stack is named, whose lock would say what",
                tip="name it with --stack; without a lock, name distributions, or --require",
            )
        return stack, self.lock or mirror_lock.path_of(stack)


@dataclass(frozen=True, kw_only=True)
class Lock(_LockOptions):
    """Options of `cairn index mirror lock`.

    What the wheels require is kept in it, so that later runs need none.

        cairn index mirror lock --stack pytorch dist/*.whl
        cairn index mirror lock --stack pytorch --rocm-index-url https://example.org/rocm/{family}/
    """

    files: tuple[Path, ...] = argument(
        "FILE", "a wheel or an sdist of the stack", nargs="*", convert=converters.file
    )
    require: tuple[str, ...] = repeated("lock this too", metavar="REQUIREMENT")
    rocm_index_url: str | None = option(
        "lock the ROCm SDK that this index offers for the GPUs, Pythons and platforms of the stack, too; "
        "{family} stands for each family of its matrix.toml",
        metavar="URL",
        convert=converters.nonempty,
    )
    rocm_version: str | None = option(
        "which version of it (default: the stack's, else the newest of the index)",
        metavar="VERSION",
        convert=converters.exact_version,
    )
    upgrade: bool = flag("take the newest versions, not those that are locked, and no other SDK than this")
    dry_run: bool = common.dry_run()


@dataclass(frozen=True, kw_only=True)
class Sync(_LockOptions, common.StoreOptions):
    """Options of `cairn index mirror sync`.

    Other bytes than the lock names are refused, and then nothing is published. With FILE or --require no lock
    is read: what those need on this machine is fetched, and `sync` may be left out.

        cairn index mirror sync --stack pytorch --store ./store
    """

    files: tuple[Path, ...] = argument(
        "FILE", "whose requirements to fetch", nargs="*", convert=converters.file
    )
    require: tuple[str, ...] = repeated("fetch this too", metavar="REQUIREMENT")
    index: str = common.index("staging")
    check: bool = flag(
        "change nothing: fail where the lock does not cover its stack, or index and lock differ"
    )
    dry_run: bool = common.dry_run()


def _lock(request: Lock) -> Answer:
    import tempfile

    from msgspec import structs

    from cairn import package_index, shipped
    from cairn.release.publish import distribution, mirror_lock

    stack, path = request.load()
    if shipped.is_unpacked(path) and not request.dry_run:
        raise UsageError(
            f"the stack {stack.name} is the installed Cairn's own, whose files are the same for everybody",
            tip="name a file of yours: --lock mirror.lock.toml",
        )
    before = mirror_lock.read(path) if path.exists() else None
    with tempfile.TemporaryDirectory(prefix="cairn-lock-") as folder:
        # What builds its sdists is locked with them.
        offered = _offered_sdk(request, stack, before, Path(folder))
        dists = tuple(map(distribution.read, (*request.files, *offered.sdists)))
        new = mirror_lock.required_by(dists, request.require, stack=stack)
    sdk = {dist.path.name: dist.sha256 for dist in dists if mirror_lock.is_of_sdk(dist.name)}
    sdk |= {name: " ".join(sorted(each)) for name, each in offered.files.items()}
    unverified = offered.unverified
    if before:  # what is verified stays so while its bytes do
        suspect = {name for name in before.unverified if name not in offered.files}
        suspect |= {n for n in unverified if n in before.unverified or sdk[n] != before.sdk.get(n)}
        if not (request.upgrade and sdk):
            sdk = {**before.sdk, **sdk}
        unverified = tuple(sorted(suspect & sdk.keys()))
    requirements = mirror_lock.merged(before.asked if before else (), new, stack=stack)
    if not (requirements or sdk):
        raise UsageError(
            "nothing to lock: no wheel that needs anything, and no lock to renew",
            tip="name wheels of the stack, or give --require",
        )
    with console.current().stage(f"resolve for {stack.name}"):
        lock, addresses = mirror_lock.resolve(
            stack,
            mirror_lock.places_of(stack),
            requirements,
            settings=package_index.read_pip_settings(),
            before=None if request.upgrade else before,
            sdk=sdk,
        )
    lock = structs.replace(lock, unverified=unverified)
    unserved = _unserved(stack, lock, dists, addresses)
    if not request.dry_run:
        mirror_lock.write(path, lock)
    changes = mirror_lock.changes(before, lock)
    size = sum(file.size or 0 for file in lock.files) / 1e6
    counts = f"files: {len(lock.files)}, {size:.0f} MB where sizes are known; changes: {len(changes)}"
    text: list[Piece] = [*changes, *map(Warn, offered.remarks), Note(counts)]
    text += [Note(f"left out, with what they name: {wording.some(list(unserved))}")] if unserved else []
    if unverified:
        names = wording.some(unverified, shown=3)
        text.append(
            Warn(f"unverified, since the index gives no sha256: {names}; a store with a root refuses them")
        )
    answer = {"changes": changes, "files": len(lock.files), "unverified": unverified, "unserved": unserved}
    return Answer(answer, text)


def _unserved(
    stack: Stack, lock: MirrorLock, dists: Iterable[Dist], addresses: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the extras for GPUs that a lock does not serve; warn of files that cannot be looked into."""
    from cairn.release.publish import mirror_lock, sdk_index
    from cairn.targets import CPU

    # What uv has chosen may be a host wheel, too; of a stack for no GPU nobody asks.
    for_gpus = any(target != CPU for target in stack.targets)
    needs, unread = sdk_index.needs_of(addresses if for_gpus else {})
    needs |= {dist.path.name: dist.needs for dist in dists if mirror_lock.is_of_sdk(dist.name)}
    if unread:
        console.current().warn(f"not looked into for extras: {wording.some(unread)}")
    return sdk_index.unserved(lock, needs)


def _offered_sdk(request: Lock, stack: Stack, before: MirrorLock | None, folder: Path) -> SdkToLock:
    """Return the ROCm SDK of the index that is named as `sdk_index.to_lock` does; nothing for none."""
    from cairn.matrix import matrix_toml
    from cairn.release.publish import mirror_lock, sdk_index
    from cairn.targets import CPU, family_of

    if not request.rocm_index_url:
        return sdk_index.SdkToLock()
    path = Path(stack.folder, matrix_toml.FILE)
    every = (
        matrix_toml.load_matrix_toml(path, stack).families if path.exists() else [family_of(stack.targets)]
    )
    families = [name for name in every if name != CPU]
    if not families:
        raise UsageError(f"the stack {stack.name} is for no GPU", tip="leave --rocm-index-url out")
    urls: dict[str, list[str]] = {}
    for name in families:
        urls.setdefault(request.rocm_index_url.replace("{family}", name), []).append(name)
    with console.current().stage(f"look for the ROCm SDK of {stack.name}") as stage:
        return sdk_index.to_lock(
            urls,
            request.rocm_version or (stack.sdk.version if stack.sdk else None),
            places=mirror_lock.places_of(stack),
            before=None if request.upgrade else before,
            folder=folder,
            say=stage.update,
        )


def _sync(request: Sync) -> Answer:
    from cairn.release.publish import mirror, mirror_lock

    if request.files or request.require:
        return _fetch_needed(request)
    stack, path = request.load()
    if request.check:
        return _check(request, stack, path)
    lock, store = mirror_lock.read(path), request.open_store()
    with console.current().stage(f"mirror into {request.index}"):
        fetched = mirror.sync(store, request.index, lock, dry_run=request.dry_run)
    return publish_answer(file.file_name for file in fetched)


def _check(request: Sync, stack: Stack, path: Path) -> Answer:
    from cairn.release.index.reading import read_current
    from cairn.release.index.snapshot import Index
    from cairn.release.publish import mirror, mirror_lock

    snapshot = read_current(Index(request.open_existing_store(), request.index))
    problems = mirror.problems(mirror_lock.read(path), stack, snapshot)
    good = f"{request.index} holds what {path.name} names, and that covers {stack.name}"
    error = StoreError(f"{request.index} and {path.name} do not agree: {len(problems)} problem(s)")
    return Answer(
        {"index": request.index, "problems": problems},
        problems or [good],
        error=error if problems else None,
    )


def _fetch_needed(request: Sync) -> Answer:
    from cairn.release.publish.mirror import mirror, missing

    if request.check or request.lock:
        raise UsageError("with FILE or --require no lock is read", tip="leave --check and --lock out")
    store, index = request.open_store(), request.index
    if request.dry_run:
        items = missing(store, index, dists=request.files, requirements=request.require)
        return publish_answer(item.requirement for item in items)
    with console.current().stage(f"mirror into {index}"):
        published = mirror(store, index, dists=request.files, requirements=request.require)
    return publish_answer(entry.filename for entry in published.added)


def publish_answer(new: Iterable[str], already: Sequence[str] = ()) -> Answer:
    """Make the answer about which files are new in an index, and which it already had."""
    names = tuple(new)
    text = (*(f"+ {name}" for name in names), *(f"= {name}" for name in already))
    return Answer({"added": names, "already": already}, text)


COMMANDS = {
    "publish": command(Publish, _publish, needs="release"),
    "lock": command(Lock, _lock, needs="release"),
    "sync": command(Sync, _sync, needs="release"),
}
