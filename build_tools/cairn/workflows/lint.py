"""All rules over workflow files, with what a comment in the file allows taken out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cairn.errors import UsageError
from cairn.output import wording
from cairn.workflows import workflow as workflows
from cairn.workflows.findings import CODES, Finding, Rule
from cairn.workflows.rules import commands, data, limits, promotion, supply
from cairn.workflows.rules.commands import CheckWords
from cairn.workflows.workflow import Workflow

PLACES = (".github/workflows/*.yml", ".github/workflows/*.yaml", ".github/actions/**/action.y*ml")

_ALLOWED = re.compile(r"#\s*cairn-lint:\s*allow\s+(?P<code>\S+)\s*(?:[-:]\s*(?P<reason>\S.*))?$")


def find_files(root: Path) -> tuple[Path, ...]:
    """The workflows and actions of a repository.

    Raises:
        UsageError: it has none.
    """
    found = tuple(path for place in PLACES for path in sorted(root.glob(place)))
    if not found:
        raise UsageError(
            f"{root} has no workflows in .github/workflows",
            tip="name files, or run it in a repository's root",
        )
    return found


def check(files: Iterable[Path], check_words: CheckWords) -> tuple[Finding, ...]:
    """The findings of files, by file and line.

    Args:
        files: workflows and actions.
        check_words: says what is wrong with a command line.

    Raises:
        PrerequisiteError: PyYAML is not installed.
    """
    return tuple(finding for path in files for finding in _check_file(path, check_words))


def _check_file(path: Path, check_words: CheckWords) -> Sequence[Finding]:
    try:
        workflow = workflows.load(path)
    except UsageError as error:
        return (Finding(rule=Rule.WORKFLOW, file=path, line=1, message=str(error)),)
    found = {
        *promotion.check(workflow),
        *limits.check(workflow),
        *commands.check(workflow, check_words),
        *supply.check(workflow),
        *data.check(workflow),
    }
    kept = [finding for finding in found if not _allowed(finding, workflow)]
    kept += _bad_comments(workflow)
    return sorted(kept, key=lambda finding: (finding.line, finding.rule.code, finding.message))


def _allowed(finding: Finding, workflow: Workflow) -> bool:
    """Whether a comment at its line, or alone in the lines above, allows it and says why."""
    if finding.file != workflow.path:
        return False
    above = finding.line - 2
    at = [finding.line - 1]
    while 0 <= above < len(workflow.lines) and workflow.lines[above].lstrip().startswith("#"):
        at.append(above)
        above -= 1
    matches = (_ALLOWED.search(workflow.lines[number]) for number in at if number < len(workflow.lines))
    return any(match and match["code"] == finding.rule.code and match["reason"] for match in matches)


def _bad_comments(workflow: Workflow) -> Iterator[Finding]:
    for number, text in enumerate(workflow.lines, start=1):
        match = _ALLOWED.search(text)
        if match and match["code"] not in CODES:
            tip = wording.did_you_mean(match["code"], CODES, what="the rules are")
            said, fix = f"there is no rule {match['code']!r}", tip
        elif match and not match["reason"]:
            said, fix = "the comment does not say why", "write `# cairn-lint: allow RULE: reason`"
        else:
            continue
        yield Finding(rule=Rule.WORKFLOW, file=workflow.path, line=number, message=said, fix=fix)
