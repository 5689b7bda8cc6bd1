"""All checks, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cairn.pipeline.doctor import gpu_checks, offers, system_checks, tool_checks
from cairn.pipeline.doctor.findings import Finding
from cairn.pipeline.doctor.machine import Machine
from cairn.pipeline.doctor.need import Need

Check = Callable[[Machine, Need], Iterator[Finding]]

_CHECKS: tuple[Check, ...] = (
    system_checks.system,
    system_checks.windows,
    system_checks.encoding,
    tool_checks.python,
    tool_checks.git,
    tool_checks.compiler,
    tool_checks.build_tools,
    system_checks.disks,
    system_checks.memory,
    system_checks.open_files,
    system_checks.proxy,
    gpu_checks.gpu,
    gpu_checks.requested_targets,
    offers.offers,
)


def diagnose(machine: Machine, need: Need) -> tuple[Finding, ...]:
    """All findings of a machine."""
    return tuple(finding for check in _CHECKS for finding in check(machine, need))
