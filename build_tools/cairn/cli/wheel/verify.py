"""`cairn wheel verify`: whether wheels may be published."""

from __future__ import annotations

import argparse
import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import UsageError, WheelError
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.wheels.verify import Expectation
    from cairn.wheels.verify.allowed import AllowedFinding
    from cairn.wheels.verify.findings import Finding, Verdict

_ONE_SPLIT = "take host and device wheels from one split"
_PYTHON = re.compile(r"3\.[0-9]{1,3}t?")


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "verify",
        run,
        about="check everything that a published wheel must satisfy, and list every breach",
        more="Wheels that are named together bring the libraries of those that require them. A device wheel "
        "that is named with its host wheel must have what was split from that.",
        example="cairn wheel verify --targets gfx942,gfx1100 --sibling triton=3.5.0 "
        "--find-links sdk out/*.whl",
    )
    arguments.add_wheels(parser)
    arguments.add_targets(parser, default="whatever it has code for")
    parser.add_argument(
        "--require-device-code", action="store_true", help="refuse a wheel without any device code"
    )
    parser.add_argument("--python", help="Python that must be able to install it, such as 3.11 or 3.13t")
    arguments.add_repeated(parser, "--sibling", "NAME=VERSION", "a wheel it was built against")
    arguments.add_provided(parser)
    arguments.add_repeated(
        parser,
        "--find-links",
        "DIR",
        "a folder of wheels that its requirements lead to, such as the ROCm SDK's",
        kind=converters.folder,
    )
    arguments.add_repeated(parser, "--forbid", "TEXT", "a text that no file may contain")
    arguments.add_repeated(
        parser,
        "--allow",
        "FILE",
        "findings that are known, in TOML: by wheel, code and member, each with a reason",
        kind=converters.file,
    )
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn import datafile
    from cairn.wheels.contents import providers
    from cairn.wheels.split import completeness
    from cairn.wheels.verify import Finding, FindingCode, allowed, judge

    asked = _expectation(options)
    entries = [entry for path in options.allow for entry in allowed.read(path)]
    beside = providers.supplies(options.wheels, folders=options.find_links)
    verdicts = {
        path: judge(
            path,
            replace(
                asked,
                provided_libraries=(*asked.provided_libraries, *supply.libraries),
                beside=supply.versions,
                unread=supply.unread,
            ),
        )
        for path, supply in beside.items()
    }
    found = {path: verdict.findings for path, verdict in verdicts.items()}
    unreadable = {FindingCode.ARCHIVE, FindingCode.METADATA}
    readable = [path for path, findings in found.items() if unreadable.isdisjoint(f.code for f in findings)]
    for path, text in completeness.differences(readable):
        finding = Finding(code=FindingCode.SPLIT_DIFFERS, reason=text, fix=_ONE_SPLIT)
        found[path] = (*found[path], finding)
    judged = allowed.judge(found, entries, today=dt.datetime.now(dt.UTC).date())
    screen = console.current()
    if options.json:
        screen.json(
            {
                str(path): {
                    "findings": [datafile.to_plain(finding) for finding in findings],
                    "notes": [datafile.to_plain(note) for note in verdicts[path].notes],
                    "not_checked": list(verdicts[path].not_checked),
                }
                for path, findings in judged.findings.items()
            }
        )
    for path, findings in () if options.json else judged.findings.items():
        _show(path, findings, judged.allowed[path], verdicts[path])
    for note in judged.notes:
        screen.warn(note)
    return WheelError.exit_code if any(judged.findings.values()) else 0


def _expectation(options: argparse.Namespace) -> Expectation:
    from cairn.targets import parse_targets
    from cairn.wheels.verify import Expectation

    pairs = [text.partition("=") for text in options.sibling]
    for name, separator, value in pairs:
        if not (name and separator and value):
            raise UsageError(f"{name!r} is not a valid sibling", tip="write --sibling triton=3.5.0")
    if options.python is not None and not _PYTHON.fullmatch(options.python):
        raise UsageError(f"{options.python!r} is not a Python version", tip="write --python 3.13, or 3.13t")
    return Expectation(
        targets=None if options.targets is None else parse_targets(options.targets, unbuilt=True),
        require_device_code=options.require_device_code,
        siblings={name: value.lstrip("=") for name, _, value in pairs},
        provided_libraries=tuple(options.provided),
        python=options.python,
        forbidden_strings=tuple(options.forbid),
    )


def _show(
    wheel: Path,
    findings: Sequence[Finding],
    known: Sequence[tuple[Finding, AllowedFinding]],
    verdict: Verdict,
) -> None:
    """Print the verdict on a wheel and every breach; of those that are allowed how many, and the reasons."""
    screen = console.current()
    count = len(findings)
    let = f", {len(known)} allowed" if known else ""
    screen.out(f"{wheel.name}: {'good' if not count else f'{count} finding' + 's' * (count > 1)}{let}")
    for entry in dict.fromkeys(entry for _, entry in known):
        screen.out(f"  [{entry.code}] {entry.member or 'the wheel as a whole'}: allowed, {entry.reason}")
    for finding in findings:
        where = f" {finding.member}:" if finding.member else ""
        screen.out(f"  [{finding.code}]{where} {finding.reason}")
        screen.out(f"      what to do: {finding.fix}")
    # Those of one reason are one line: Qt has dozens of plugins.
    notes: dict[tuple[str, str], list[str]] = {}
    for note in verdict.notes:
        notes.setdefault((note.code, note.reason), []).append(note.member or "")
    for (code, reason), members in notes.items():
        screen.out(f"  note [{code}] {wording.some(members)}: {reason}")
    for text in verdict.not_checked:
        screen.out(f"  not checked: {text}")
