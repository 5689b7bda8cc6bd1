"""`cairn build log`: what the last build did, and what a project's tools wrote."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Piece, Table
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, flag
from cairn.output import console


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
            [{"line": cause.number, "text": cause.text} for cause in lines],
            [f"{log}:{cause.number}: {cause.text}" for cause in lines]
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


COMMANDS = {"log": command(Log, _log)}
