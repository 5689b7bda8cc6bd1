"""`cairn test skips retry`: run what is left out, and propose what passes by now for removal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.cli.test import suite_options
from cairn.cli.test.skips.entries import conditions_of, skip_files
from cairn.cli.test.suite_options import LimitOptions
from cairn.errors import TestsFailedError, UsageError
from cairn.options import option
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.testing.skips.retry import Solved
    from cairn.testing.skips.skip_files import Listed
    from cairn.testing.suite.run import SuiteRequest

_PATCH = "solved.patch"


@dataclass(frozen=True, kw_only=True)
class Retry(LimitOptions):
    """What `cairn test skips retry` is asked for.

    Tests run as `cairn test suite` runs them, several times over; one that crashes or hangs costs itself
    alone. Those that passed each time are taken out of the files by the patch solved.patch in the folder
    of the results, to be applied with git. It is true of this machine: compare with the conditions of
    each entry.

        cairn test skips retry external-builds/pytorch/skip-tests --suite external-builds/pytorch
        --sources-dir external-builds/pytorch/pytorch
    """

    files: tuple[Path, ...] = skip_files()
    sources_dir: Path = suite_options.sources_dir()
    tries: int = option(
        "how often each test runs (default: %(default)s)", default=3, convert=converters.positive
    )
    output_dir: Path = fields.output_dir(default=Path("skips-retried"))


def run(request: Retry) -> None:
    """Run the command."""
    from cairn import files
    from cairn.testing.skips import retry, skip_files

    entries = skip_files.read(request.files)
    if not entries:
        raise UsageError("there is no entry to retry", tip="give a file with skips")
    suite_request = _suite_request(request, entries)
    runs = []
    for number in range(request.tries):
        runs.append(_try(suite_request, suite_request.work_dir / str(number + 1)))
        if not runs[0]:
            raise TestsFailedError(
                "none of the tests that the entries name ran here",
                tip="their conditions are not those of this machine, or the tests are gone: "
                "`cairn test skips lint --collection` tells which",
            )
    solved = retry.solved(entries, runs)
    patch = request.output_dir / _PATCH
    rows = [{"file": one.listed.file, "number": one.listed.number, "names": one.names} for one in solved]
    # Shown first: there may be no patch of a file, and the runs may have taken hours.
    answer = Answer({"retried": len(set().union(*runs)), "solved": rows}, map(_line, solved))
    answer.show(json=request.json)
    files.write_text(patch, retry.patch(solved, top=Path.cwd()))
    if not request.json:
        count = sum(len(one.names) for one in solved)
        total = sum(len(item.entry.names) for item in entries)
        console.current().out(f"{count} of {total} may go: {patch}")


def _line(solved: Solved) -> str:
    names, listed = wording.some(solved.names, shown=3), solved.listed
    when = conditions_of(listed.entry.when)
    return f"passes by now: {names} ({listed.file.name}, entry {listed.number}; when: {when})"


def _suite_request(request: Retry, entries: tuple[Listed, ...]) -> SuiteRequest:
    from cairn.testing.options import Choice
    from cairn.testing.skips import ids
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.run import SuiteRequest, Tested

    suite = suite_toml.load(request.suite_file())
    checkout = request.sources_dir.absolute()
    modules = dict.fromkeys(ids.take_apart(name).module for item in entries for name in item.entry.names)
    present = tuple(module for module in modules if (checkout / suite.tests / module).is_file())
    if not present:
        raise UsageError(
            f"{checkout / suite.tests} has none of the files that the entries name",
            tip="give the sources that they are for",
        )
    return SuiteRequest(
        suite=suite,
        tested=Tested(python=request.python or Path(sys.executable), variables=request.variables()),
        choice=Choice(include=present),
        skips=entries,
        only_skipped=True,
        retries=0,
        **request.request_values(checkout),
    )


def _try(request: SuiteRequest, work_dir: Path) -> Mapping[str, bool]:
    import dataclasses

    from cairn.testing.suite import outcomes
    from cairn.testing.suite.run import run_suite

    show = console.current()
    with show.stage(f"tests that are left out, try {work_dir.name}") as stage:
        folder = run_suite(
            dataclasses.replace(request, work_dir=work_dir), say=show.warn, on_line=stage.update
        )
    tests = outcomes.read(folder / outcomes.FILE)
    # A module by itself: its process crashed behind the tests, and any of them may be why.
    crashed = {one.test for one in tests if one.failed and one.test == one.module}
    return {
        one.test: one.outcome == "passed" and not one.flaky and one.module not in crashed for one in tests
    }


COMMANDS = {"retry": command(Retry, run)}
