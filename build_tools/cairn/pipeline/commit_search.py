"""Find the commit that a first bad set is to blame on: some of its commits are built, and tried as sets are.

The commits that came with the set are put in a row, project by project in the order of building, the oldest
first. State number n has the first n of them and else what the last good set had; a project that none of them
changes comes from the build cache. The wheels of a state are tried beside what else the bad set installs.
A jump of what wheels themselves measure needs no command: the wheels of a state are measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from cairn.errors import BuildError, ProblemsError, UsageError, WheelError
from cairn.output import Progress, wording
from cairn.output.wording import short_id
from cairn.pipeline import bisect, challenge
from cairn.pipeline.bisect import Halving, Search, Try, Verdict
from cairn.pipeline.challenge import Challenge
from cairn.pipeline.night import stage
from cairn.release.pages.trends import Jump
from cairn.release.serve import serving
from cairn.sources.manifest.changelog import Changelog, Commit
from cairn.sources.manifest.manifest import Manifest

# Of `trends.MEASURES`, what wheels by themselves tell.
_MEASURED = ("wheel_size", "installed_size", "kernels")


class Step(NamedTuple):
    """A commit of a project."""

    project: str
    commit: Commit


def steps_of(changes: Changelog) -> tuple[Step, ...]:
    """Return the commits between two manifests in the order in which they are tried, the oldest first.

    Of a merge only the first parents count (`git bisect --first-parent`), so that each has all before it.

    Raises:
        UsageError: there are none, or a branch was rewritten.
    """
    for project in changes.projects:
        if project.dropped:
            raise UsageError(
                f"{project.name} went back, or its branch was rewritten: its commits are in no row",
                tip="try commits by hand, from the changelog",
            )
    steps: list[Step] = []
    for project in changes.projects:
        by_id, row, at = {commit.id: commit for commit in project.commits}, [], project.after
        while commit := by_id.get(at or ""):
            row.append(Step(project.name, commit))
            at = commit.parent
        steps += reversed(row)
    if not steps:
        notes = "; ".join(filter(None, (project.note for project in changes.projects)))
        raise UsageError(f"no commit came with the first bad set{': ' + notes if notes else ''}")
    return tuple(steps)


def cost(steps: Sequence[Step]) -> str:
    """The most that is to be built, in words."""
    builds = math.ceil(math.log2(len(steps)))
    return f"at most {wording.count(range(builds), 'build')} for {wording.count(steps, 'commit')}"


def halving(search: Search, set_id: str, steps: Sequence[Step]) -> Halving:
    """The states between the last good set and the first bad one, and what is known of them."""
    places = {step.commit.id: place for place, step in enumerate(steps, 1)}
    tries = (attempt for attempt in search.tries if attempt.set_id == set_id and attempt.commit in places)
    return Halving(last=len(steps), verdicts={places[attempt.commit]: attempt.verdict for attempt in tries})


def run(  # noqa: PLR0913 - what is searched, where, and who is told
    request: Challenge,
    search: Search,
    steps: Sequence[Step],
    output_dir: Path,
    *,
    jump: Jump | None = None,
    on_try: Progress,
    on_line: Progress | None = None,
) -> tuple[Search, tuple[Step, ...]]:
    """Build and try states between two sets until a commit is to blame; return all tries, and the suspects.

    Args:
        request: the first bad set, and where it is built.
        search: ended by sets; its tries of commits count.
        steps: of `steps_of`, between these two sets.
        output_dir: see `bisect.run`.
        jump: what the wheels of a state are measured for, where there is no command.
        on_try: told which commit is built, and the result.
        on_line: called with each line of installers and of the command.

    Raises:
        UsageError: wheels by themselves do not tell what jumps.
        PrerequisiteError: this machine builds for another Python or platform.
        SourceError: the sources cannot be had any more.
    """
    if not search.command and (jump is None or jump.measure not in _MEASURED):
        raise UsageError(
            "only a command can say which commit is bad",
            tip="give one after --; sizes and kernels are measured without",
        )
    prepared = challenge.prepare(request)
    good = bisect.manifest_of(request.store, search.last_good)
    while (place := (states := halving(search, request.set_id, steps)).next) is not None:
        project, commit = steps[place - 1]
        name = f"{project} {short_id(commit.id)}"
        on_try(f"{name}: building; {cost(steps[states.good : states.bad])} to go")
        trial, wheels = Try(set_id=request.set_id, commit=commit.id), request.work_dir / "commits" / commit.id
        try:
            challenge.build(request, prepared, wheels, instead=_state(good, prepared.frozen, steps[:place]))
        except (BuildError, WheelError, ProblemsError) as error:  # as `git bisect skip`
            problems = error.problems if isinstance(error, ProblemsError) else ()
            if not all(isinstance(problem, BuildError | WheelError) for problem in problems):
                raise  # this machine failed, and not the commit
            on_try(f"{name} cannot be built: {error}")
            search = bisect.noted(search, trial, output_dir)
        else:
            if search.command:
                with serving(request.store) as server:
                    layers = bisect.layers_of(prepared.wheel_set)
                    rest = bisect.addresses(server.url, layers, ("dependencies", "SDK"))
                    install = ["--no-deps", *map(str, sorted(wheels.glob("*.whl"))), *rest]
                    search = bisect.attempt(
                        search, trial, install, output_dir, url=server.url, on_line=on_line
                    )
            else:
                verdict = _measured(sorted(wheels.glob("*.whl")), jump, for_cpu=prepared.wheel_set.for_cpu)
                search = bisect.noted(search, structs.replace(trial, verdict=verdict), output_dir)
        on_try(f"{name}: {search.tries[-1].verdict}")
    return search, tuple(steps[states.good : states.bad])


def _state(good: Manifest, bad: Manifest, steps: Sequence[Step]) -> Manifest:
    """What is built: the bad set's manifest with the last good one's commits, but for these steps."""
    commits = {project.name: project.commit for project in good.projects} | {
        project: commit.id for project, commit in steps
    }
    projects = tuple(
        structs.replace(project, commit=commits.get(project.name, project.commit)) for project in bad.projects
    )
    return structs.replace(bad, projects=projects)


def _measured(wheels: Sequence[Path], jump: Jump | None, *, for_cpu: bool) -> Verdict:
    """Say on which side of a jump wheels are."""
    value = stage.measured(wheels, for_cpu=for_cpu).get(jump.measure) if jump else None
    if jump is None or value is None:
        return "skip"
    return "bad" if abs(value - jump.after) < abs(value - jump.before) else "good"
