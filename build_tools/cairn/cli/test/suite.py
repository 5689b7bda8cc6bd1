"""`cairn test suite`, `shards`, `merge` and `skips retry`: a project's own tests, run, planned and judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.cli.test import suite_options
from cairn.cli.test.suite_options import LimitOptions, SuiteOptions, TimesOptions
from cairn.errors import TestsFailedError, UsageError
from cairn.options import argument, fill, option, part
from cairn.output import console, wording
from cairn.testing.testing_options import Floors

if TYPE_CHECKING:
    from cairn.testing.install_set import Tested
    from cairn.testing.skips.skip_files import Listed, Solved
    from cairn.testing.suite.run import SuiteRequest
    from cairn.testing.suite.suite_toml import Suite


@dataclass(frozen=True, kw_only=True)
class RunSuite(SuiteOptions):
    """Options of `cairn test suite`.

    The tests are those of the wheel's commit, which must be checked out, and run module by module in
    processes of their own: a test that crashes or hangs costs itself alone. A failed test is tried again,
    and is flaky where it passes then. Writes outcomes.jsonl, junit.xml and shard.json; and record.json
    where a set was installed.

        cairn test suite --set out/set.json --index-url http://127.0.0.1:8383/staging/simple/ --stack
        pytorch --sources-dir external-builds/pytorch/pytorch
    """

    sources_dir: Path = suite_options.sources_dir()
    set: Path | None = option("set.json of the wheels to install", convert=converters.file)
    index_url: str | None = common.index_url()
    find_links: tuple[str, ...] = common.find_links()
    stack: Path | None = common.stack(required=False)
    line: str | None = common.line()
    python: Path | None = common.python("that has the wheels, or that an environment is made from")


def _run_suite(request: RunSuite) -> Answer:
    from cairn import interpreters
    from cairn.testing.install_set import Tested
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.run import SuiteRequest

    suite = suite_toml.load(request.suite_file())
    values = request.request_values(request.sources_dir.absolute())
    if request.set is not None:
        tested = _install(request, request.set, suite)
    elif request.index_url or request.find_links:
        raise UsageError("an index was named, but no set to install", tip="name it with --set")
    else:
        tested = Tested(python=interpreters.of_user(request.python), variables=request.variables())
    return suite_options.run(fill(SuiteRequest, request, suite=suite, tested=tested, **values), request)


def _install(request: RunSuite, set_file: Path, suite: Suite) -> Tested:
    from cairn.testing import install_set
    from cairn.venv import PackageSource
    from cairn.wheels import wheelset

    index_url, links = request.index_url, request.find_links
    if index_url is None and not links:
        raise UsageError("no index to install from", tip="name one with --index-url")
    stack, wheel_set = request.own_stack(), wheelset.read(set_file)
    set_request = install_set.SuiteSetRequest(
        wheel_set=wheel_set,
        work_dir=request.output_dir.absolute(),
        source=PackageSource(index_url=index_url, find_links=links, no_index=index_url is None),
        extra_wheels=stack.extra_wheels if stack else (),
        requires=suite.requires_with(wheel_set),
        requires_source=PackageSource(find_links=links),
        python=request.python,
        environment=request.variables_by_name(),
    )
    with console.current().stage("installing the set and what its tests need") as stage:
        return install_set.install_for_suite(set_request, on_line=stage.update)


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Options of `cairn test merge`.

    Each folder is what one shard of `cairn test suite` or run_pytorch_tests.py wrote. A shard that is
    missing, or a test that ran twice or nowhere, is a failure.

        cairn test merge --floor 40000 --output-dir suite shards/1 shards/2
    """

    folders: tuple[Path, ...] = argument("FOLDER", "the results of a shard", nargs="+", convert=Path)
    output_dir: Path = common.output_dir(default=Path("suite"))
    floors: Floors = part(Floors)


def _merge(request: Merge) -> Answer:
    from cairn.testing.suite import merge

    merged = merge.merge(
        [folder.absolute() for folder in request.folders],
        request.output_dir.absolute(),
        floor=request.floors.tests,
        device_floor=request.floors.device_tests,
    )
    return suite_options.answer(merged)


@dataclass(frozen=True, kw_only=True)
class Shards(TimesOptions):
    """Options of `cairn test shards`.

    Longest modules first; a module is cut where it fits into no shard whole. Each shard makes the same
    plan by itself, from the same sources and times.

        cairn test shards --suite external-builds/pytorch --sources-dir pytorch --times outcomes.jsonl
        --num-shards 6
    """

    sources_dir: Path = suite_options.sources_dir()
    stack: Path | None = common.stack(required=False)
    line: str | None = common.line()
    num_shards: int | None = option(
        "number of shards (default: the configuration's)", metavar="N", convert=converters.shards
    )


def _shards(request: Shards) -> Answer:
    from cairn.testing.suite import shards, suite_toml
    from cairn.testing.testing_options import Choice

    suite = suite_toml.load(request.suite_file())
    config = suite.config(request.test_config)
    modules = suite_toml.choose(config, request.sources_dir / suite.tests, Choice())
    shard_plan = shards.plan_shards(modules, request.read_times(), request.num_shards or config.shards)
    # With upstream's names for what its workflows read.
    include = [
        {
            "test_config": request.test_config,
            "shard": number,
            "num_shards": len(shard_plan.shards),
            "minutes": round(seconds / 60, 1),
        }
        for number, seconds in enumerate(shard_plan.seconds, 1)
    ]
    if unknown := shard_plan.unknown:
        console.current().warn(f"no time is known of {len(unknown)} modules, such as {unknown[0]}")
    rows = [
        (number, f"{seconds / 60:.1f}", len(shard), shard[0].module if shard else "")
        for number, (shard, seconds) in enumerate(zip(shard_plan.shards, shard_plan.seconds, strict=True), 1)
    ]
    return Answer({"include": include}, [Table(("shard", "minutes", "modules", "longest"), rows)])


_PATCH = "solved.patch"


@dataclass(frozen=True, kw_only=True)
class Retry(LimitOptions):
    """Options of `cairn test skips retry`.

    Tests run as `cairn test suite` runs them, several times over; one that crashes or hangs costs itself
    alone. Those that passed each time are taken out of the files by the patch solved.patch in the folder
    of the results, to be applied with git. It is true of this machine: compare with the conditions of
    each entry.

        cairn test skips retry external-builds/pytorch/skip-tests --suite external-builds/pytorch
        --sources-dir external-builds/pytorch/pytorch
    """

    files: tuple[Path, ...] = common.skip_files()
    sources_dir: Path = suite_options.sources_dir()
    json: bool = False
    tries: int = option(
        "how often each test runs (default: %(default)s)", default=3, convert=converters.positive
    )
    output_dir: Path = common.output_dir(default=Path("skips-retried"))


def _retry(request: Retry) -> Iterator[Answer | Piece]:
    from cairn import files
    from cairn.testing.skips import skip_files

    entries = skip_files.read(request.files)
    if not entries:
        raise UsageError("there is no entry to retry", tip="give a file with skips")
    suite_request = _retry_request(request, entries)
    runs = []
    for number in range(request.tries):
        runs.append(_try_skipped(suite_request, suite_request.work_dir / str(number + 1)))
        if not runs[0]:
            raise TestsFailedError(
                "none of the tests that the entries name ran here",
                tip="their conditions are not those of this machine, or the tests are gone: "
                "`cairn test skips lint --collection` tells which",
            )
    solved = skip_files.solved(entries, runs)
    patch = request.output_dir / _PATCH
    rows = [
        {"file": entry.listed.file, "number": entry.listed.number, "names": entry.names} for entry in solved
    ]
    # Shown first: there may be no patch of a file, and the runs may have taken hours.
    yield Answer({"retried": len(set().union(*runs)), "solved": rows}, map(_solved_line, solved))
    files.write_text(patch, skip_files.patch(solved, top=Path.cwd()))
    if not request.json:
        count = sum(len(entry.names) for entry in solved)
        total = sum(len(item.entry.names) for item in entries)
        yield f"{count} of {total} may go: {patch}"


def _solved_line(solved: Solved) -> str:
    from cairn.cli.test.skips import conditions_of  # its requests are not for --help

    names, entry = wording.some(solved.names, shown=3), solved.listed
    when = conditions_of(entry.entry.when)
    return f"passes by now: {names} ({entry.file.name}, entry {entry.number}; when: {when})"


def _retry_request(request: Retry, entries: tuple[Listed, ...]) -> SuiteRequest:
    from cairn import interpreters
    from cairn.testing.install_set import Tested
    from cairn.testing.skips import ids
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.run import SuiteRequest
    from cairn.testing.testing_options import Choice

    suite = suite_toml.load(request.suite_file())
    checkout = request.sources_dir.absolute()
    top = checkout / suite.tests
    places = dict.fromkeys(ids.take_apart(name).module for item in entries for name in item.entry.names)
    # A pattern of a folder is of any file below it.
    files = (path for place in places for path in top.glob(place.replace("/*", "/**/test_*.py")))
    present = tuple(dict.fromkeys(path.relative_to(top).as_posix() for path in files if path.is_file()))
    if not present:
        raise UsageError(
            f"{top} has none of the files that the entries name",
            tip="give the sources that they are for",
        )
    return fill(
        SuiteRequest,
        request,
        suite=suite,
        tested=Tested(python=interpreters.of_user(request.python), variables=request.variables()),
        choice=Choice(include=present),
        skips=entries,
        only_skipped=True,
        retries=0,
        **request.request_values(checkout),
    )


def _try_skipped(request: SuiteRequest, work_dir: Path) -> Mapping[str, bool]:

    from cairn.testing.suite import suite_results
    from cairn.testing.suite.run import run_suite

    show = console.current()
    with show.stage(f"tests that are left out, try {work_dir.name}") as stage:
        folder = run_suite(
            dataclasses.replace(request, work_dir=work_dir), say=show.warn, on_line=stage.update
        )
    tests = suite_results.read_outcomes(folder / suite_results.OUTCOMES)
    # A module by itself: its process crashed behind the tests, and any of them may be why.
    crashed = {test.test for test in tests if test.failed and test.test == test.module}
    return {
        test.test: test.outcome == "passed" and not test.flaky and test.module not in crashed
        for test in tests
    }


COMMANDS = {
    "suite": command(RunSuite, _run_suite, needs="test"),
    "merge": command(Merge, _merge),
    "shards": command(Shards, _shards),
    "retry": command(Retry, _retry, needs="test"),
}
