"""`cairn bisect`: find the first bad set, and what changed with it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.errors import TestsFailedError, UsageError
from cairn.options import argument, option, switch
from cairn.output import console, wording
from cairn.output.wording import short_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cairn.pipeline.bisect import BisectResult, Search, Verdict
    from cairn.pipeline.commit_search import Step
    from cairn.release.index.generation import IndexSet
    from cairn.release.pages.trends import Jump
    from cairn.store.protocol import Store

_MARKS: Mapping[Verdict, console.Mark] = {"good": "done", "bad": "failed", "skip": "bypassed"}
_FOLDER = Path("bisect")
_WHICH = "{}: the first digits of its id, or a date, for the last set of that day or before"


@dataclass(frozen=True, kw_only=True)
class Bisect(common.StoreOptions):
    """Options of `cairn bisect`.

    Sets between the two are installed, each into an environment that is thrown away, and a command is run in
    it. The command says how a set is by its exit code: 0 is good, 125 cannot be told, anything else is bad.
    Then mixes of the first bad set and the last good one tell which layer is to blame: what was built, the
    ROCm SDK, the dependencies; or the tests, where the good set fails today. A search that was interrupted
    goes on when it is run again. What it costs at most is told first, and by --dry-run.

    A jump that the status page shows names both ends itself. Without a command nothing is installed
    then: what changed in that night is told, with the commits.

    With --stack the search goes on among the commits of the first bad set, where its sources are to blame:
    some of them are built, with the build cache, and tried by the command, or measured where a size or the
    kernels jump. This machine must be of the set's Python and platform.

        cairn bisect --store ./store --index nightly --good 2026-11-01 --bad 2026-11-20 --
        python check_matmul.py
    """

    stack: Path | None = common.stack(required=False)
    index: str = common.index("staging")
    good: str | None = option(_WHICH.format("an earlier set that is good"), metavar="SET|DATE")
    bad: str | None = option(_WHICH.format("a later one that is bad"), metavar="SET|DATE")
    jump: str | None = option(
        "the night at which a line of the status page jumps, in place of --good and --bad",
        metavar="MEASURE[@NIGHT]",
    )
    leg: str | None = option("of which, where several jump", metavar="LEG")
    python: Path | None = common.python("to make the environments from; it must be of the Python of the sets")
    commits: bool = switch("name the commits between, which are fetched from their origins", default=True)
    output_dir: Path = common.output_dir(default=_FOLDER)
    dry_run: bool = common.dry_run()
    command: tuple[str, ...] = argument("-- COMMAND", "what tells good from bad", nargs="*")


def _bisect(request: Bisect) -> Answer:
    from cairn.pipeline import bisect

    if not request.command and not request.dry_run and not request.jump:
        raise UsageError("nothing says which set is bad", tip="give a command after --: -- python check.py")
    store = request.open_existing_store()
    good, bad, jump = request.good, request.bad, None
    if request.jump is not None:
        jump = bisect.jump_of(store, request.index, request.jump, request.leg)
        good, bad = good or jump.last.set_id, bad or jump.first.set_id
    if good is None or bad is None:
        raise UsageError("two ends must be named", tip="give --good and --bad, or --jump")
    search, sets = bisect.prepare(
        store,
        request.index,
        good=good,
        bad=bad,
        command=request.command,
        python=request.python or Path(sys.executable),
    )
    screen = console.current()
    if jump is not None:
        screen.info(f"{jump} in the night {jump.first.night}, after {jump.last.night}")
    if request.dry_run:
        rows = map(_row, sets)
        return Answer(
            [{"set": wheel_set.set_id, "added": wheel_set.added} for wheel_set in sets],
            [Table(("set", "added", "versions"), rows), f"would install {search.cost}"],
        )
    if not request.command:  # the nights have measured it themselves
        outcome = bisect.result(store, search, commits=request.commits, say=screen.info)
        return _answer(outcome, *_commits_of(request, store, outcome, jump))
    search = bisect.resume(search, request.output_dir)
    if search.tries:
        screen.info(f"going on after {wording.count(search.tries, 'run')} of {request.output_dir}")
    with screen.stage(f"search {wording.count(sets, 'set')}") as stage:
        screen.info(f"installs {search.cost}")
        ended = bisect.run(store, search, request.output_dir, on_try=screen.info, on_line=stage.update)
        outcome = bisect.result(store, ended, commits=request.commits, say=stage.update)
    return _answer(outcome, *_commits_of(request, store, outcome, jump))


def _commits_of(
    request: Bisect, store: Store, outcome: BisectResult, jump: Jump | None
) -> tuple[Search, tuple[Step, ...]]:
    """Search among the commits of the first bad set; none without a stack, or where they are not to blame."""
    if request.stack is None or "sources" not in outcome.layers or len(outcome.suspects) > 1:
        return outcome.search, ()
    from cairn import stack as stacks
    from cairn.pipeline import bisect, commit_search
    from cairn.pipeline.challenge import Challenge

    screen, folder = console.current(), request.output_dir.absolute()
    steps = commit_search.steps_of(outcome.changes)
    screen.info(f"builds {commit_search.cost(steps)}")
    built_from = Challenge(
        store=store,
        set_id=outcome.suspects[0].set_id,
        stack=stacks.load(request.stack).for_line(outcome.suspects[0].line),
        index=request.index,
        work_dir=folder,
    )
    search = bisect.resume(outcome.search, folder) if not request.command else outcome.search
    return commit_search.run(built_from, search, steps, folder, jump=jump, on_try=screen.info)


def _answer(outcome: BisectResult, search: Search, commits: Sequence[Step]) -> Answer:
    plain = {
        "first_bad": [suspect.set_id for suspect in outcome.suspects],
        "last_good": outcome.last_good.set_id,
        "layers": outcome.layers,
        "files": outcome.files,
        "search": search,
        "commits": [{"project": step.project, "commit": step.commit} for step in commits],
        "changes": outcome.changes,
    }
    error = None
    if outcome.search.command and outcome.search.is_untold:
        error = TestsFailedError(
            f"whether the good end, {short_id(outcome.last_good.set_id)}, is good here could not be told",
            tip=f"read {outcome.search.tries[-1].log} in the output folder, and name another good set",
        )
    return Answer(plain, _text(outcome, search, commits), error=error)


def _text(outcome: BisectResult, search: Search, commits: Sequence[Step]) -> Iterator[Piece]:
    from cairn.sources.manifest import changelog

    for tried in search.tries:
        mix = f", with the {' and '.join(tried.of_good)} of the last good set," if tried.of_good else ""
        mix = f", built at {short_id(tried.commit)}," if tried.commit else mix
        yield _MARKS[tried.verdict], f"{short_id(tried.set_id)}{mix} {tried.verdict} ({tried.log})"
    if outcome.layers == ("tests",):
        yield "no set is to blame: the good one fails today, so the tests or this machine changed"
        return
    if len(outcome.suspects) == 1:
        yield f"the first bad set is {_description(outcome.suspects[0])}"
    else:
        yield "the first bad set is one of these; the others could not be told:"
        for suspect in outcome.suspects:
            yield f"  {_description(suspect)}"
    yield f"the last good one is {_description(outcome.last_good)}"
    if outcome.layers:
        yield f"to blame: {' or '.join(outcome.layers)}"
        yield from (f"  - {name}" for name in outcome.files.removed)
        yield from (f"  + {name}" for name in outcome.files.added)
    if commits:
        one_of = " is" if len(commits) == 1 else " is one of these; the others could not be told:"
        yield f"the first bad commit{one_of}"
        yield from (f"  {short_id(commit.id)} of {name}: {commit.subject}" for name, commit in commits)
    yield from changelog.lines(outcome.changes)


def _description(wheel_set: IndexSet) -> str:
    set_id, added, versions = _row(wheel_set)
    return f"{set_id} of {added}: {versions}"


def _row(wheel_set: IndexSet) -> tuple[str, str, str]:
    """The beginning of a set's id, when it was added, and its versions."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(wheel_set.projects.items()))
    return short_id(wheel_set.set_id), wheel_set.added[:16].replace("T", " "), versions


COMMANDS = {"bisect": command(Bisect, _bisect, needs="release")}
