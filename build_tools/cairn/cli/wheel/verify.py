"""`cairn wheel verify`: whether wheels may be published."""

from __future__ import annotations

import argparse
import datetime as dt
import re
from dataclasses import replace

from cairn import datafile
from cairn.cli.wheel import text as wheel_text
from cairn.errors import UsageError, WheelError
from cairn.output import console
from cairn.targets import parse_targets
from cairn.wheels.contents import providers
from cairn.wheels.verify import Expectation, allowed, verify

_PYTHON = re.compile(r"3\.[0-9]{1,3}t?")


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    asked = _expectation(options)
    entries = [entry for path in options.allow for entry in allowed.read(path)]
    beside = providers.supplies(options.wheels, folders=options.find_links)
    found = {
        path: verify(
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
    judged = allowed.judge(found, entries, today=dt.datetime.now(dt.UTC).date())
    screen = console.current()
    if options.json:
        plain = {path: [datafile.to_plain(f) for f in findings] for path, findings in judged.findings.items()}
        screen.json({str(path): findings for path, findings in plain.items()})
    for path, findings in () if options.json else judged.findings.items():
        wheel_text.show_findings(screen, path, findings, judged.allowed[path])
    for note in judged.notes:
        screen.warn(note)
    return WheelError.exit_code if any(judged.findings.values()) else 0


def _expectation(options: argparse.Namespace) -> Expectation:
    pairs = [text.partition("=") for text in options.sibling]
    for name, separator, value in pairs:
        if not (name and separator and value):
            raise UsageError(f"{name!r} is no sibling", tip="write --sibling triton=3.5.0")
    if options.python is not None and not _PYTHON.fullmatch(options.python):
        raise UsageError(f"{options.python!r} is no version of Python", tip="write --python 3.13, or 3.13t")
    return Expectation(
        targets=None if options.targets is None else parse_targets(options.targets, unbuilt=True),
        require_device_code=options.require_device_code,
        siblings={name: value.lstrip("=") for name, _, value in pairs},
        provided_libraries=tuple(options.provided),
        python=options.python,
        forbidden_strings=tuple(options.forbid),
    )
