"""`cairn test suite`: a project's own tests, run on a set or on what is installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.test import suite_options
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.suite.run import Tested


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "suite",
        run,
        about="run a project's own tests on a set, or on what is installed, and judge them",
        more="The tests are those of the wheel's commit, which must be checked out, and run module "
        "by module in processes of their own: a test that crashes or hangs costs itself alone. A failed test "
        "is tried again, and is flaky where it passes then. Writes outcomes.jsonl, junit.xml and shard.json; "
        "and record.json where a set was installed.",
        example="cairn test suite --set out/set.json --index-url http://127.0.0.1:8383/staging/simple/ "
        "--stack external-builds/pytorch --sources-dir external-builds/pytorch/pytorch",
    )
    suite_options.add_sources_dir(parser)
    parser.add_argument(
        "--set", type=converters.file, metavar="FILE", help="set.json of the wheels to install"
    )
    parser.add_argument(
        "--index-url", type=converters.nonempty, metavar="URL", help="the only package index to use"
    )
    arguments.add_find_links(parser)
    parser.add_argument(
        "--tools-index-url",
        type=converters.nonempty,
        metavar="URL",
        help="package index for what the tests need besides (default: pip's)",
    )
    arguments.add_stack(parser, required=False)
    suite_options.add_config(parser)
    suite_options.add_selection(parser)
    suite_options.add_times(parser)
    arguments.add_output_dir(parser, default=Path("suite"))
    arguments.add_python(parser, what="that has the wheels, or that an environment is made from")
    arguments.add_json(parser)
    suite_options.add_running(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.run import SuiteRequest, Tested

    suite = suite_toml.load(suite_options.suite_file(options))
    values = suite_options.request_values(options, options.sources_dir.absolute())
    if options.set is not None:
        tested = _install(options, suite.requires)
    elif options.index_url or options.find_links:
        raise UsageError("an index was named, but no set to install", tip="name it with --set")
    else:
        tested = Tested(
            python=options.python or Path(sys.executable), variables=suite_options.variables(options)
        )
    return suite_options.run(SuiteRequest(suite=suite, tested=tested, **values), options)


def _install(options: argparse.Namespace, requires: tuple[str, ...]) -> Tested:
    from cairn.testing.suite import on_set
    from cairn.venv import PackageSource
    from cairn.wheels import wheelset

    if options.index_url is None and not options.find_links:
        raise UsageError("no index to install from", tip="name one with --index-url")
    links = tuple(options.find_links)
    request = on_set.SetRequest(
        wheel_set=wheelset.read(options.set),
        work_dir=options.output_dir.absolute(),
        source=PackageSource(
            index_url=options.index_url, find_links=links, no_index=options.index_url is None
        ),
        extra_wheels=arguments.read_stack(options).extra_wheels if options.stack else (),
        requires=requires,
        requires_source=PackageSource(index_url=options.tools_index_url, find_links=links),
        python=options.python,
        environment=suite_options.named_variables(options),
    )
    with console.current().stage("installing the set and what its tests need") as stage:
        return on_set.install(request, on_line=stage.update)
