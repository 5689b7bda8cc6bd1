"""`cairn index mirror`: what sets need of other indexes, locked, fetched and compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer, Note
from cairn.cli.binder import command
from cairn.errors import StoreError, UsageError
from cairn.options import argument, flag, option, repeated
from cairn.output import console

if TYPE_CHECKING:
    from cairn.stack import Stack


@dataclass(frozen=True, kw_only=True)
class _LockOptions(fields.StackOptions):
    lock: Path | None = option(
        "the lock (default: beside the stack.toml)", metavar="FILE", convert=converters.any_path
    )

    def load(self) -> tuple[Stack, Path]:
        """The stack, and where its lock is."""
        from cairn.release.publish import mirror_lock

        stack = self.load_stack()
        return stack, self.lock or mirror_lock.path_of(stack)


@dataclass(frozen=True, kw_only=True)
class _IndexOptions(fields.StoreOptions):
    index: str = fields.index("staging")
    json: bool = fields.json()


@dataclass(frozen=True, kw_only=True)
class Lock(_LockOptions):
    """What `cairn index mirror lock` is asked for.

    What the wheels require is kept in it, so that later runs need none.

        cairn index mirror lock --stack external-builds/pytorch dist/*.whl
    """

    files: tuple[Path, ...] = argument(
        "FILE", "a wheel or an sdist of the stack", nargs="*", convert=converters.file
    )
    require: tuple[str, ...] = repeated("lock this too", metavar="REQUIREMENT")
    upgrade: bool = flag("take the newest versions, not those that are locked")
    dry_run: bool = fields.dry_run()
    json: bool = fields.json()


@dataclass(frozen=True, kw_only=True)
class Sync(_LockOptions, _IndexOptions):
    """What `cairn index mirror sync` is asked for.

    Other bytes than the lock names are refused, and then nothing is published.

        cairn index mirror sync --stack external-builds/pytorch --store ./store
    """

    dry_run: bool = fields.dry_run()


@dataclass(frozen=True, kw_only=True)
class Verify(_LockOptions, _IndexOptions):
    """What `cairn index mirror verify` is asked for.

    Nothing is changed.

        cairn index mirror verify --stack external-builds/pytorch --store ./store
    """


@dataclass(frozen=True, kw_only=True)
class Fetch(_IndexOptions):
    """What `cairn index mirror fetch` is asked for.

    The word may be left out: cairn index mirror FILE …

        cairn index mirror fetch dist/*.whl --store ./store
    """

    files: tuple[Path, ...] = argument(
        "FILE", "whose requirements to fetch", nargs="*", convert=converters.file
    )
    require: tuple[str, ...] = repeated("fetch this too", metavar="REQUIREMENT")
    dry_run: bool = fields.dry_run()


def _lock(request: Lock) -> Answer:
    from cairn import pip_settings
    from cairn.release.publish import distribution, mirror_lock, mirror_resolve

    stack, path = request.load()
    before = mirror_lock.read(path) if path.exists() else None
    new = mirror_resolve.asked_by(map(distribution.read, request.files), request.require, stack=stack)
    requirements = mirror_resolve.merged(before.asked if before else (), new, stack=stack)
    if not requirements:
        raise UsageError(
            "nothing to lock: no wheel that needs anything, and no lock to renew",
            tip="name wheels of the stack, or give --require",
        )
    with console.current().stage(f"resolve for {stack.name}"):
        lock = mirror_resolve.resolve(
            stack,
            mirror_lock.places_of(stack),
            requirements,
            settings=pip_settings.read(),
            before=None if request.upgrade else before,
        )
    if not request.dry_run:
        mirror_lock.write(path, lock)
    changes = mirror_lock.changes(before, lock)
    total = sum(file.size or 0 for file in lock.files)
    counts = f"files: {len(lock.files)}, {total / 1e6:.0f} MB where sizes are known; changes: {len(changes)}"
    return Answer({"changes": changes, "files": len(lock.files)}, (*changes, Note(counts)))


def _sync(request: Sync) -> Answer:
    from cairn.release.publish import mirror_lock, mirror_sync

    _, path = request.load()
    lock, store = mirror_lock.read(path), request.open_store()
    with console.current().stage(f"mirror into {request.index}"):
        fetched = mirror_sync.sync(store, request.index, lock, dry_run=request.dry_run)
    return added(file.file_name for file in fetched)


def _verify(request: Verify) -> Answer:
    from cairn.release.index.snapshot import Index
    from cairn.release.publish import mirror_lock, mirror_sync

    stack, path = request.load()
    snapshot = Index(request.open_existing_store(), request.index).load()
    problems = mirror_sync.problems(mirror_lock.read(path), stack, snapshot)
    good = f"{request.index} holds what {path.name} names, and that covers {stack.name}"
    error = StoreError(f"{request.index} and {path.name} do not agree: {len(problems)} problem(s)")
    return Answer(
        {"index": request.index, "problems": problems},
        problems or [good],
        error=error if problems else None,
    )


def _fetch(request: Fetch) -> Answer:
    from cairn.release.publish.mirror import mirror, missing

    if not request.files and not request.require:
        raise UsageError("nothing to mirror", tip="name distributions, or give --require")
    store, index = request.open_store(), request.index
    if request.dry_run:
        items = missing(store, index, dists=request.files, requirements=request.require)
        return added(item.requirement for item in items)
    with console.current().stage(f"mirror into {index}"):
        published = mirror(store, index, dists=request.files, requirements=request.require)
    return added(entry.filename for entry in published.added)


def added(new: Iterable[str], already: Sequence[str] = ()) -> Answer:
    """Which files are new in an index, and which it had."""
    names = tuple(new)
    text = (*(f"+ {name}" for name in names), *(f"= {name}" for name in already))
    return Answer({"added": names, "already": already}, text)


COMMANDS = {
    "lock": command(Lock, _lock),
    "sync": command(Sync, _sync),
    "verify": command(Verify, _verify),
    "fetch": command(Fetch, _fetch),
}
