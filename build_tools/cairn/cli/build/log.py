"""`cairn build log`: what the last build did, and what a project's tools wrote."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import fields
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, flag
from cairn.output import console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cairn.build.engine.events import AnyEvent


@dataclass(frozen=True, kw_only=True)
class Log:
    """What `cairn build log` is asked for.

    cairn build log torch --causes --output-dir out
    """

    project: str | None = argument(
        "PROJECT", "whose log (default: how each step of the last build ended)", nargs="?"
    )
    causes: bool = flag("only the first lines of the log that say why it failed")
    output_dir: Path = fields.output_dir()
    json: bool = fields.json()


def run(request: Log) -> int:
    """Run the command; returns the exit code."""
    if request.project is None:
        if request.causes:
            raise UsageError("--causes is of the log of one project", tip="name the project")
        return _show_run(request.output_dir, as_json=request.json)
    log = _log_of(request.output_dir, request.project)
    if request.causes:
        return _show_causes(log, as_json=request.json)
    with log.open(encoding="utf-8", errors="replace") as lines:
        if request.json:
            console.current().json({"log": str(log), "lines": [line.rstrip("\n") for line in lines]})
        else:
            for line in lines:
                console.current().out(line.rstrip("\n"))
    return 0


def _log_of(folder: Path, project: str) -> Path:
    """The log of a project, or of one of its variants: `torch [gfx942 3.12]`.

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


def _show_causes(log: Path, *, as_json: bool) -> int:
    from cairn.build.log import causes

    lines = causes.find(log)
    if as_json:
        console.current().json([{"line": cause.number, "text": cause.text} for cause in lines])
        return 0
    for cause in lines:
        console.current().out(f"{log}:{cause.number}: {cause.text}")
    if not lines:
        console.current().info(f"{log}: no line says that something failed")
    return 0


def _show_run(folder: Path, *, as_json: bool) -> int:
    """How each step of the last run ended.

    Raises:
        UsageError: there was no run.
    """
    from cairn import datafile
    from cairn.build.engine import events

    history = events.last_run(folder / events.FILE_NAME)
    if not history:
        raise UsageError(f"no build has written into {folder} yet", tip="name its --output-dir")
    if as_json:
        console.current().json([datafile.to_plain(event) for event in history])
        return 0
    rows = [
        (
            event.step,
            event.ending,
            console.clock(event.seconds) if event.seconds else "-",
            console.size(event.memory) if event.memory else "-",
            event.why,
        )
        for event in history
        if isinstance(event, events.StepEnded)
    ]
    console.current().table(("step", "ended", "time", "memory", "why"), rows)
    for event in history:
        if isinstance(event, events.CacheStatistics):
            problem = f"; {event.problem}" if event.problem else ""
            console.current().info(f"{event.step}: {event}{problem}")
    console.current().info(_summary(history))
    return 0


def _summary(history: Sequence[AnyEvent]) -> str:
    from cairn.build.engine import events

    begun = datetime.fromtimestamp(history[0].at, tz=UTC)
    programs = sum(isinstance(event, events.ProgramStarted) for event in history)
    last = history[-1]
    how = last.ending if isinstance(last, events.RunEnded) else "killed, or still running"
    return f"begun {begun:%Y-%m-%d %H:%M:%S} UTC, {how}; {programs or 'no'} programs started"


COMMANDS = {"log": command(Log, run)}
