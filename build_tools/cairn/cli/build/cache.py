"""`cairn build cache`: what is in a cache of wheels, how it is kept small, and the options that name one."""

from __future__ import annotations

import argparse
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from datetime import timedelta

    from cairn.build.cache import SharedCache
    from cairn.build.cache.local import LocalTier
    from cairn.build.cache.trim import Contents, KeptEntry, Trimmed
    from cairn.store.protocol import Store

T = TypeVar("T")


def add_cache_store(parser: argparse.ArgumentParser) -> None:
    """`--cache-store`, `--cache-read-only` and `--endpoint-url`."""
    _add_url(parser, default="none")
    parser.add_argument(
        "--cache-read-only", action="store_true", help="take wheels from it, and put none there"
    )
    arguments.add_endpoint_url(parser)


def shared_cache(options: argparse.Namespace) -> SharedCache | None:
    """The cache that the options of `add_cache_store` name.

    Raises:
        UsageError: something is said of it, and it is not named.
    """
    from cairn.build.cache import SharedCache

    if options.cache_store is None:
        if options.cache_read_only or options.endpoint_url:
            given = "--cache-read-only" if options.cache_read_only else "--endpoint-url"
            raise UsageError(
                f"{given} is of a shared cache, and none is named", tip="name it: --cache-store URL"
            )
        return None
    return SharedCache(
        url=options.cache_store, endpoint_url=options.endpoint_url, read_only=options.cache_read_only
    )


def add_to(commands: Subparsers) -> None:
    """Add `cache` and its commands."""
    parser = commands.add_parser("cache", help="look at the cache of built wheels, and keep it small")
    below = add_commands(
        parser,
        description="Look at the cache of built wheels, and keep it small: that of this machine, or the one "
        "that --cache-store names.",
        example="cairn build cache show",
        default="show",
    )
    show = add_command(
        below,
        "show",
        _show,
        about="list the wheels, the last used first",
        example="cairn build cache show --cache-store s3://ci-cache/wheels",
    )
    trim = add_command(
        below,
        "trim",
        _trim,
        about="remove what was used longest ago",
        more="What a running build has taken from the cache of this machine stays.",
        example="cairn build cache trim --max-size 20GB --older-than 30d --dry-run",
    )
    trim.add_argument(
        "--max-size",
        type=_as_argument(_size),
        metavar="SIZE",
        help="how much may stay, such as 20GB (default: CAIRN_BUILD_CACHE_SIZE, else 20GB, for this machine; "
        "without limit for a store)",
    )
    trim.add_argument(
        "--older-than",
        type=_as_argument(_age),
        metavar="AGE",
        help="remove what was not used for so long, such as 30d, 12h or 2w",
    )
    arguments.add_dry_run(trim)
    for each in (show, trim):
        _add_url(each, default="the cache of this machine")
        arguments.add_endpoint_url(each)
        arguments.add_json(each)


def _add_url(parser: argparse.ArgumentParser, *, default: str) -> None:
    parser.add_argument(
        "--cache-store",
        type=converters.nonempty,
        metavar="URL",
        help="cache of wheels that machines share: a path, file://… or s3://bucket/prefix "
        f"(default: {default})",
    )


def _show(options: argparse.Namespace) -> int:
    from cairn.build.cache import trim

    store = _store(options)
    found = trim.contents_of_folder(_folder()) if store is None else trim.contents(store)
    if options.json:
        console.current().json(
            {"url": found.url, "size": found.size, "entries": [_plain(each) for each in found.entries]}
        )
        return 0
    if found.entries:
        console.current().table(
            ("wheel", "size", "used", "built", "took", ""), [_row(each, found) for each in found.entries]
        )
    wheels = f"{len(found.entries)} entr{'y' if len(found.entries) == 1 else 'ies'}"
    console.current().info(f"{found.url}: {wheels}, {console.size(found.size)}")
    return 0


def _trim(options: argparse.Namespace) -> int:
    from cairn.build.cache import trim

    store = _store(options)
    rules = {"max_size": options.max_size, "older_than": options.older_than, "dry_run": options.dry_run}
    if store is None:
        if options.max_size is None and options.older_than is None:
            rules["max_size"] = trim.bound()
        trimmed = trim.trim_folder(_folder(), **rules)
    elif options.max_size is None and options.older_than is None:
        raise UsageError("nothing says what may go", tip="name --max-size or --older-than")
    else:
        trimmed = trim.trim(store, **rules)
    _say(trimmed, options)
    return 0


def _say(trimmed: Trimmed, options: argparse.Namespace) -> None:
    if options.json:
        console.current().json(
            {
                "url": trimmed.url,
                "removed": [_plain(each) for each in trimmed.entries],
                "freed": trimmed.freed,
                "kept": trimmed.kept,
                "size": trimmed.size,
                "in_use": trimmed.in_use,
            }
        )
        return
    for each in trimmed.entries:
        console.current().item("failed" if each.entry is None else "kept", _words(each))
    would = "would be removed" if options.dry_run else "removed"
    console.current().info(
        f"{trimmed.url}: {len(trimmed.entries)} {would}, {console.size(trimmed.freed)}; "
        f"{trimmed.kept} stay, {console.size(trimmed.size)}"
    )
    if trimmed.in_use:
        console.current().info(f"{trimmed.in_use} of them only because running builds use them")


def _store(options: argparse.Namespace) -> Store | None:
    from cairn.store import opening

    if options.cache_store is None:
        if options.endpoint_url:
            raise UsageError(
                "--endpoint-url is of a shared cache, and none is named", tip="name --cache-store"
            )
        return None
    return opening.open_existing(
        options.cache_store, endpoint_url=options.endpoint_url, say=console.current().info
    )


def _folder() -> LocalTier:
    from cairn import files
    from cairn.build.cache.local import LocalTier

    return LocalTier(files.cache_dir() / "wheels")


def _row(each: KeptEntry, found: Contents) -> tuple[str, ...]:
    used, entry = _ago(each.used), each.entry
    if entry is None:
        return (each.key[:16], "-", used, "-", "-", "cannot be read")
    size = sum(found.sizes.get(name, 0) for name in entry.file_keys())
    state = "in use" if each.in_use else ""
    return (entry.file_name, console.size(size), used, entry.built, console.clock(entry.seconds), state)


def _words(each: KeptEntry) -> str:
    name = f"{each.key[:16]} (cannot be read)" if each.entry is None else each.entry.file_name
    return f"{name}, used {_ago(each.used)}"


def _ago(when: datetime) -> str:
    days = (datetime.now(UTC) - when).days
    return "today" if days < 1 else f"{days} day{'' if days == 1 else 's'} ago"


def _plain(each: KeptEntry) -> dict[str, object]:
    from cairn import datafile

    known = {} if each.entry is None else datafile.to_plain(each.entry)
    known.pop("schema", None)
    return {"key": each.key, **known, "used": each.used.isoformat(), "in_use": each.in_use}


def _size(text: str) -> int:
    from cairn.build.cache import trim

    return trim.parse_size(text)


def _age(text: str) -> timedelta:
    from cairn.build.cache import trim

    return trim.parse_age(text)


def _as_argument(read: Callable[[str], T]) -> Callable[[str], T]:
    """A reader of ours as a `type` of argparse."""

    def convert(text: str) -> T:
        try:
            return read(text)
        except UsageError as error:
            raise ArgumentTypeError(f"{error}; {error.tip}") from error

    return convert
