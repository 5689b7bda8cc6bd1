"""`cairn wheel show`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console
from cairn.output.console import Console, size

if TYPE_CHECKING:
    from cairn.wheels.contents.binaries import Binary
    from cairn.wheels.contents.code_archives import CodeArchive
    from cairn.wheels.contents.summary import Summary


_EXTRA = re.compile(r"""(.*?)\s*;\s*extra\s*==\s*["']([^"']*)["']""")
_KINDS = {
    "host": "in wheels of its own, which the extras bring",
    "device": "all that it has, for a host wheel",
    "variant": "in archives of its own",
}


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "show",
        run,
        about="show a wheel's name, tags, requirements, sizes, targets and needed libraries",
        example="cairn wheel show out/torch-2.9.0+rocm7.10.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    )
    arguments.add_wheels(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn.wheels.contents.summary import summarise

    found = [summarise(path) for path in options.wheels]
    screen = console.current()
    if options.json:
        screen.json([summary.to_plain() for summary in found])
        return 0
    for summary in found:
        _show(screen, summary)
    return 0


def _show(screen: Console, summary: Summary) -> None:
    from cairn.targets import product_of
    from cairn.wheels.contents.dependency_tree import needed_tree

    screen.out(summary.file_name)
    rows = [
        ("name", summary.distribution),
        ("version", summary.version + (f" (build {summary.build})" if summary.build else "")),
        *([("variant", summary.variant)] if summary.variant else []),
        ("tags", ", ".join(summary.tags)),
        ("python", summary.requires_python or "any"),
        ("size", f"{size(summary.size)}, {size(summary.unpacked_size)} unpacked, {summary.members} files"),
        ("targets", ", ".join(summary.targets) or "none"),
        ("extras", ", ".join(summary.extras) or "none"),
    ]
    if summary.kind:
        rows.append(("device code", _KINDS[summary.kind]))
    rows += [("build of the code", name) for name in summary.builds]
    rows += [("requires", text) for text in _requirements(summary.requires_dist)]
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
    if summary.archives:
        screen.table(
            ("archive", "size", "device code", "targets", "code objects, and what looks for them"),
            [
                (a.path, size(a.size), size(a.code_size), ", ".join(a.targets), _held(a))
                for a in summary.archives
            ],
        )
    without = [library for library in summary.binaries if library.reference]
    if without:
        screen.table(("library", "size", "looks for its device code in"), list(map(_looks, without)))
    for line in needed_tree(summary.binaries):
        screen.out(line)


def _requirements(texts: Iterable[str]) -> list[str]:
    """Each once, with all of its extras: a host wheel asks for each device wheel by three of them."""
    found: dict[str, list[str]] = {}
    for text in texts:
        match = _EXTRA.fullmatch(text)
        found.setdefault(match[1] if match else text, []).extend([match[2]] if match else [])
    return [f"{text} ; extra {', '.join(extras)}" if extras else text for text, extras in found.items()]


def _held(archive: CodeArchive) -> str:
    """What an archive has: `12, for 40 wrappers of lib/libtorch_hip.so`."""
    many = sum(archive.libraries.values())
    names = list(archive.libraries)
    where = names[0] if len(names) == 1 else f"{len(names)} libraries"
    return f"{archive.code_objects}, for {many} wrapper{'s' * (many != 1)} of {where}"


def _looks(library: Binary) -> tuple[str, str, str]:
    paths = library.reference.kpack_search_paths if library.reference else ()
    return library.path, size(library.size), ", ".join(paths)
