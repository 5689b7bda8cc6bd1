"""`cairn build cache`: show and trim a cache of wheels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cairn.build.build_options import age, size
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Piece, Table
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import flag, option
from cairn.output import console

if TYPE_CHECKING:
    from cairn.build.cache.tiers import LocalTier
    from cairn.build.cache.trim import Contents, StoredEntry, TrimResult
    from cairn.store.protocol import Store


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Options of `cairn build cache`.

    It is shown, and with --trim, --max-size or --older-than kept small: what was used longest ago goes. What
    a running build has taken from the cache of this machine stays.

        cairn build cache --max-size 20GB --older-than 30d --dry-run
    """

    cache_store: str | None = common.cache_store("the cache of this machine")
    endpoint_url: str | None = common.endpoint_url()
    trim: bool = flag("remove what was used longest ago, down to the size that --max-size has by default")
    max_size: int | None = option(
        "how much may stay, such as 20GB (default: CAIRN_BUILD_CACHE_SIZE, else 20GB, for this machine; "
        "without limit for a store)",
        metavar="SIZE",
        convert=size,
    )
    older_than: timedelta | None = option(
        "remove what was not used for so long, such as 30d, 12h or 2w", metavar="AGE", convert=age
    )
    dry_run: bool = common.dry_run()

    def open_store(self) -> Store | None:
        """Open the store of the cache; None for the cache of this machine."""
        from cairn.store import opening

        if self.cache_store is None:
            if self.endpoint_url:
                raise UsageError(
                    "--endpoint-url is of a shared cache, and none is named", tip="name --cache-store"
                )
            return None
        return opening.open_existing(
            self.cache_store, endpoint_url=self.endpoint_url, say=console.current().info
        )


def _show(request: Cache) -> Answer:
    from cairn.build.cache import trim

    if request.trim or request.max_size is not None or request.older_than is not None:
        return _trim(request)

    contents = trim.contents(request.open_store() or _folder())
    entries = contents.entries
    rows = [_row(each, contents) for each in entries]
    wheels = f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"
    return Answer(
        {"url": contents.url, "size": contents.size, "entries": list(map(_plain, entries))},
        (
            *([Table(("wheel", "size", "used", "built", "took", ""), rows)] if rows else ()),
            Note(f"{contents.url}: {wheels}, {console.size(contents.size)}"),
        ),
    )


def _trim(request: Cache) -> Answer:
    from cairn.build.cache import trim

    store, max_size = request.open_store(), request.max_size
    if max_size is None and request.older_than is None:
        if store is not None:
            raise UsageError("nothing says what may go", tip="name --max-size or --older-than")
        max_size = trim.bound()
    trimmed = trim.trim(
        store or _folder(), max_size=max_size, older_than=request.older_than, dry_run=request.dry_run
    )
    removed = list(map(_plain, trimmed.entries))
    counts = {name: getattr(trimmed, name) for name in ("freed", "kept", "size", "in_use")}
    return Answer({"url": trimmed.url, "removed": removed, **counts}, _text(trimmed, dry_run=request.dry_run))


def _text(trimmed: TrimResult, *, dry_run: bool) -> Iterator[Piece]:
    for each in trimmed.entries:
        name = f"{each.key[:16]} (cannot be read)" if each.entry is None else each.entry.file_name
        yield "failed" if each.entry is None else "kept", f"{name}, used {_ago(each.used)}"
    would = "would be removed" if dry_run else "removed"
    yield Note(
        f"{trimmed.url}: {len(trimmed.entries)} {would}, {console.size(trimmed.freed)}; "
        f"{trimmed.kept} stay, {console.size(trimmed.size)}"
    )
    if trimmed.in_use:
        yield Note(f"{trimmed.in_use} of them only because running builds use them")


def _folder() -> LocalTier:
    from cairn import files
    from cairn.build.cache.tiers import LocalTier

    return LocalTier(files.cache_dir() / "wheels")


def _row(each: StoredEntry, contents: Contents) -> tuple[str, ...]:
    used, entry = _ago(each.used), each.entry
    if entry is None:
        return (each.key[:16], "-", used, "-", "-", "cannot be read")
    size = sum(contents.sizes.get(name, 0) for name in entry.file_keys())
    state = "in use" if each.in_use else ""
    return (entry.file_name, console.size(size), used, entry.built, console.clock(entry.seconds), state)


def _ago(when: datetime) -> str:
    days = (datetime.now(UTC) - when).days
    return "today" if days < 1 else f"{days} day{'' if days == 1 else 's'} ago"


def _plain(each: StoredEntry) -> dict[str, object]:
    from cairn import datafile

    values = {} if each.entry is None else datafile.to_plain(each.entry)
    values.pop("schema", None)
    return {"key": each.key, **values, "used": each.used.isoformat(), "in_use": each.in_use}


COMMANDS = {"cache": command(Cache, _show)}
