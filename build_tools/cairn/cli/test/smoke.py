"""`cairn test smoke`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.smoke import SmokeRequest, SmokeResult
    from cairn.wheels.wheelset import WheelSet


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "smoke",
        run,
        about="install a set into a fresh environment and test it",
        more="Exactly the files of the set are installed, from one index alone; then the built-in checks and "
        "the stack's own tests run. Without --index-url, packages come from --find-links alone. Writes "
        "record.json and junit.xml. Tests of a set for GPUs that used none do not pass: they are untested.",
        example="cairn test smoke --set out/set.json --stack external-builds/sample "
        "--index-url http://127.0.0.1:8383/staging/simple/ -- -k cpu",
    )
    parser.add_argument(
        "--set", type=converters.file, required=True, metavar="FILE", help="set.json of the wheels"
    )
    parser.add_argument(
        "--index-url", type=converters.nonempty, metavar="URL", help="the only package index to use"
    )
    arguments.add_find_links(parser)
    arguments.add_stack(parser, required=False)
    arguments.add_targets(parser, default="what the set is for; others are refused")
    arguments.add_output_dir(parser, default=Path("smoke"))
    arguments.add_python(parser, what="to make the environment from")
    parser.add_argument(
        "--timeout", type=converters.seconds, default=1800.0, metavar="SECONDS", help="for each run of pytest"
    )
    parser.add_argument("--floor", type=int, default=1, help="fewest tests that must run")
    parser.add_argument(
        "--allow-untested",
        action="store_true",
        help="exit with 0 where nothing failed and no test used a GPU, though the set is for some: the "
        "record is `untested` all the same, and the gate asks for a bypass",
    )
    arguments.add_translate(parser)
    arguments.add_json(parser)
    parser.add_argument(
        "pytest_args",
        nargs="*",
        metavar="-- PYTEST ARGS",
        help="passed on to pytest; the gate does not count a record that was made with any",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn import datafile
    from cairn.testing.smoke import require_passed, run_smoke

    request = _request(options)
    with console.current().stage(f"smoke tests of {len(request.wheel_set.wheels)} wheels") as stage:
        result = run_smoke(request, on_line=stage.update)
    if options.json:
        console.current().json(datafile.to_plain(result.record))
    else:
        _show(result)
    require_passed(result, or_untested=options.allow_untested)
    return 0


def _request(options: argparse.Namespace) -> SmokeRequest:
    from cairn.testing.smoke import SmokeRequest
    from cairn.wheels import wheelset

    wheel_set = wheelset.read(options.set)
    _check_targets(wheel_set, options.targets)
    request = SmokeRequest(
        wheel_set=wheel_set,
        work_dir=options.output_dir.absolute(),
        index_url=options.index_url,
        find_links=tuple(options.find_links),
        python=options.python,
        pytest_args=tuple(options.pytest_args),
        timeout=options.timeout,
        floor=options.floor,
        translate=options.translate,
    )
    return request.of_stack(arguments.read_stack(options)) if options.stack else request


def _check_targets(wheel_set: WheelSet, text: str | None) -> None:
    from cairn.targets import parse_targets

    if text and set(parse_targets(text)) != set(wheel_set.targets):
        raise UsageError(
            f"the set is for {', '.join(wheel_set.targets)}, not for {text}",
            tip="leave --targets out, or build a set for them",
        )


def _show(result: SmokeResult) -> None:
    show, record = console.current(), result.record
    for line in result.failures:
        show.out(f"FAILED {line}")
    for skip in record.skips:
        show.out(f"skipped {skip.test}: {skip.reason}")
    show.out(f"{record.verdict}: {record.reason}")
    show.out(f"record: {result.record_path}")
