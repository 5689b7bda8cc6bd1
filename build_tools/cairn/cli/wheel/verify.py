"""`cairn wheel show` and `verify`: what is in a wheel, and whether it may be published."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.errors import CairnError, PrerequisiteError, ProblemsError, UsageError, WheelError
from cairn.options import fill, option, repeated
from cairn.output import console, wording
from cairn.output.console import size

if TYPE_CHECKING:
    from cairn.wheels.contents.binaries import Binary
    from cairn.wheels.contents.code_archives import CodeArchive
    from cairn.wheels.contents.summary import Summary
    from cairn.wheels.verify import Expectation
    from cairn.wheels.verify.findings import AllowedFinding, Finding, Verdict


_ONE_SPLIT = "take host and device wheels from one split"
_PYTHON = re.compile(r"3\.[0-9]{1,3}t?")


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Options of `cairn wheel verify`.

    Wheels that are named together bring the libraries of those that require them. A device wheel that is
    named with its host wheel must have what was split from that. Wheels of one version must be alike: what
    they require, and the files that they have for each Python of a platform. A wheel at a URL or in an index
    is fetched, and compared with the sha256 that either names.

        cairn wheel verify --targets gfx942,gfx1100 --find-links sdk out/*.whl
    """

    wheels: tuple[Path | str, ...] = common.published_wheels()
    targets: str | None = common.targets("whatever it has code for")
    python: str | None = option("Python that must be able to install it, such as 3.11 or 3.13t")
    provided: tuple[str, ...] = common.provided()
    find_links: tuple[Path, ...] = repeated(
        "a folder of wheels that its requirements lead to, such as the ROCm SDK's", convert=converters.folder
    )
    forbid: tuple[str, ...] = repeated("a text that no file may contain", metavar="TEXT")
    allow: tuple[Path, ...] = repeated(
        "findings that are known, in TOML: by wheel, code and member, each with a reason",
        convert=converters.file,
    )

    def expectation(self) -> Expectation:
        """Return the requirements that the wheels must meet."""
        from cairn.targets import parse_targets
        from cairn.wheels.verify import Expectation

        if self.python is not None and not _PYTHON.fullmatch(self.python):
            raise UsageError(f"{self.python!r} is not a Python version", tip="write --python 3.13, or 3.13t")
        return fill(
            Expectation,
            self,
            targets=None if self.targets is None else parse_targets(self.targets, unbuilt=True),
            provided_libraries=self.provided,
            forbidden_strings=self.forbid,
        )


def run(request: Verify) -> Answer:
    """Run the command."""
    texts: dict[Path, str] = {}
    unjudged: dict[str, CairnError] = {}
    with contextlib.ExitStack() as stack:
        for wheel in request.wheels:
            if isinstance(wheel, Path):
                texts[wheel] = str(wheel)
                continue
            from cairn.wheels import published  # which loads what asks servers

            try:
                texts[stack.enter_context(published.whole_file(signing.signed_wheel(wheel)))] = str(wheel)
            except CairnError as error:  # the other wheels are judged all the same
                if len(request.wheels) == 1:
                    raise
                unjudged[str(wheel)] = error
        return _verify(request, texts, unjudged)


def _verify(request: Verify, texts: Mapping[Path, str], unjudged: dict[str, CairnError]) -> Answer:
    """Judge files; an answer names each as the user did, with those of `unjudged`."""
    from msgspec import structs

    from cairn.wheels.contents import providers
    from cairn.wheels.verify import Finding, FindingCode, judge_alone, judge_together, shape
    from cairn.wheels.verify.findings import NOTES, apply_allowed, read_allowed

    expectation = request.expectation()
    entries = read_allowed(request.allow)
    verdicts: dict[Path, Verdict] = {}
    supplies = providers.supplies(tuple(texts), folders=request.find_links)
    for path, supply in supplies.items():
        expected = structs.replace(
            expectation,
            provided_libraries=(*request.provided, *supply.libraries),
            beside=supply.versions,
            extras=supply.extras,
            in_wheels=supply.in_wheels,
        )
        try:
            verdicts[path] = judge_alone(path, expected)
        except PrerequisiteError as error:  # for Windows, without the extra for it
            unjudged[texts[path]] = error
    verdicts = judge_together(verdicts, {path: supply.wheels for path, supply in supplies.items()})
    findings = {path: verdict.findings for path, verdict in verdicts.items()}
    unreadable = {FindingCode.ARCHIVE, FindingCode.METADATA}
    readable = [
        path for path, breaches in findings.items() if unreadable.isdisjoint(b.code for b in breaches)
    ]
    if any(verdict.split for verdict in verdicts.values()):
        from cairn.wheels.split import completeness

        for path, text in completeness.differences(readable):
            finding = Finding(code=FindingCode.SPLIT_DIFFERS, reason=text, fix=_ONE_SPLIT)
            findings[path] = (*findings[path], finding)
    for path, finding in (*shape.differences(readable), *shape.overwritten(readable)):
        if finding.code in NOTES:
            verdicts[path] = replace(verdicts[path], notes=(*verdicts[path].notes, finding))
        else:
            findings[path] = (*findings[path], finding)
    judged = apply_allowed(findings, entries, today=dt.datetime.now(dt.UTC).date())
    verdicts = {path: replace(verdicts[path], findings=left) for path, left in judged.findings.items()}
    lines = [_text(path, verdict, judged.allowed[path]) for path, verdict in verdicts.items()]
    names, errors = {text: text.rpartition("/")[2] for text in unjudged}, tuple(unjudged.values())
    lines += [iter([f"{names[text]}: not judged: {error}"]) for text, error in unjudged.items()]
    for note in judged.notes:
        console.current().warn(note)
    return Answer(
        {
            texts[path]: {"findings": v.findings, "notes": v.notes, "not_checked": v.not_checked}
            for path, v in verdicts.items()
        }
        | {text: {"not_judged": str(error)} for text, error in unjudged.items()},
        tuple(itertools.chain.from_iterable(lines)),
        error=ProblemsError(f"no verdict on {wording.some(list(names.values()))}", problems=errors)
        if errors
        else None,
        exit_code=WheelError.exit_code if any(judged.findings.values()) else 0,
    )


def _text(
    wheel: Path, verdict: Verdict, allowed: Sequence[tuple[Finding, AllowedFinding]]
) -> Iterator[Piece]:
    """Format the verdict on a wheel: every breach, and the number of allowed ones with the reasons."""
    count = len(verdict.findings)
    let = f", {len(allowed)} allowed" if allowed else ""
    yield f"{wheel.name}: {'good' if not count else f'{count} finding' + 's' * (count > 1)}{let}"
    for entry in dict.fromkeys(entry for _, entry in allowed):
        yield f"  [{entry.code}] {entry.member or 'the wheel as a whole'}: allowed, {entry.reason}"
    for finding in verdict.findings:
        where = f" {finding.member}:" if finding.member else ""
        yield f"  [{finding.code}]{where} {finding.reason}"
        yield f"      what to do: {finding.fix}"
    # Those of one reason are one line: Qt has dozens of plugins.
    notes: dict[tuple[str, str], list[str]] = {}
    for note in verdict.notes:
        notes.setdefault((note.code, note.reason), []).append(note.member or "")
    for (code, reason), members in notes.items():
        yield f"  note [{code}] {wording.some(members)}: {reason}"
    for text in verdict.not_checked:
        yield f"  not checked: {text}"


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
    text = itertools.chain.from_iterable(map(_description, summaries))
    return Answer(plain, text, error=_together(errors, len(plain)))


def _together(errors: Sequence[CairnError], count: int) -> CairnError | None:
    if count == 1 or not errors:
        return next(iter(errors), None)
    return ProblemsError(f"{len(errors)} of {count} wheels cannot be read", problems=errors)


def _description(summary: Summary) -> Iterator[Piece]:
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


COMMANDS = {"show": command(Show, _show), "verify": command(Verify, run)}
