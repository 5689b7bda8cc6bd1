"""How `cairn wheel` puts its answers for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.output.console import Console, size
from cairn.targets import product_of
from cairn.wheels.contents.dependency_tree import needed_tree
from cairn.wheels.contents.diff import Delta, Difference
from cairn.wheels.contents.summary import Summary

if TYPE_CHECKING:
    from cairn.wheels.verify.allowed import AllowedFinding
    from cairn.wheels.verify.findings import Finding


def show(screen: Console, summary: Summary) -> None:
    """Print a wheel."""
    screen.out(summary.file_name)
    rows = [
        ("name", summary.distribution),
        ("version", summary.version + (f" (build {summary.build})" if summary.build else "")),
        ("tags", ", ".join(summary.tags)),
        ("python", summary.requires_python or "any"),
        ("size", f"{size(summary.size)}, {size(summary.unpacked_size)} unpacked, {summary.members} files"),
        ("targets", ", ".join(summary.targets) or "none"),
        ("extras", ", ".join(summary.extras) or "none"),
    ]
    rows += [("requires", text) for text in summary.requires_dist]
    rows += [("link", f"{text} (verify refuses it)") for text in summary.links]
    screen.table(("", ""), rows)
    if summary.targets:
        screen.table(("target", "GPUs"), [(name, product_of(name)) for name in summary.targets])
    with_code = [library for library in summary.binaries if library.targets]
    if with_code:
        screen.table(
            ("library", "size", "device code", "targets"),
            [(b.path, size(b.size), size(b.device_code_size), ", ".join(b.targets)) for b in with_code],
        )
    for line in needed_tree(summary.binaries):
        screen.out(line)


def show_difference(screen: Console, found: Difference) -> None:
    """Print what changed, one line each."""
    lines = [f"{name}: {values[0] or '-'} -> {values[1] or '-'}" for name, values in found.fields.items()]
    lines += _signed("requires", found.requirements)
    lines += _signed("file", found.files)
    lines += [f"~ file {path}" for path in found.changed]
    lines += [f"~ run bit {path}" for path in found.modes]
    for library in found.libraries:
        for kind in ("needed", "run_paths", "targets", "version_needs"):
            lines += _signed(f"{library.member}: {kind.replace('_', ' ')}", getattr(library, kind))
    if found.order and not lines:
        lines.append("the same files in another order or with other times")
    for line in lines or ["no difference"]:
        screen.out(line)


def show_findings(
    screen: Console,
    wheel: Path,
    findings: Sequence[Finding],
    known: Sequence[tuple[Finding, AllowedFinding]] = (),
) -> None:
    """Print the verdict on a wheel and every breach; of those that are allowed how many, and the reasons."""
    count = len(findings)
    let = f", {len(known)} allowed" if known else ""
    screen.out(f"{wheel.name}: {'good' if not count else f'{count} finding' + 's' * (count > 1)}{let}")
    for entry in dict.fromkeys(entry for _, entry in known):
        screen.out(f"  [{entry.code}] {entry.member or 'the wheel as a whole'}: allowed, {entry.reason}")
    for finding in findings:
        where = f" {finding.member}:" if finding.member else ""
        screen.out(f"  [{finding.code}]{where} {finding.reason}")
        screen.out(f"      what to do: {finding.fix}")


def _signed(kind: str, change: Delta) -> list[str]:
    return [f"- {kind} {text}" for text in change.removed] + [f"+ {kind} {text}" for text in change.added]
