"""`cairn wheel verify`: whether wheels may be published."""

from __future__ import annotations

import argparse
from dataclasses import replace

from cairn import console, jsonfile
from cairn.cli import wheel_text
from cairn.errors import UsageError, WheelError
from cairn.targets import parse_targets
from cairn.wheels import suppliers
from cairn.wheels.verify import Expectation, verify


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    asked = _expectation(options)
    beside = suppliers.supplies(options.wheels, folders=options.find_links)
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
    screen = console.current()
    if options.json:
        screen.json({str(path): [jsonfile.to_plain(f) for f in findings] for path, findings in found.items()})
    for path, findings in () if options.json else found.items():
        wheel_text.show_findings(screen, path, findings)
    return WheelError.exit_code if any(found.values()) else 0


def _expectation(options: argparse.Namespace) -> Expectation:
    pairs = [text.partition("=") for text in options.sibling]
    for name, separator, value in pairs:
        if not (name and separator and value):
            raise UsageError(f"{name!r} is no sibling", tip="write --sibling triton=3.5.0")
    return Expectation(
        targets=parse_targets(options.targets, met=True) if options.targets else None,
        require_device_code=options.require_device_code,
        siblings={name: value.lstrip("=") for name, _, value in pairs},
        provided_libraries=tuple(options.provided),
        python=options.python,
        forbidden_strings=tuple(options.forbid),
    )
