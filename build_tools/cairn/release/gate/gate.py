"""What promotion demands of a set. The default is no: what is missing, skipped or cancelled does not hold.

All six demands are asked, whatever the first say, and each of their parts: a user is told of everything at
once. What cannot be judged does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cairn.errors import CairnError
from cairn.release.gate import completeness, evidence, findings, installation
from cairn.release.gate.case import Case, Files, opened, ref
from cairn.release.gate.evidence import Asked, Evidence
from cairn.release.gate.installation import Installation
from cairn.release.gate.judgement import Demand, GateReport
from cairn.release.index import keys
from cairn.release.index.generation import project_of
from cairn.release.index.snapshot import refs_of
from cairn.release.publish import distribution, rules
from cairn.release.publish.compatibility import Platform
from cairn.store.protocol import MissingKeyError

_Judge = Callable[[Case, Files], Iterable[str]]

VERIFIED = "every file passes verify"
TESTED = "tested on hardware of each target"
INSTALLS = "uv resolves it, pip and uv install it, from the index as it will be"
SORTS = "versions sort above what is there"
ONE_BUILD = "no version is of another build"
COMPLETE = "the set is complete"


def check(case: Case) -> GateReport:
    """Judge a set; nothing is changed."""
    with opened(case) as files:
        found = weigh(case)
        installed = _guarded(installation.judge, case, files)
        return GateReport(
            set_id=case.wheel_set.id,
            target=case.target.index.name,
            judged=f"{case.moment:%Y-%m-%dT%H:%M:%S.%fZ}",
            demands=tuple(_demands(case, files, found, installed)),
            untested=found.untested,
            answered=found.answered,
            records=tuple(kept.digest for kept in case.kept.records),
            answers=tuple(digest for digest, _ in case.kept.answers),
            size=sum(file.size for file in case.wheel_set.files),
            metadata_size=installed.metadata_size,
            installed_with=installed.installed_with,
        )


def weigh(case: Case) -> Evidence:
    """What the test records of the set come to."""
    try:
        asked = Asked(
            wheel_set=case.wheel_set,
            records=case.stack.gate.records,
            installed=_always_installed(case),
            since=datetime.fromisoformat(case.source.set(case.wheel_set.id).added),
            moment=case.moment,
        )
        return evidence.weigh(asked, case.kept)
    except CairnError as error:
        return Evidence(standing=(str(error),), untested=case.wheel_set.targets)


def _demands(case: Case, files: Files, found: Evidence, installed: Installation) -> Iterator[Demand]:
    yield _demand(1, VERIFIED, _all(case, files, (findings.problems, findings.unreviewed)), "no finding")
    yield _tested(case, found)
    yield _demand(3, INSTALLS, installed.problems, installed.note)
    yield _demand(4, SORTS, _all(case, files, (_sorting_below,)), "they do")
    yield _demand(5, ONE_BUILD, _all(case, files, (_other_builds,)), "none is")
    whole = (
        completeness.of_stack,
        completeness.of_split,
        completeness.of_manifest,
        completeness.of_store,
    )
    yield _demand(
        6, COMPLETE, _all(case, files, whole), "every project is there, and every file with its sha256"
    )


def _demand(number: int, name: str, problems: Sequence[str], good: str) -> Demand:
    # Two demands may meet the same problem; one demand names it once.
    reason = "; ".join(dict.fromkeys(problems)) or good
    return Demand(number=number, name=name, outcome="not met" if problems else "met", reason=reason)


def _tested(case: Case, found: Evidence) -> Demand:
    # A bypass stands for tests that could not run, and the pages then say untested. Where tests of these very
    # bytes failed, no bypass helps.
    problems = (*found.standing, *found.missing)
    bypass = case.bypass if problems and not found.standing else None
    return Demand(
        number=2,
        name=TESTED,
        outcome="bypassed" if bypass else "not met" if problems else "met",
        reason="; ".join((*problems, *found.answered) if problems else (*found.passed, *found.answered)),
        bypass=bypass,
    )


def _all(case: Case, files: Files, judges: Sequence[_Judge]) -> tuple[str, ...]:
    """All that any of the judges has to say; one that cannot judge says why, and does not hold up others."""
    problems: list[str] = []
    for judge in judges:
        try:
            problems.extend(judge(case, files))
        except (CairnError, OSError) as error:
            problems.append(str(error))
    return tuple(problems)


def _guarded(judge: Callable[[Case, Files], Installation], case: Case, files: Files) -> Installation:
    try:
        return judge(case, files)
    except (CairnError, OSError) as error:
        return Installation(problems=(str(error),))


def _sorting_below(case: Case, files: Files) -> Iterable[str]:  # noqa: ARG001 - as every demand is asked
    return rules.sorting_below(case.target, [ref(w.file_name, w.sha256) for w in case.wheel_set.wheels])


def _other_builds(case: Case, files: Files) -> Iterable[str]:  # noqa: ARG001 - likewise
    return rules.file_problems(case.target, [case.source.entry(ref) for ref in refs_of(case.wheel_set)])


def _always_installed(case: Case) -> dict[str, frozenset[str]]:
    """The projects that come with the set however it is installed, each with its files in the set."""
    by_project: dict[str, set[str]] = {}
    for name in case.wheel_set.sha256s:
        by_project.setdefault(project_of(name), set()).add(name)
    markers = Platform(python=case.wheel_set.python, tag=case.wheel_set.platform).markers()
    waiting = [(wheel.distribution, frozenset[str]()) for wheel in case.wheel_set.wheels]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        project, extras = asked = waiting.pop()
        if asked in seen or project not in by_project:
            continue
        seen.add(asked)
        waiting += [
            (str(canonicalize_name(wanted.name)), frozenset(wanted.extras))
            for wanted in _needs(case, min(by_project[project]))
            if any(_applies(wanted, markers | {"extra": extra}) for extra in ("", *extras))
        ]
    return {project: frozenset(by_project[project]) for project, _ in seen}


def _applies(wanted: Requirement, values: dict[str, str]) -> bool:
    try:
        return wanted.marker is None or wanted.marker.evaluate(values)
    except ValueError:  # it compares what cannot be compared; installers then differ
        return False


def _needs(case: Case, name: str) -> tuple[Requirement, ...]:
    """What a file of the set requires, as far as that can be relied on."""
    try:
        data = case.store.read(keys.sidecar_key(case.wheel_set.sha256s[name], name)).data
    except MissingKeyError:
        return ()  # the set is not complete then, which is a demand of its own
    needs = distribution.needs_of(data, filename=name)
    return needs.requires if needs.reliable else ()
