"""`cairn doctor`: what a machine lacks, and the line to type about each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.errors import PrerequisiteError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.output.console import Mark
    from cairn.pipeline.doctor.machine import DoctorReport, Level, Machine
    from cairn.pipeline.doctor.need import HostCompiler, Need
    from cairn.stack import Stack

_PURPOSES = {"build": "a build", "install": "an installation", "test": "tests"}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Make the parser that of this command: it has none below it."""
    parser.description = (
        "Check a machine for a build, an installation or tests, and print what to type for what is missing. "
        "Nothing is changed. The exit code is 3 where something that is needed is missing."
    )
    parser.epilog = "example: cairn doctor --for build --stack external-builds/pytorch"
    parser.add_argument(
        "--for",
        dest="purpose",
        choices=tuple(_PURPOSES),
        default="build",
        help="what the machine is for (default: %(default)s)",
    )
    arguments.add_stack(parser, required=False)
    arguments.add_targets(parser, default="of the stack; for tests, whatever is there")
    arguments.add_repeated(parser, "--wheel", "FILE", "a wheel that is to be installed", kind=converters.file)
    parser.add_argument(
        "--index-url", type=converters.nonempty, metavar="URL", help="the only package index to use"
    )
    parser.add_argument(
        "--root-checkout-dir",
        type=converters.new_folder,
        default=Path(),
        metavar="DIR",
        help="folder of the checkouts (default: the current one)",
    )
    arguments.add_python(parser, what="to check")
    parser.add_argument(
        "--machine",
        type=converters.file,
        metavar="FILE",
        help="judge the machine that the answer of `cairn doctor --json` in FILE describes",
    )
    arguments.add_json(parser)
    parser.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from cairn.pipeline.doctor import ask_index, diagnose
    from cairn.pipeline.doctor.machine import DoctorReport

    need = _need(options)
    machine = _machine(options)
    findings = diagnose.diagnose(machine, need)
    if options.index_url:
        findings = (*findings, *ask_index.index(options.index_url, machine, line=options.line))
    report = DoctorReport(purpose=options.purpose, machine=machine, findings=findings)
    _show(report, as_json=options.json)
    missing = tuple(dict.fromkeys(finding.check for finding in findings if finding.level == "missing"))
    if missing:
        raise PrerequisiteError(
            f"{_PURPOSES[options.purpose]} needs what is missing here: {', '.join(missing)}",
            tip="do what is said below each, then run `cairn doctor` again",
        )
    return 0


def _machine(options: argparse.Namespace) -> Machine:
    from cairn import datafile, interpreters
    from cairn.pipeline.doctor import look
    from cairn.pipeline.doctor.machine import DoctorReport

    if options.machine:
        return datafile.read(options.machine, DoctorReport).machine
    return look.here(options.root_checkout_dir, options.python or interpreters.own().path)


def _need(options: argparse.Namespace) -> Need:
    from cairn import targets as gpu
    from cairn.pipeline.doctor import ask_index
    from cairn.pipeline.doctor.need import Need

    stack = arguments.read_stack(options) if options.stack else None
    asked = gpu.parse_targets(options.targets) if options.targets else ()
    return Need(
        purpose=options.purpose,
        targets=asked,
        pythons=stack.pythons if stack else (),
        compiler=_compiler(stack, asked or (stack.targets if stack else ())),
        disk=stack.disk if stack else None,
        offers=tuple(map(ask_index.wheel, options.wheel)),
    )


def _compiler(stack: Stack | None, targets: Sequence[str]) -> HostCompiler:
    from cairn import targets as gpu

    if tuple(targets) == (gpu.CPU,) or (stack is not None and stack.sdk is None):
        return "alone"
    return "brought" if stack is not None and not stack.host_compiler else "needed"


def _show(report: DoctorReport, *, as_json: bool) -> None:
    from cairn import datafile

    screen = console.current()
    if as_json:
        screen.json(datafile.to_plain(report))
        return
    for finding in report.findings:
        if screen.quiet and finding.level in ("ok", "note"):
            continue
        screen.item(_mark(finding.level), f"{finding.check}: {finding.text}")
        if finding.fix:
            screen.out(f"      {finding.fix}")


def _mark(level: Level) -> Mark:
    marks: dict[Level, Mark] = {"ok": "done", "note": "kept", "warning": "bypassed", "missing": "failed"}
    return marks[level]
