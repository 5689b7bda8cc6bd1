"""The gate's demands on a set, such as that no untested one replaces a tested one. The default is no.

Every demand and each of its parts is checked, even if earlier ones do not hold, so that a user sees all
problems at once. What is missing, skipped or cancelled, or cannot be judged, does not hold. Only a set that
nobody has tested is refused before its files are read and installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cairn
from cairn.errors import CairnError
from cairn.output.wording import short_id
from cairn.release import rebuilds, recipes, weighing
from cairn.release.gate import files_of_set, installation
from cairn.release.gate.case import Case, Files, opened, ref
from cairn.release.gate.installation import Installation
from cairn.release.gate.judgement import Demand, GateReport, Outcome, Policy
from cairn.release.index import keys
from cairn.release.index.generation import project_of
from cairn.release.index.listing import index_set
from cairn.release.index.snapshot import MANIFEST_FILE, refs_of
from cairn.release.ledger import Ledger
from cairn.release.provenance.evidence import builder_problems, builder_signers
from cairn.release.provenance.judged import TESTED
from cairn.release.publish import distribution, rules
from cairn.release.publish.compatibility import Platform
from cairn.release.weighing import Evidence, RecordRequirements
from cairn.stack import RecordKind, Stack, recipe
from cairn.store.protocol import MissingKeyError
from cairn.targets import in_order
from cairn.testing.record import TestPolicy
from cairn.wheels import build_statement

BUILT = "the builder says so, of the frozen recipe and the commits of the manifest"
VERIFIED = "every file passes verify"
INSTALLS = "uv resolves it, pip and uv install it, from the index as it will be"
SORTS = "versions sort above what is there"
ONE_BUILD = "no version is of another build"
COMPLETE = "the set is complete"
REBUILT = "others built it again, and got the same wheels"
DEMANDS = (BUILT, VERIFIED, TESTED, INSTALLS, SORTS, ONE_BUILD, COMPLETE, REBUILT)
"""All demands, each at its number; the last one is asked where the stack names rebuilders."""


def check(case: Case) -> GateReport:
    """Judge a set; nothing is changed."""
    with opened(case) as files:
        weighed = weigh(case)
        try:
            installed = installation.judge(case, files)
        except (CairnError, OSError) as error:
            installed = Installation(problems=(str(error),))
        replaced = _replaced(case, weighed)
        tested = _tested(case, weighed, replaced)
        report = _report(case, weighed, replaced, tuple(_demands(case, files, tested, installed)))
    return structs.replace(
        report, metadata_size=installed.metadata_size, installed_with=installed.installed_with
    )


def refusal_without_record(case: Case) -> GateReport | None:
    """The refusal of a set without any test record, without reading its files; otherwise None.

    Verifying and installing gigabytes would only delay it. The report has only the demands that were checked.
    """
    weighed = weigh(case)
    if case.set_records.records or case.set_records.unusable:
        return None
    replaced = _replaced(case, weighed)
    demands = [_tested(case, weighed, replaced), *_by_version(case)]
    if problems := _problems(files_of_set.not_of_stack(case), files_of_set.not_of_manifest(case)):
        demands.append(_demand(COMPLETE, problems, ""))
    return _report(case, weighed, replaced, tuple(demands))


def _report(
    case: Case, weighed: Evidence, replaced: Mapping[str, str], demands: tuple[Demand, ...]
) -> GateReport:
    return GateReport(
        set_id=case.wheel_set.id,
        target=case.target.index.name,
        judged=f"{case.moment:%Y-%m-%dT%H:%M:%S.%fZ}",
        demands=demands,
        untested=weighed.untested,
        replaced=in_order(replaced),
        answered=weighed.answered,
        records=tuple(entry.digest for entry in case.set_records.records),
        answers=tuple(digest for digest, _ in case.set_records.answers),
        size=sum(file.size for file in case.wheel_set.files),
        policy=_policy(case),
        weakened=tuple(weakened(case)),
    )


def weigh(case: Case) -> Evidence:
    """Weigh the test records of the set."""
    try:
        requirements = RecordRequirements(
            wheel_set=case.wheel_set,
            records=case.stack.gate.records,
            installed=_always_installed(case),
            imports=tuple(
                wheel.distribution for wheel in case.wheel_set.wheels if case.processor_of(wheel) is None
            ),
            own_tests=bool(case.stack.smoke_tests),
            since=datetime.fromisoformat(case.staged) if case.staged else None,
            moment=case.moment,
        )
        return weighing.weigh(requirements, case.set_records)
    except (CairnError, ValueError) as error:  # a time that is none
        return Evidence(
            open_failures=(str(error),), untested=case.wheel_set.targets, host_missing=(str(error),)
        )


def _policy(case: Case) -> Policy:
    stack, lock = case.stack, msgspec.json.encode(case.mirror_lock, order="sorted")
    return Policy(
        cairn=cairn.__version__,
        stack=stack.name,
        stack_sha256=recipe.digest_of(stack),
        line=stack.line,
        floors=stack.gate.records,
        lock_sha256=hashlib.sha256(lock).hexdigest() if case.mirror_lock is not None else None,
    )


def weakened(case: Case) -> Iterator[str]:
    """Where the policy asks for less than a test or the last set did, or differs from that of the records."""
    if not case.stack.gate.records:
        yield f"the stack {case.stack.name} demands no test record"
    for kind, floor in case.stack.gate.records.items():
        if not floor.tests:
            yield f"the floor of {kind} tests is 0"
        if not floor.device_tests and not case.wheel_set.for_cpu:
            yield f"the floor of {kind} tests that pass on a GPU is 0"
    made, last = case.wheel_set, files_of_set.last_set(case)
    if last is not None:
        last_one = f"which the last set of {case.target.index.name} has ({short_id(last.set_id)})"
        if missing := last.projects.keys() - {wheel.distribution for wheel in made.wheels}:
            yield f"no {', '.join(sorted(missing))} is demanded, {last_one}"
        if lacking := in_order(set(last.targets) - set(made.targets)):
            yield f"it is not for {', '.join(lacking)}, {last_one}"
    yield from _tested_otherwise(case)


def _tested_otherwise(case: Case) -> Iterator[str]:
    """The records that were made by an unknown policy, or by one that differs from the stack's now."""
    last = {
        (item.record.kind, item.record.config, item.record.hardware): item
        for item in sorted(case.set_records.records, key=lambda item: item.record.began)
        if item.record.verdict in ("passed", "untested")
    }
    digest = recipe.digest_of(case.stack)
    for item in last.values():
        ran, name = item.record.policy, f"{item.record.kind} record {short_id(item.digest)}"
        if ran is None:
            yield f"{name} was made by an unknown policy: an older Cairn wrote it"
            continue
        if ran.stack_sha256 is None:
            yield f"{name} was made without a stack"
        elif ran.stack_sha256 != digest:
            yield f"{name} was made by another {case.stack.name} than the stack is now"
        if problem := _ran_otherwise(case.stack, item.record.kind, ran):
            yield f"{name} {problem}"


def _ran_otherwise(stack: Stack, kind: RecordKind, ran: TestPolicy) -> str | None:
    """How a test differs from the stack's, if its files are here; a suite's lie with its project."""
    if kind == "smoke":
        tests = [Path(place) for place in stack.smoke_tests]
        if all(place.exists() for place in tests) and ran.tests_sha256 != recipe.digest_of_files(tests):
            return "ran other test files than the stack has now"
    if kind == "suite" and stack.folder:
        skips = Path(stack.folder) / recipe.SKIPS
        if ran.skips_sha256 != recipe.skips_digest([skips] if skips.is_dir() else []):
            return "ran with another skip list than the stack has now"
    return None


def _demands(case: Case, files: Files, tested: Demand, installed: Installation) -> Iterator[Demand]:
    yield _demand(BUILT, _problems(_not_as_built(case, files)), "every wheel is as it was built")
    verified = _problems(
        files_of_set.findings(case, files), files_of_set.unreviewed(case), files_of_set.unmet(case)
    )
    yield _demand(VERIFIED, verified, f"no finding in {files_of_set.counted(files)}")
    yield tested
    yield _demand(INSTALLS, installed.problems, installed.note)
    yield from _by_version(case)
    whole = _problems(
        files_of_set.not_of_stack(case),
        files_of_set.not_of_split(case, files),
        files_of_set.not_of_manifest(case),
        files_of_set.not_of_store(case, files),
    )
    yield _demand(COMPLETE, whole, "every project is there, and every file with its sha256")
    if case.stack.gate.rebuilds:
        yield _rebuilt(case)


def _rebuilt(case: Case) -> Demand:
    gate, wheel_set = case.stack.gate, case.wheel_set
    same = rebuilds.agreeing(case.store, wheel_set, gate.rebuilders)
    # One key under two names is one rebuilder.
    number = len({gate.rebuilders[name] for name in same})
    others = tuple(rebuilds.disagreeing(case.store, wheel_set, gate.rebuilders))
    by = "; ".join((f"rebuilt identically by {', '.join(same) or 'nobody'}", *others))
    rebuilders = ", ".join(sorted(gate.rebuilders))
    short = f"{number} of the {gate.rebuilds} that are asked for, among {rebuilders}: {by}"
    return _demand(REBUILT, (short,) if number < gate.rebuilds else (), by)


def _by_version(case: Case) -> Iterator[Demand]:
    yield _demand(SORTS, _problems(_sorting_below(case)), "they do")
    yield _demand(ONE_BUILD, _problems(_other_builds(case)), "none is")


def _demand(name: str, problems: Sequence[str], good: str) -> Demand:
    # Two demands may meet the same problem; one demand names it once.
    reason = "; ".join(dict.fromkeys(problems)) or good
    outcome: Outcome = "not met" if problems else "met"
    return Demand(number=DEMANDS.index(name), name=name, outcome=outcome, reason=reason)


def _tested(case: Case, weighed: Evidence, replaced: Mapping[str, str]) -> Demand:
    # A bypass stands for hardware that nobody has, and the pages then say untested. Where tests of these very
    # bytes failed, or ran on the hardware and do not count, where those that need none did not run, or where
    # users have what was tested, none helps.
    problems = (*weighed.open_failures, *weighed.host_missing, *weighed.missing)
    alike = Ledger(case.store).failing_alike(case.wheel_set)
    against = (
        *weighed.open_failures,
        *weighed.host_missing,
        *(weighed.missing if case.wheel_set.for_cpu else ()),
        *weighed.on_hardware,
        *dict.fromkeys(replaced.values()),
        *alike,
    )
    bypass = case.bypass if problems and not against else None
    problems = tuple(dict.fromkeys((*problems, *against))) if problems else ()
    reasons = [*(problems or weighed.passed), *weighed.answered, *([weighed.host] if weighed.host else [])]
    return Demand(
        number=DEMANDS.index(TESTED),
        name=TESTED,
        outcome="bypassed" if bypass else "not met" if problems else "met",
        reason="; ".join(reasons),
        bypass=bypass,
    )


def _replaced(case: Case, weighed: Evidence) -> dict[str, str]:
    """The untested targets of this set that a set in the index was tested on, each with a sentence."""
    index = case.target.index.name
    channel, _, family = index.partition("/")
    if not weighed.untested or channel == keys.UNTESTED:
        return {}
    replacement = structs.replace(index_set(case.wheel_set), untested_targets=weighed.untested)
    elsewhere = "/".join(filter(None, (keys.UNTESTED, family)))
    return {
        target: f"{index} has the set {short_id(entry.set_id)}, tested on {target}, which an untested one "
        f"does not replace: cairn release promote {short_id(replacement.set_id)} --to {elsewhere} "
        f"--bypass WHO --reason WHY"
        for entry in case.target.sets()
        if entry.yanked is None
        for target in replacement.tested_targets_replaced_in(entry)
    }


def _problems(*checks: Iterator[str]) -> tuple[str, ...]:
    """All problems that the checks yield; a check that fails yields the reason, and the others go on."""
    problems: list[str] = []
    for check in checks:
        try:
            problems.extend(check)
        except (CairnError, OSError) as error:
            problems.append(str(error))
    return tuple(problems)


# Each of these is a generator, so that it fails, if it does, where `_problems` asks it.


def _not_as_built(case: Case, files: Files) -> Iterator[str]:
    set_files = [files.paths[w.file_name] for w in case.wheel_set.wheels if w.file_name in files.paths]
    yield from builder_problems(case.store, case.wheel_set, set_files)
    manifest = case.store.read(keys.set_key(case.wheel_set.id, MANIFEST_FILE)).data
    frozen = build_statement.recipe_in(manifest, sha256=case.wheel_set.manifest_sha256)
    yield from recipes.problems(case.store, frozen, case.stack)
    if case.trust is not None and case.trust.builders is not None:
        builder_signers(case.store, case.wheel_set, case.trust)


def _sorting_below(case: Case) -> Iterator[str]:
    # What is offered with this very set already, which is judged again, is no new version.
    new = [
        ref(wheel.file_name, wheel.sha256)
        for wheel in case.wheel_set.wheels
        if not (file_entry := case.target.project(wheel.distribution).file(wheel.file_name))
        or case.wheel_set.id not in file_entry.sets
    ]
    yield from rules.sorting_below(case.target, new)


def _other_builds(case: Case) -> Iterator[str]:
    yield from rules.file_problems(case.target, [case.source.entry(ref) for ref in refs_of(case.wheel_set)])


def _always_installed(case: Case) -> dict[str, frozenset[str]]:
    """The projects that are installed with the set in any case, each with its files in the set."""
    by_project: dict[str, set[str]] = {}
    for name in case.wheel_set.sha256s:
        by_project.setdefault(project_of(name), set()).add(name)
    markers = Platform(python=case.wheel_set.python, tag=case.wheel_set.platform).markers()
    waiting = [(wheel.distribution, frozenset[str]()) for wheel in case.wheel_set.wheels]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        project, extras = pair = waiting.pop()
        if pair in seen or project not in by_project:
            continue
        seen.add(pair)
        waiting += [
            (str(canonicalize_name(requirement.name)), frozenset(requirement.extras))
            for requirement in _needs(case, min(by_project[project]))
            if any(_applies(requirement, markers | {"extra": extra}) for extra in ("", *extras))
        ]
    return {project: frozenset(by_project[project]) for project, _ in seen}


def _applies(requirement: Requirement, values: dict[str, str]) -> bool:
    try:
        return requirement.marker is None or requirement.marker.evaluate(values)
    except ValueError:  # it compares what cannot be compared; installers then differ
        return False


def _needs(case: Case, name: str) -> tuple[Requirement, ...]:
    """The requirements of a file of the set, as far as its metadata is reliable."""
    try:
        data = case.store.read(keys.sidecar_key(case.wheel_set.sha256s[name], name)).data
    except MissingKeyError:
        return ()  # the set is not complete then, which is a demand of its own
    needs = distribution.needs_of(data, filename=name)
    return needs.requires if needs.reliable else ()
