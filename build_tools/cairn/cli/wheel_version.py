"""`cairn wheel set-version`."""

from __future__ import annotations

import argparse

from packaging.utils import canonicalize_name

from cairn import console
from cairn.wheels import metadata, version
from cairn.wheels.edit import Edit, apply_as


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    for wheel in options.wheels:
        made = apply_as(wheel, lambda info: _edit(info, options), options.output_dir)
        console.current().out(str(made))
    return 0


def _edit(info: metadata.WheelInfo, options: argparse.Namespace) -> Edit:
    required = set(map(_project, info.requires_dist))
    wanted = {_project(text): text for text in options.require}
    return Edit(
        version=_new_version(info.version, options),
        build=options.build_number,
        replace_requirements={name: text for name, text in wanted.items() if name in required},
        add_requirements=tuple(text for name, text in wanted.items() if name not in required),
    )


def _project(text: str) -> str:
    return canonicalize_name(metadata.requirement(text).name)


def _new_version(old: str, options: argparse.Namespace) -> str:
    if options.promote is not None:
        return version.promote(old, options.promote)
    if options.rocm_version is not None:
        public = metadata.parsed_version(old).public
        return version.with_suffix(public, version.suffix(options.rocm_version))
    return str(metadata.parsed_version(options.version))
