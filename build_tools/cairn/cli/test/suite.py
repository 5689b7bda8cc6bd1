"""`cairn test suite` and `merge`: a project's own tests, run on a set or on what is installed, and judged."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.cli.test import suite_options
from cairn.cli.test.suite_options import SuiteOptions
from cairn.errors import UsageError
from cairn.options import argument, option, part
from cairn.output import console
from cairn.testing.options import Floors

if TYPE_CHECKING:
    from cairn.testing.suite.run import Tested


@dataclass(frozen=True, kw_only=True)
class RunSuite(SuiteOptions):
    """What `cairn test suite` is asked for.

    The tests are those of the wheel's commit, which must be checked out, and run module by module in
    processes of their own: a test that crashes or hangs costs itself alone. A failed test is tried again,
    and is flaky where it passes then. Writes outcomes.jsonl, junit.xml and shard.json; and record.json
    where a set was installed.

        cairn test suite --set out/set.json --index-url http://127.0.0.1:8383/staging/simple/ --stack
        external-builds/pytorch --sources-dir external-builds/pytorch/pytorch
    """

    sources_dir: Path = suite_options.sources_dir()
    set: Path | None = option("set.json of the wheels to install", metavar="FILE", convert=converters.file)
    index_url: str | None = fields.index_url()
    find_links: tuple[str, ...] = fields.find_links()
    tools_index_url: str | None = option(
        "package index for what the tests need besides (default: pip's)",
        metavar="URL",
        convert=converters.nonempty,
    )
    stack: Path | None = fields.stack(required=False)
    line: str | None = fields.line()
    python: Path | None = fields.python("that has the wheels, or that an environment is made from")


def _run(request: RunSuite) -> Answer:
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.run import SuiteRequest, Tested

    suite = suite_toml.load(request.suite_file())
    values = request.request_values(request.sources_dir.absolute())
    if request.set is not None:
        tested = _install(request, request.set, suite.requires)
    elif request.index_url or request.find_links:
        raise UsageError("an index was named, but no set to install", tip="name it with --set")
    else:
        tested = Tested(python=request.python or Path(sys.executable), variables=request.variables())
    return suite_options.run(SuiteRequest(suite=suite, tested=tested, **values), request)


def _install(request: RunSuite, set_file: Path, requires: tuple[str, ...]) -> Tested:
    from cairn.testing.suite import on_set
    from cairn.venv import PackageSource
    from cairn.wheels import wheelset

    index_url, links = request.index_url, request.find_links
    if index_url is None and not links:
        raise UsageError("no index to install from", tip="name one with --index-url")
    own = request.own_stack()
    set_request = on_set.SetRequest(
        wheel_set=wheelset.read(set_file),
        work_dir=request.output_dir.absolute(),
        source=PackageSource(index_url=index_url, find_links=links, no_index=index_url is None),
        extra_wheels=own.extra_wheels if own else (),
        requires=requires,
        requires_source=PackageSource(index_url=request.tools_index_url, find_links=links),
        python=request.python,
        environment=request.variables_by_name(),
    )
    with console.current().stage("installing the set and what its tests need") as stage:
        return on_set.install(set_request, on_line=stage.update)


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What `cairn test merge` is asked for.

    Each folder is what one shard of `cairn test suite` or run_pytorch_tests.py wrote. A shard that is
    missing, or a test that ran twice or nowhere, is a failure.

        cairn test merge --floor 40000 --output-dir suite shards/1 shards/2
    """

    folders: tuple[Path, ...] = argument("FOLDER", "the results of a shard", nargs="+", convert=Path)
    output_dir: Path = fields.output_dir(default=Path("suite"))
    floors: Floors = part(Floors)
    json: bool = fields.json()


def _merge(request: Merge) -> Answer:
    from cairn.testing.suite import merge

    merged = merge.merge(
        [folder.absolute() for folder in request.folders],
        request.output_dir.absolute(),
        floor=request.floors.tests,
        device_floor=request.floors.device_tests,
    )
    return suite_options.answer(merged)


COMMANDS = {
    "suite": command(RunSuite, _run),
    "merge": command(Merge, _merge),
}
