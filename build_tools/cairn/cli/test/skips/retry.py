"""`cairn test skips retry`: run what is left out, and propose what passes by now for removal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters, files
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.test import suite_options
from cairn.cli.test.skips import options as shared
from cairn.cli.test.skips.listing import conditions_of
from cairn.errors import TestsFailedError, UsageError
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.testing.skips.retry import Solved
    from cairn.testing.skips.skip_files import Listed
    from cairn.testing.suite.run import SuiteRequest

_PATCH = "solved.patch"


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "retry",
        _retry,
        about="run the tests that are left out, and nothing else, and propose those that pass for removal",
        more="Tests run as `cairn test suite` runs them, several times over; one that crashes or hangs costs "
        f"itself alone. Those that passed each time are taken out of the files by the patch {_PATCH} in the "
        "folder of the results, to be applied with git. It is true of this machine: compare with the "
        "conditions of each entry.",
        example="cairn test skips retry external-builds/pytorch/skip-tests --suite external-builds/pytorch "
        "--sources-dir external-builds/pytorch/pytorch",
    )
    shared.add_files(parser)
    suite_options.add_sources_dir(parser)
    suite_options.add_config(parser)
    parser.add_argument(
        "--tries", type=converters.positive, default=3, help="how often each test runs (default: %(default)s)"
    )
    suite_options.add_limits(parser)
    arguments.add_output_dir(parser, default=Path("skips-retried"))
    arguments.add_python(parser, what="that has the wheels")
    arguments.add_json(parser)


def _retry(options: argparse.Namespace) -> int:
    from cairn.testing.skips import retry

    entries = shared.read(options.files)
    if not entries:
        raise UsageError("there is no entry to retry", tip="give a file with skips")
    request = _request(options, entries)
    runs = []
    for number in range(options.tries):
        runs.append(_run(request, request.work_dir / str(number + 1)))
        if not runs[0]:
            raise TestsFailedError(
                "none of the tests that the entries name ran here",
                tip="their conditions are not those of this machine, or the tests are gone: "
                "`cairn test skips lint --collection` tells which",
            )
    found = retry.solved(entries, runs)
    patch = options.output_dir / _PATCH
    show = console.current()
    # Said first: there may be no patch of a file, and the runs may have taken hours.
    if options.json:
        show.json({"retried": len(set().union(*runs)), "solved": [_plain(one) for one in found]})
        files.write_text(patch, retry.patch(found, top=Path.cwd()))
        return 0
    for one in found:
        names, when = wording.some(one.names, shown=3), conditions_of(one.listed.entry.when)
        show.out(f"passes by now: {names} ({one.listed.file.name}, entry {one.listed.number}; when: {when})")
    files.write_text(patch, retry.patch(found, top=Path.cwd()))
    count = sum(len(one.names) for one in found)
    show.out(f"{count} of {sum(len(listed.entry.names) for listed in entries)} may go: {patch}")
    return 0


def _request(options: argparse.Namespace, entries: tuple[Listed, ...]) -> SuiteRequest:
    from cairn.testing.skips import ids
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.run import SuiteRequest, Tested
    from cairn.testing.suite.suite_toml import Choice

    suite = suite_toml.load(suite_options.suite_file(options))
    checkout = options.sources_dir.absolute()
    modules = dict.fromkeys(ids.take_apart(name).module for item in entries for name in item.entry.names)
    there = tuple(module for module in modules if (checkout / suite.tests / module).is_file())
    if not there:
        raise UsageError(
            f"{checkout / suite.tests} has none of the files that the entries name",
            tip="give the sources that they are for",
        )
    return SuiteRequest(
        suite=suite,
        tested=Tested(
            python=options.python or Path(sys.executable), variables=suite_options.variables(options)
        ),
        choice=Choice(include=there),
        skips=entries,
        only_skipped=True,
        retries=0,
        **suite_options.common_values(options, checkout),
    )


def _run(request: SuiteRequest, work_dir: Path) -> Mapping[str, bool]:
    import dataclasses

    from cairn.testing.suite import outcomes
    from cairn.testing.suite.run import run_suite

    show = console.current()
    with show.stage(f"tests that are left out, try {work_dir.name}") as stage:
        folder = run_suite(
            dataclasses.replace(request, work_dir=work_dir), say=show.warn, on_line=stage.update
        )
    found = outcomes.read(folder / outcomes.FILE)
    # A module by itself: its process crashed behind the tests, and any of them may be why.
    crashed = {one.test for one in found if one.failed and one.test == one.module}
    return {
        one.test: one.outcome == "passed" and not one.flaky and one.module not in crashed for one in found
    }


def _plain(one: Solved) -> dict[str, object]:
    return {"file": str(one.listed.file), "number": one.listed.number, "names": list(one.names)}
