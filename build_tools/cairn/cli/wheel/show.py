"""`cairn wheel show`: the contents of a wheel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.errors import CairnError, ProblemsError
from cairn.output import wording
from cairn.output.console import size

if TYPE_CHECKING:
    from cairn.wheels.contents.binaries import Binary
    from cairn.wheels.contents.code_archives import CodeArchive
    from cairn.wheels.contents.summary import Summary


_EXTRA = re.compile(r"""(.*?)\s*;\s*extra\s*==\s*["']([^"']*)["']""")
_KINDS = {
    "host": "in wheels of its own, which the extras bring",
    "device": "nothing else, for a host wheel; verify tells if it is whole",
    "variant": "in archives of its own",
}


@dataclass(frozen=True, kw_only=True)
class Show:
    """Options of `cairn wheel show`.

    A wheel at a URL or in an index is read where it lies, by parts: what is said of it does not need its
    libraries. INDEX is a folder, or the URL of a simple index, as in
    https://stable.repo.amd.com/rocm/whl-next/#torch==2.14.0.

        cairn wheel show out/torch-2.9.0+rocm7.10.0-cp311-cp311-manylinux_2_28_x86_64.whl
    """

    wheels: tuple[Path | str, ...] = common.published_wheels()
    binaries: bool = common.binaries()


def _show(request: Show) -> Answer:
    from cairn.wheels import published
    from cairn.wheels.contents.summary import summarise_archive

    plain: list[object] = []
    summaries, errors = [], []
    for wheel in request.wheels:
        try:
            with published.reading(signing.signed_wheel(wheel), whole=request.binaries) as archive:
                summaries.append(summarise_archive(archive))
        except CairnError as error:  # the other wheels are shown all the same
            errors.append(error)
            plain.append({"wheel": str(wheel), "not_read": str(error)})
        else:
            plain.append(summaries[-1].to_plain())
    text = itertools.chain.from_iterable(map(_text, summaries))
    return Answer(plain, text, error=_together(errors, len(plain)))


def _together(errors: Sequence[CairnError], count: int) -> CairnError | None:
    if count == 1 or not errors:
        return next(iter(errors), None)
    return ProblemsError(f"{len(errors)} of {count} wheels cannot be read", problems=errors)


def _text(summary: Summary) -> Iterator[Piece]:
    from cairn.targets import product_of
    from cairn.wheels.contents.summary import needed_tree

    yield summary.file_name
    rows = [
        ("name", summary.distribution),
        ("version", summary.version + (f" (build {summary.build})" if summary.build else "")),
        *([("git_version", summary.git_version)] if summary.git_version else []),
        *([("variant", summary.variant)] if summary.variant else []),
        ("tags", ", ".join(summary.tags)),
        ("python", summary.requires_python or "any"),
        ("size", f"{size(summary.size)}, {size(summary.unpacked_size)} unpacked, {summary.members} files"),
        ("targets", ", ".join(summary.targets) or "none")
        if summary.unread is None
        else ("targets", f"by file names: {', '.join(summary.named_targets) or 'none'}"),
        ("extras", ", ".join(summary.extras) or "none"),
    ]
    if summary.kind:
        rows.append(("device code", _KINDS[summary.kind]))
    rows += [("build of the code", name) for name in summary.builds]
    rows += [("requires", text) for text in _requirements(summary.requires_dist)]
    rows += [("runs at each start of Python", text) for text in summary.start_up]
    rows += [("link", f"{text} (verify refuses it)") for text in summary.links]
    if summary.unread is not None:
        rows.append(("libraries", f"not read (--binaries would fetch {size(summary.size)})"))
    if summary.unread is not None or summary.record_problems:
        rows.append(("RECORD", _agreement(summary)))
    yield Table(("", ""), rows)
    if summary.targets:
        yield Table(("target", "GPUs"), [(name, product_of(name)) for name in summary.targets])
    with_code = [library for library in summary.binaries if library.targets]
    if with_code:
        yield Table(
            ("library", "size", "device code", "targets"),
            [(b.path, size(b.size), size(b.device_code_size), ", ".join(b.targets)) for b in with_code],
        )
    if summary.archives:
        yield Table(
            ("archive", "size", "device code", "targets", "code objects, and what looks for them"),
            [
                (a.path, size(a.size), size(a.code_size), ", ".join(a.targets), _contents(a))
                for a in summary.archives
            ],
        )
    without_code = [library for library in summary.binaries if library.reference]
    if without_code:
        yield Table(("library", "size", "looks for its device code in"), list(map(_looks, without_code)))
    yield from needed_tree(summary.binaries)


def _agreement(summary: Summary) -> str:
    if summary.record_problems:
        return wording.some(summary.record_problems)
    sized = sum(row.size is not None for row in summary.record)
    return f"has the members of the archive, and the sizes of {sized}; hashes not checked"


def _requirements(texts: Iterable[str]) -> list[str]:
    """Merge requirements that differ only in extras: a host wheel has three for each device wheel."""
    extras: dict[str, list[str]] = {}
    for text in texts:
        match = _EXTRA.fullmatch(text)
        extras.setdefault(match[1] if match else text, []).extend([match[2]] if match else [])
    return [f"{text} ; extra {', '.join(names)}" if names else text for text, names in extras.items()]


def _contents(archive: CodeArchive) -> str:
    """Describe the code objects of an archive: `12, for 40 wrappers of lib/libtorch_hip.so`."""
    many = sum(archive.libraries.values())
    names = list(archive.libraries)
    where = names[0] if len(names) == 1 else f"{len(names)} libraries"
    return f"{archive.code_objects}, for {many} wrapper{'s' * (many != 1)} of {where}"


def _looks(library: Binary) -> tuple[str, str, str]:
    paths = library.reference.kpack_search_paths if library.reference else ()
    return library.path, size(library.size), ", ".join(paths)


COMMANDS = {"show": command(Show, _show)}
