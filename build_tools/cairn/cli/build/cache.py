"""`cairn build cache` and `log`: the cache of wheels, and what a build did and its tools wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.build.build_options import age, size
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Piece, Table
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, flag, option
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


@dataclass(frozen=True, kw_only=True)
class Log:
    """Options of `cairn build log`.

    cairn build log torch --causes --output-dir out
    """

    project: str | None = argument(
        "PROJECT", "whose log (default: how each step of the last build ended)", nargs="?"
    )
    causes: bool = flag("only the first lines of the log that say why it failed")
    output_dir: Path = common.output_dir()


def _log(request: Log) -> Answer:
    from cairn.build import build_log

    if request.project is None:
        if request.causes:
            raise UsageError("--causes is of the log of one project", tip="name the project")
        return _last_run(request.output_dir)
    log = _log_of(request.output_dir, request.project)
    if request.causes:
        lines = build_log.find(log)
        return Answer(
            [{"line": number, "text": text} for number, text in lines],
            [f"{log}:{number}: {text}" for number, text in lines]
            or [Note(f"{log}: no line says that something failed")],
        )
    with log.open(encoding="utf-8", errors="replace") as lines_of_log:
        text = [line.rstrip("\n") for line in lines_of_log]
    return Answer({"log": log, "lines": text}, text)


def _log_of(folder: Path, project: str) -> Path:
    """Return the log of a project, or of one of its variants: `torch [gfx942 3.12]`.

    Raises:
        UsageError: there is none.
    """
    from cairn.build.engine import events
    from cairn.output import wording

    logs = {path.stem: path for path in sorted((folder / "logs").glob("*.log"))}
    for event in events.last_run(folder / events.FILE_NAME):
        if isinstance(event, events.StepStarted) and event.log and Path(event.log).is_file():
            logs[event.step.removeprefix("build ")] = Path(event.log)
    if project in logs:
        return logs[project]
    raise UsageError(
        f"{folder} has no log of {project[:100]}",
        tip=wording.did_you_mean(project, logs, what="logs there"),
    )


def _last_run(folder: Path) -> Answer:
    """Return how each step of the last run ended.

    Raises:
        UsageError: there was no run.
    """
    from cairn.build.engine import events

    history = events.last_run(folder / events.FILE_NAME)
    if not history:
        raise UsageError(f"no build has written into {folder} yet", tip="name its --output-dir")
    rows = [
        (
            event.step,
            event.ending,
            console.clock(event.seconds) if event.seconds else None,
            console.size(event.memory) if event.memory else None,
            event.why,
        )
        for event in history
        if isinstance(event, events.StepEnded)
    ]
    counts = (event for event in history if isinstance(event, events.CacheStatistics))
    begun, last = datetime.fromtimestamp(history[0].at, tz=UTC), history[-1]
    how = last.ending if isinstance(last, events.RunEnded) else "killed, or still running"
    programs = sum(isinstance(event, events.ProgramStarted) for event in history)
    text: tuple[Piece, ...] = (
        Table(("step", "ended", "time", "memory", "why"), rows),
        *(
            Note(f"{event.step}: {event}" + (f"; {event.problem}" if event.problem else ""))
            for event in counts
        ),
        Note(f"begun {begun:%Y-%m-%d %H:%M:%S} UTC, {how}; {programs or 'no'} programs started"),
    )
    return Answer(history, text)


COMMANDS = {"cache": command(Cache, _show), "log": command(Log, _log)}
