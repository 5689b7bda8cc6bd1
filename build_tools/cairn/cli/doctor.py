"""`cairn doctor`: find what a machine lacks, with a command line to fix each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Piece
from cairn.cli.binder import command
from cairn.errors import PrerequisiteError
from cairn.options import option, repeated
from cairn.output import console

if TYPE_CHECKING:
    from cairn.output.console import Mark
    from cairn.pipeline.doctor.model import Finding, HostCompiler, Level, Need, Purpose
    from cairn.stack import Stack

_MARKS: Mapping[Level, Mark] = {"ok": "done", "note": "kept", "warning": "bypassed", "missing": "failed"}
_PURPOSES = {"build": "a build", "install": "an installation", "test": "tests"}


@dataclass(frozen=True, kw_only=True)
class Doctor(common.OptionalStack):
    """Options of `cairn doctor`.

    It prints what to type for what is missing. Nothing is changed. The exit code is 3 where something that is
    needed is missing.

        cairn doctor --for build --stack pytorch
    """

    purpose: Purpose = option(
        "what the machine is for (default: %(default)s)", "--for", choices=tuple(_PURPOSES), default="build"
    )
    targets: str | None = common.targets("of the stack; for tests, whatever is there")
    wheel: tuple[Path, ...] = repeated("a wheel that is to be installed", convert=converters.file)
    index_url: str | None = common.index_url()
    root_checkout_dir: Path = option(
        "folder of the checkouts (default: the current one)", convert=converters.new_folder, default=Path()
    )
    python: Path | None = common.python("to check")
    machine: Path | None = option(
        "judge the machine that the answer of `cairn doctor --json` in FILE describes",
        convert=converters.file,
    )


def _doctor(request: Doctor) -> Answer:
    from cairn import datafile, interpreters
    from cairn.pipeline.doctor import checks, look
    from cairn.pipeline.doctor.model import DoctorReport

    need = _need(request)
    if request.machine:
        machine = datafile.read(request.machine, DoctorReport).machine
    else:
        machine = look.here(request.root_checkout_dir, request.python or interpreters.current().path)
    findings = checks.diagnose(machine, need)
    if request.index_url:
        findings = (*findings, *checks.index(request.index_url, machine, line=request.line))
    report = DoctorReport(purpose=request.purpose, machine=machine, findings=findings)
    missing = tuple(dict.fromkeys(finding.check for finding in findings if finding.level == "missing"))
    error = PrerequisiteError(
        f"{_PURPOSES[request.purpose]} needs what is missing here: {', '.join(missing)}",
        tip="do what is said below each, then run `cairn doctor` again",
    )
    return Answer(report, text_of(findings), error=error if missing else None)


def _need(request: Doctor) -> Need:
    from cairn import targets as gpu
    from cairn.pipeline.doctor import look
    from cairn.pipeline.doctor.model import Need

    stack = request.load_stack()
    targets = gpu.parse_targets(request.targets) if request.targets else ()
    return Need(
        purpose=request.purpose,
        targets=targets,
        pythons=stack.pythons if stack else (),
        compiler=_compiler(stack, targets or (stack.targets if stack else ())),
        disk=stack.disk if stack else None,
        offers=tuple(map(look.wheel, request.wheel)),
    )


def _compiler(stack: Stack | None, targets: Sequence[str]) -> HostCompiler:
    from cairn import targets as gpu

    if tuple(targets) == (gpu.CPU,) or (stack is not None and stack.sdk is None):
        return "alone"
    return "brought" if stack is not None and not stack.host_compiler else "needed"


def text_of(findings: Iterable[Finding]) -> Iterator[Piece]:
    """Findings for people: each with what to do about it."""
    for finding in findings:
        if console.current().quiet and finding.level in ("ok", "note"):
            continue
        yield _MARKS[finding.level], f"{finding.check}: {finding.text}"
        if finding.fix:
            yield f"      {finding.fix}"


COMMANDS = {"doctor": command(Doctor, _doctor)}
