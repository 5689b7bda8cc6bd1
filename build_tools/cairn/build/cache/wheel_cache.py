"""A cache of wheels: a folder of this machine and, behind it, a store that others share.

What is only in the store is fetched into the folder, and what is built is put into both.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from cairn import __version__, files
from cairn.build.cache import entry as entries
from cairn.build.cache import trim
from cairn.build.cache.entry import CacheEntry, DamagedEntryError, Hit, Vouch
from cairn.build.cache.tiers import LocalTier, SharedTier, damage
from cairn.errors import WheelError
from cairn.output import console, safe_text
from cairn.retry import RetryPolicy
from cairn.store import opening
from cairn.store.protocol import MissingKeyError, Store

# A cache saves time: there is no point in waiting for a server longer than a small build takes.
_PATIENCE = RetryPolicy(attempts=3, wait=0.5, factor=2.0)

Check = Callable[[Path], None]
"""Raises `WheelError` for a wheel that must not be used, whatever its entry says."""


def unchecked(_wheel: Path) -> None:
    """A `Check` that takes every wheel."""


class SharedCache(msgspec.Struct, frozen=True, kw_only=True):
    """The store that several machines share, as a user names it.

    Attributes:
        url: what names a store.
        endpoint_url: the server of a bucket; None for the user's settings.
        read_only: nothing is put there.
        fetched: wheels are fetched. For a plan it is enough to know that they are there: its hits then name
            files that are not.
        vouch: whose wheels count; None for those of whoever can write there.
    """

    url: str
    endpoint_url: str | None = None
    read_only: bool = False
    fetched: bool = True
    vouch: Vouch | None = None


@functools.cache
def of_build(root: Path, shared: SharedCache | None) -> WheelCache:
    """Return the cache of a build, one per process, so that an unreachable store is detected only once.

    Raises:
        UsageError: the URL names no store.
        PrerequisiteError: it is a bucket, and obstore is not installed.
    """
    if shared is None:
        return WheelCache(root)
    store = opening.open_store(
        shared.url, endpoint_url=shared.endpoint_url, retry=_PATIENCE, say=console.current().info
    )
    return WheelCache(
        root, shared=store, read_only=shared.read_only, fetched=shared.fetched, vouch=shared.vouch
    )


class WheelCache:
    """Wheels by the key of their inputs; many processes and machines may use one.

    Of two builds of one key the first to end counts, and the other is given its wheel: what is built against
    either is then the same.

    Attributes:
        local: the folder.
        shared: the store behind it; None where there is none.
        fetched: see `SharedCache`.
    """

    def __init__(
        self,
        root: Path,
        *,
        shared: Store | None = None,
        read_only: bool = False,
        fetched: bool = True,
        vouch: Vouch | None = None,
    ) -> None:
        """Open the cache of a folder, which the first wheel makes, and of the store behind it."""
        self.local = LocalTier(root)
        read_only = read_only or not fetched
        self.shared = None if shared is None else SharedTier(shared, read_only=read_only, vouch=vouch)
        self.fetched = fetched

    def get(self, key: str, *, check: Check = unchecked, private: bool = False) -> Hit | None:
        """Return the wheel built from these inputs; None if there is no usable one.

        Args:
            key: of its inputs.
            check: asked of a wheel that comes from the store, before it is taken. An entry's sha256 says no
                more than what was put there: whoever may write to the store can put anything there.
            private: the key means nothing on other machines.
        """
        local = self.local.get(key)
        if local is not None:
            return Hit(entry=local[0], wheel=local[1], origin="local")
        if self.shared is None or private:
            return None
        if not self.fetched:
            of_shared = self.shared.look(key)
            if of_shared is None:
                return None
            return Hit(entry=of_shared, wheel=self.local.path(of_shared), origin="shared")
        return self.shared.get(key, lambda entry: self._fetch(entry, check))

    def put(  # noqa: PLR0913 - each is one independent property of a build
        self,
        key: str,
        wheel: Path,
        *,
        seconds: float,
        first_key: str | None = None,
        project: str = "",
        inputs: Mapping[str, object] | None = None,
        log: Path | None = None,
        replace: bool = False,
        private: bool = False,
        check: Check = unchecked,
    ) -> Hit:
        """Store a wheel, under its own file name.

        Args:
            key: of its inputs.
            wheel: its file.
            seconds: what its build took.
            first_key: the key it was first built under, when `key` is a second key of the same wheel.
            project: the name of what was built.
            inputs: what the key is a digest of.
            log: that of the build; without one where it is gone.
            replace: overwrite what this folder has under the key.
            private: the key means nothing on other machines.
            check: see `get`.

        Returns:
            The wheel that the cache has now: that of another build if one was first.
        """
        with self.local.staging() as folder:
            log_copy = None
            if log is not None and log.is_file():  # someone may have tidied up during a build of hours
                log_copy = folder / "build.log"
                files.copy(log, log_copy)  # it is looked at twice, and may be added to meanwhile
            entry = CacheEntry(
                key=key,
                first_key=first_key or key,
                project=project,
                file_name=wheel.name,
                sha256=files.sha256_of(wheel),
                size=wheel.stat().st_size,
                log_sha256=None if log_copy is None else files.sha256_of(log_copy),
                log_size=0 if log_copy is None else log_copy.stat().st_size,
                seconds=seconds,
                built=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                builder=_builder(),
                inputs=_storable(inputs or {}),
            )
            counts, place = self.local.add(entry, wheel, log_copy, replace=replace)
        if self.shared is not None and not private:
            first_entry = self.shared.add(counts, place, self.log(counts))
            # A different machine was first. This one takes that wheel, as all others will.
            if first_entry is not None and first_entry.sha256 != counts.sha256 and not replace:
                first = self.shared.get(key, lambda entry: self._fetch(entry, check))
                if first is not None:
                    return first
        return Hit(entry=counts, wheel=place, origin="built" if counts is entry else "local")

    def log(self, entry: CacheEntry) -> Path | None:
        """Return the log of a build, if this machine has it."""
        key = entry.log_key()
        path = None if key is None else self.local.store.path / key
        return path if path is not None and path.is_file() else None

    def recent(self, project: str = "") -> Iterator[CacheEntry]:
        """Yield this machine's entries, of one project or of all, the most recently used first."""
        entries_by_age = sorted(
            self.local.store.list(entries.ENTRIES), key=lambda item: item.modified, reverse=True
        )
        for item in entries_by_age:
            try:
                entry = entries.parse(self.local.store.read(item.key).data, Path(item.key).stem)
            except (MissingKeyError, DamagedEntryError):
                continue  # it is reported when it is to be used
            if not project or entry.project == project:
                yield entry

    def bound(self) -> None:
        """Trim the folder of this machine to its limit."""
        trim.keep_within_bound(self.local)

    def _fetch(self, entry: CacheEntry, check: Check) -> Hit:
        """Fetch an entry of the store into the folder.

        Raises:
            DamagedEntryError: the wheel is not what the entry says, or `check` refuses it.
        """
        assert self.shared is not None  # noqa: S101 - only called by it
        with (
            console.current().stage(f"fetch the wheel of {entry.name} from the shared cache") as stage,
            self.local.staging() as folder,
        ):
            wheel, log = self.shared.fetch(entry, folder, stage.update)
            if reason := damage(wheel, entry):
                raise DamagedEntryError(reason)
            try:
                check(wheel)
            except WheelError as error:
                raise DamagedEntryError(str(error)) from error
            if log is None or files.sha256_of(log) != entry.log_sha256:
                log, entry = None, structs.replace(entry, log_sha256=None, log_size=0)
            entry, place = self.local.add(entry, wheel, log, replace=True)
            return Hit(entry=entry, wheel=place, origin="shared")


def _builder() -> str:
    """Describe the builder for a shared cache, without the name of a machine or a user."""
    version = f"Cairn {__version__}"
    # Of every run of GitHub Actions; GitLab and others have none of these names.
    run = [os.environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID")]
    return f"{version}, {run[0]}/{run[1]}/actions/runs/{run[2]}" if all(run) else version


def _storable(inputs: Mapping[str, object]) -> dict[str, Any]:
    """Return inputs as an entry stores them: plain JSON, without a password in any URL."""
    text = safe_text.mask(json.dumps(inputs, ensure_ascii=False))
    # A file name that is not UTF-8 has halves of surrogate pairs in it, which no reader takes.
    plain: dict[str, Any] = json.loads(text.encode(errors="replace"))
    return plain
