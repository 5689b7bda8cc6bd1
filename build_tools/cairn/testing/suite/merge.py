"""Merge the shards of a suite and judge them: a missing shard is a failure, whatever the others show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import structs

from cairn import datafile, files, owned
from cairn.errors import TestsFailedError, UsageError
from cairn.stack import Floor
from cairn.targets import CPU
from cairn.testing import junit_writer
from cairn.testing import record as records
from cairn.testing.gpus.gpu import is_amd
from cairn.testing.junit import JUnit, TestOutcome
from cairn.testing.record import Deselected, TestRecord
from cairn.testing.suite import suite_results
from cairn.testing.suite.suite_results import ShardResult, SuiteResult
from cairn.testing.verdict import Judgement, judge, passed_by_target

_FILES = (records.JUNIT, records.FILE, suite_results.OUTCOMES, suite_results.SUITE)
_SHOWN = 3  # of the shards, tests or problems that a sentence is about

_Shard: TypeAlias = tuple[ShardResult, tuple[TestOutcome, ...]]


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """A suite as a whole.

    Attributes:
        judgement: the verdict, and why.
        results: those of the shards, in order.
        outcomes: of every test.
        problems: why the results cannot be trusted as they are.
        junit: all of it as JUnit XML.
        record: the test record; None where it is not known which wheels were installed.
    """

    judgement: Judgement
    results: tuple[ShardResult, ...]
    outcomes: tuple[TestOutcome, ...]
    problems: tuple[str, ...]
    junit: Path
    record: TestRecord | None

    @property
    def summary(self) -> JUnit:
        """The tests, for counting."""
        return JUnit.of(self.outcomes)

    @property
    def flaky(self) -> tuple[TestOutcome, ...]:
        """The tests that failed and passed when tried again."""
        return tuple(outcome for outcome in self.outcomes if outcome.flaky)


def merge(
    folders: Sequence[Path], output: Path, *, floor: int = 1, device_floor: int = 0, part: bool = False
) -> Merged:
    """Judge the shards in these folders together, and write the merged results.

    Args:
        folders: one of each shard, in any order; a shard that none has is a failure.
        output: receives `junit.xml`, `outcomes.jsonl`, `suite-result.json` and `record.json`; it may be the
            folder of the only shard.
        floor: fewest tests that must have run.
        device_floor: fewest tests that must have passed on a GPU.
        part: judge a single shard of several by itself: only what went wrong in it counts.

    Raises:
        UsageError: the shards are not of one run, one of them is there twice, the output has the results of a
            shard, or what is not ours.
        TestsFailedError: there is no shard at all.
    """
    in_place = _is_in_place(folders, output)
    shards, problems = _read_all(folders)
    results = tuple(result for result, _ in shards)
    _refuse_mixture(results)
    first = results[0]
    missing = sorted({*range(1, first.shards + 1)} - {result.shard for result in results})
    if missing and not part:
        problems.insert(0, f"of {first.shards} shards, {_names([str(n) for n in missing])} left no result")
    problems += [
        f"{result.name}: {problem}" if first.shards > 1 else problem
        for result in results
        for problem in result.problems
    ]
    problems += _not_once(shards, whole=not missing)
    unique = _worst(outcome for _, tests in shards for outcome in tests)
    judged = judge_shards(
        results, unique, problems=problems, floor=floor, device_floor=device_floor, part=part
    )
    if not in_place:
        owned.empty_places(output, of_files=_FILES, of_folders=())
    xml = output / records.JUNIT
    junit_writer.write(xml, unique, name=first.config)
    merged = Merged(
        judgement=judged,
        results=results,
        outcomes=unique,
        problems=tuple(problems),
        junit=xml,
        record=_record(results, unique, judged, xml, floor=Floor(tests=floor, device_tests=device_floor))
        if first.wheels and not part
        else None,
    )
    if not in_place:
        suite_results.append_outcomes(output / suite_results.OUTCOMES, unique)
        _write_result(output, merged, missing=missing)
    if merged.record is not None:
        records.write(output / records.FILE, merged.record)
    return merged


def _worst(outcomes: Iterable[TestOutcome]) -> tuple[TestOutcome, ...]:
    """One outcome of each test: a divided module may fail as a whole in one shard, and not in another."""
    worst: dict[str, TestOutcome] = {}
    for outcome in outcomes:
        if outcome.test not in worst or outcome.failed:
            worst[outcome.test] = outcome
    return tuple(worst.values())


def _is_in_place(folders: Sequence[Path], output: Path) -> bool:
    """Whether the output is the folder of the only shard; one of several shards would lose its outcomes."""
    # However the user spells them: `shards/1`, `./shards/1/`, a link to it.
    if [folder.resolve() for folder in folders] == [output.resolve()]:
        return True
    if (output / suite_results.SHARD).exists():
        raise UsageError(
            f"{output} has the results of a shard, which the whole would replace",
            tip="name a different folder with --output-dir",
        )
    return False


def judge_shards(
    results: Sequence[ShardResult],
    tests: Sequence[TestOutcome],
    *,
    problems: Sequence[str],
    floor: int = 0,
    device_floor: int = 0,
    part: bool,
) -> Judgement:
    """Judge the tests of shards, which have these problems; see `merge`."""
    first, hardware, summary = results[0], _most(results).hardware, JUnit.of(tests)
    unfinished = {module for result in results for module in result.unfinished}
    counts = [count for result in results for count in result.modules]
    modules = {count.module for count in counts}
    unfinished |= {test.module for test in tests if test.outcome == "passed"} - modules
    judged = judge(
        summary,
        exit_code=0,
        targets=first.targets or tuple(filter(is_amd, hardware)) or (CPU,),
        hardware=hardware,
        disagreements=[disagreement for result in results for disagreement in result.disagreements],
        floor=0 if part else floor,
        device_floor=0 if part else device_floor,
        deselected=_deselected(results),
        problems=problems,
        unfinished=(len(unfinished), len(modules | unfinished)),
        without_tests=sorted({count.module for count in counts if count.whole == 0}),
        flaky_ceiling=first.flaky_ceiling,
        hooks=_hooks(results),
    )
    is_good = not (summary.failures or problems or unfinished)
    if part and judged.verdict in ("failed", "untested") and is_good:
        return Judgement(verdict="passed", reason=f"nothing failed in {first.name}: {judged.reason}")
    return judged


def _deselected(results: Sequence[ShardResult]) -> tuple[Deselected, ...]:
    """Return the deselections of all shards; each shard of a divided module has counted them."""
    most: dict[tuple[str, Deselected], int] = {}
    for result in results:
        for count in result.modules:
            for part in count.gone:
                key = (count.module, structs.replace(part, tests=0))
                most[key] = max(most.get(key, 0), part.tests)
    totals: dict[Deselected, int] = defaultdict(int)
    for (_, who), tests in most.items():
        totals[who] += tests
    return tuple(structs.replace(who, tests=tests) for who, tests in totals.items())


def _hooks(results: Sequence[ShardResult]) -> tuple[str, ...]:
    return tuple(sorted({hook for result in results for hook in result.hooks}))


def _most(results: Sequence[ShardResult]) -> ShardResult:
    """Return the shard with the most GPUs, which represents all machines: they have GPUs of one kind."""
    return max(results, key=lambda result: len(result.gpus))


def _read_all(folders: Sequence[Path]) -> tuple[list[_Shard], list[str]]:
    """Read the shards in the folders, in order; also return why others cannot be read."""
    shards, problems = list[_Shard](), list[str]()
    for folder in folders:
        try:
            shards.append(suite_results.read_shard(folder))
        except UsageError as error:
            problems.append(str(error))
    if not shards:
        raise TestsFailedError(
            f"no shard left a result: {problems[0] if problems else 'no folder was named'}",
            tip="read the logs of the machines that ran them",
        )
    return sorted(shards, key=lambda pair: pair[0].shard), problems


def _refuse_mixture(results: Sequence[ShardResult]) -> None:
    first = results[0]
    twice = [number for number, count in Counter(r.shard for r in results).items() if count > 1]
    if twice:
        raise UsageError(
            f"shard {twice[0]} is there {sum(r.shard == twice[0] for r in results)} times",
            tip="name the folders of one run; those of an earlier attempt do not belong to it",
        )
    for result in results[1:]:
        if differing := first.differences(result):
            raise UsageError(
                f"{first.name} and {result.name} are not of one run: {', '.join(differing)} differ",
                tip="name the folders of one run",
            )


def _not_once(shards: Sequence[_Shard], *, whole: bool) -> list[str]:
    """Report tests that did not run exactly once, and shards on different kinds of GPUs."""
    problems = []
    times = Counter(outcome.test for _, tests in shards for outcome in tests if "::" in outcome.test)
    if twice := sorted(test for test, count in times.items() if count > 1):
        problems.append(f"{len(twice)} tests ran in two shards: {_names(twice)}")
    selected: dict[str, int] = defaultdict(int)
    wholes: dict[str, set[int]] = defaultdict(set)
    unfinished = {module for result, _ in shards for module in result.unfinished}
    for result, _ in shards:
        for count in result.modules:
            if count.cut:
                selected[count.module] += count.selected
                wholes[count.module].add(count.left)
    # Each shard collects the whole of a module that is cut, so that all must have seen as many tests.
    for module, seen in sorted(wholes.items()):
        if whole and module not in unfinished and seen != {selected[module]}:
            counted = " and ".join(map(str, sorted(seen)))
            problems.append(f"{module} has {counted} tests, and its shards had {selected[module]}")
    kinds = {frozenset(result.hardware) for result, _ in shards}
    if len(kinds) > 1:
        hardware = sorted(", ".join(sorted(kind)) or "no GPU" for kind in kinds)
        problems.append(f"the shards ran on different hardware: {'; '.join(hardware)}")
    return problems


def _write_result(output: Path, merged: Merged, *, missing: Sequence[int]) -> None:
    first = merged.results[0]
    # Each shard that has a module of which all tests are left out says so.
    excluded = dict.fromkeys(item for result in merged.results for item in result.excluded)
    result = SuiteResult(
        config=first.config,
        shards=first.shards,
        missing=tuple(missing),
        sources=first.sources,
        problems=merged.problems,
        excluded=tuple(excluded),
        outdated=tuple(dict.fromkeys(line for result in merged.results for line in result.outdated)),
        outcomes_sha256=files.sha256_of(output / suite_results.OUTCOMES),
    )
    datafile.write(output / suite_results.SUITE, result)


def _record(
    results: Sequence[ShardResult],
    tests: Sequence[TestOutcome],
    judged: Judgement,
    xml: Path,
    *,
    floor: Floor,
) -> TestRecord:
    first, summary, most = results[0], JUnit.of(tests), _most(results)
    starts = [datetime.fromisoformat(result.started) for result in results]
    # Clocks of machines differ, and jump: an end is a start and a time that was measured.
    ends = [
        start + timedelta(seconds=result.duration_seconds)
        for start, result in zip(starts, results, strict=True)
    ]
    return TestRecord(
        set_id=first.set_id,
        wheels=first.wheels,
        kind="suite",
        family=first.family,
        targets=first.targets,
        hardware=most.hardware,
        gpus=most.gpus,
        covered=passed_by_target(summary, first.targets),
        counts=summary.counts,
        junit_sha256=files.sha256_of(xml),
        started=records.time_of(min(starts)),
        duration_seconds=round((max(ends) - min(starts)).total_seconds(), 3),
        verdict=judged.verdict,
        reason=judged.reason,
        flaky=tuple(test.test for test in tests if test.flaky),
        overruled=tuple(test.test for test in tests if test.overruled),
        pytest_args=first.pytest_args,
        config=first.config,
        deselected=_deselected(results),
        policy=first.policy and structs.replace(first.policy, floor=floor),
        hanging=tuple(dict.fromkeys(gpu for result in results for gpu in result.hanging)),
        pytest=tuple(dict.fromkeys(name for result in results for name in result.pytest)),
        hooks=_hooks(results),
        confinement="\n".join(filter(None, dict.fromkeys(result.confinement for result in results))),
    )


def _names(items: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return separator.join(items[:_SHOWN]) + more
