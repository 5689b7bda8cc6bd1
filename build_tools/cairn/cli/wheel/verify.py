"""`cairn wheel verify`: whether wheels may be published."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece
from cairn.cli.binder import command
from cairn.errors import CairnError, PrerequisiteError, ProblemsError, UsageError, WheelError
from cairn.options import fill, flag, option, repeated
from cairn.output import console, wording

if TYPE_CHECKING:
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

        cairn wheel verify --targets gfx942,gfx1100 --sibling triton=3.5.0 --find-links sdk out/*.whl
    """

    wheels: tuple[Path | str, ...] = common.published_wheels()
    targets: str | None = common.targets("whatever it has code for")
    require_device_code: bool = flag("refuse a wheel without any device code")
    python: str | None = option("Python that must be able to install it, such as 3.11 or 3.13t")
    sibling: tuple[str, ...] = repeated("a wheel it was built against", metavar="NAME=VERSION")
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

        pairs = [text.partition("=") for text in self.sibling]
        for name, separator, value in pairs:
            if not (name and separator and value):
                raise UsageError(f"{name!r} is not a valid sibling", tip="write --sibling triton=3.5.0")
        if self.python is not None and not _PYTHON.fullmatch(self.python):
            raise UsageError(f"{self.python!r} is not a Python version", tip="write --python 3.13, or 3.13t")
        return fill(
            Expectation,
            self,
            targets=None if self.targets is None else parse_targets(self.targets, unbuilt=True),
            siblings={name: value.lstrip("=") for name, _, value in pairs},
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
    from cairn.wheels.contents import providers
    from cairn.wheels.verify import Finding, FindingCode, judge_alone, judge_together, shape
    from cairn.wheels.verify.findings import NOTES, apply_allowed, read_allowed

    expectation = request.expectation()
    entries = read_allowed(request.allow)
    verdicts: dict[Path, Verdict] = {}
    supplies = providers.supplies(tuple(texts), folders=request.find_links)
    for path, supply in supplies.items():
        expected = replace(
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


COMMANDS = {"verify": command(Verify, run)}
