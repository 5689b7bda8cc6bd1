"""`cairn ci lint`: what no linter finds in the workflows of GitHub Actions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.workflows.findings import Finding


def add_to(commands: Subparsers) -> None:
    """Add the command to its group."""
    lint = add_command(
        commands,
        "lint",
        _run,
        about="check workflows for what other linters do not: promotions that run after a failure, missing "
        "time limits, command lines that Cairn refuses",
        more="It exits with 1 when there is a finding. docs/reference/workflow-rules.md explains each; a "
        "comment at the line or above it, `# cairn-lint: allow RULE: reason`, lets one through. actionlint, "
        "zizmor and check-jsonschema find what this does not look for.",
        example="cairn ci lint .github/workflows/nightly.yml",
    )
    lint.add_argument(
        "files",
        nargs="*",
        type=arguments.file,
        metavar="FILE",
        help="a workflow, or the action.yml of an action (default: all below .github)",
    )
    arguments.add_json(lint)


def _run(options: argparse.Namespace) -> int:
    from cairn.cli.ci import command_lines
    from cairn.workflows import lint

    files = options.files or lint.find_files(Path())
    findings = lint.check(files, command_lines.refusal)
    if options.json:
        console.current().json([_plain(finding) for finding in findings])
    else:
        _show(findings, len(files))
    return 1 if findings else 0


def _show(findings: Sequence[Finding], files: int) -> None:
    show = console.current()
    for finding in findings:
        show.out(f"{finding.file}:{finding.line}: {finding.message} [{finding.rule.code}]")
        show.out(f"    what to do: {finding.advice}")
    of = f"in {files} file{'' if files == 1 else 's'}"
    show.info(f"{wording.count(findings, 'finding')} {of}" if findings else f"no findings {of}")


def _plain(finding: Finding) -> dict[str, object]:
    return {
        "rule": finding.rule.code,
        "file": str(finding.file),
        "line": finding.line,
        "message": finding.message,
        "fix": finding.advice,
    }
