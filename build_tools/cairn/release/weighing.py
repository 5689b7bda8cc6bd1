"""Whether a set was tested: by records of exactly its bytes, or bypassed by a named user.

What needs no hardware must have run and passed, in one record that counts it: every package imported, the
smoke tests, and those of the stack. No bypass stands in for that: it covers hardware that nobody has.

A failure stands against the set, however many other tests have passed, until a later record of the same kind
has passed on the same hardware, or somebody has answered it by name. No bypass overrides a failure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.output.safe_text import require_lines, visible
from cairn.output.wording import short_id
from cairn.release.publish.compatibility import Platform
from cairn.stack import Floor, RecordKind
from cairn.targets import CPU, in_order
from cairn.testing import record as test_record
from cairn.testing.gpus.gpu import covers, matches
from cairn.testing.record import HostTests, TestRecord
from cairn.wheels.wheelset import WheelSet

SKEW = timedelta(minutes=5)
"""How far the clocks of two machines may differ."""


class NamedReason(datafile.Value):
    """A named user's reason for what the gate refuses without it.

    Attributes:
        who: the user to ask about it.
        reason: why it may be all the same.

    Raises:
        UsageError: either is blank, or has what a page or a terminal would not show as it is.
    """

    WHAT: ClassVar[str]
    TIP: ClassVar[str]
    who: str
    reason: str

    def __post_init__(self) -> None:
        require_lines(self.who, self.reason, what=f"{self.WHAT} needs a name and a reason", tip=self.TIP)


class Bypass(NamedReason):
    """A reason to release a set without a test on hardware; the pages then show it as untested."""

    WHAT, TIP = "a bypass", "--bypass WHO --reason WHY"

    def __str__(self) -> str:
        return f"bypassed by {self.who}: {self.reason}"


class Answer(NamedReason, tag_field="schema", tag="cairn.answer/1"):
    """A reason why a failed record does not count.

    Attributes:
        set_id: the set.
        record: digest of the record.
        when: RFC 3339 in UTC.
    """

    WHAT, TIP = "an answer", "--who WHO --reason WHY"
    set_id: str
    record: str
    when: str


class StoredRecord(datafile.Value):
    """A test record in a store.

    Attributes:
        digest: of its bytes.
        record: what it says.
        doubt: why its signature does not prove where it comes from; None where it does, or none was asked.
    """

    digest: str
    record: TestRecord
    doubt: str | None = None


class SetRecords(msgspec.Struct, frozen=True, kw_only=True):
    """All test records and answers that a store has on a set.

    Attributes:
        records: those that can be read, by digest.
        answers: those that can be read, each with the digest of its own bytes.
        unusable: the digest in the name of what cannot be read or was changed, and what is wrong with it.
        arrivals: digest of a record to its place among those that came, as the ledger has them.
    """

    records: tuple[StoredRecord, ...] = ()
    answers: tuple[tuple[str, Answer], ...] = ()
    unusable: tuple[tuple[str, str], ...] = ()
    arrivals: Mapping[str, int] = msgspec.field(default_factory=dict)

    def having(self, records: Sequence[StoredRecord]) -> SetRecords:
        """A copy with records that are not in the store yet."""
        before = {record.digest for record in self.records}
        new = [record for record in records if record.digest not in before]
        last = 1 + max(self.arrivals.values(), default=0)
        arrivals = {**self.arrivals, **dict.fromkeys((record.digest for record in new), last)}
        return structs.replace(self, records=(*self.records, *new), arrivals=arrivals)

    @property
    def digests(self) -> frozenset[str]:
        """The digests of all records and answers, to tell whether any were added."""
        records = (record.digest for record in self.records)
        return frozenset((*records, *(digest for digest, _ in (*self.answers, *self.unusable))))


class RecordRequirements(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements on the test records of a set.

    Attributes:
        wheel_set: the set.
        records: kinds of record, each with its floor; every target must have a passed one of each.
        installed: project to its files in the set, for what is installed in any case: each must be in a
            record.
        imports: the distributions of the set whose modules must have been imported.
        own_tests: the stack has tests of its own, of which some must have passed.
        since: when the set was staged, since no test of it can have begun earlier; None where that is not
            known.
        moment: now.
    """

    wheel_set: WheelSet
    records: Mapping[RecordKind, Floor]
    moment: datetime
    installed: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    imports: tuple[str, ...] = ()
    own_tests: bool = False
    since: datetime | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the records of a set.

    Attributes:
        open_failures: the failures that stand against the set, a sentence each; no bypass overrides them.
        missing: why it counts as untested, a sentence each; nothing where each target was tested.
        untested: the targets that were not tested with every kind of record, in order; `cpu` for
            a set without targets.
        answered: who answered a failed record, and why, a sentence each.
        passed: what was tested on what.
        host: what ran and passed without hardware, counted, in one sentence; empty where no record shows it.
        host_missing: why none does, a sentence each; no bypass overrides them.
        on_hardware: records that were made on the hardware of a target which counts as untested, and do not
            count, a sentence each; what may be bypassed is that nobody has the hardware.
        ran: for each kind of record there is one whose only fault is that it was made without the hardware.
        ineffective: digest of a record that counts neither for nor against the set, to the reason.
    """

    open_failures: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    host: str = ""
    host_missing: tuple[str, ...] = ()
    on_hardware: tuple[str, ...] = ()
    ran: bool = False
    ineffective: Mapping[str, str] = msgspec.field(default_factory=dict)


class _Demanded(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of test that each target must have a passed record of.

    Attributes:
        kind: of record.
        config: of a suite; any where empty.
    """

    kind: RecordKind
    config: str = ""

    @classmethod
    def of(cls, record: TestRecord) -> _Demanded:
        """The demand that a record is for."""
        return cls(kind=record.kind, config=record.config)

    def is_met_by(self, record: TestRecord) -> bool:
        """Whether a record is for this demand, passed or not."""
        return record.kind == self.kind and self.config in ("", record.config)

    def __str__(self) -> str:
        return f"{self.kind} record of {self.config}" if self.config else f"{self.kind} record"


def _demanded(requirements: RecordRequirements) -> tuple[_Demanded, ...]:
    return tuple(
        _Demanded(kind=kind, config=config)
        for kind, floor in requirements.records.items()
        for config in floor.configs or ("",)
    )


def disagreement(record: TestRecord, wheel_set: WheelSet) -> str | None:
    """Why a record does not belong to a set, or None."""
    if record.set_id != wheel_set.id:
        return f"it is of the set {short_id(str(record.set_id))}"
    wheels = [wheel.file_name for wheel in wheel_set.wheels]
    return test_record.disagreement(record, wheel_set.sha256s, wheels)


def from_the_future(record: TestRecord, moment: datetime) -> str | None:
    """Why a record's time is impossible, because it lies in the future; None if it is not."""
    if record.ended <= moment + SKEW:
        return None
    return f"it ended at {record.ended.astimezone(UTC):%Y-%m-%d %H:%M} UTC, which is yet to come"


def weigh(requirements: RecordRequirements, set_records: SetRecords) -> Evidence:
    """Weigh the records of a set together with the answers to them."""
    objections = {item.digest: objection(requirements, item) for item in set_records.records}
    good = [item for item in set_records.records if objections[item.digest] is None]
    ran = [item for item in set_records.records if not any(_objections(requirements, item, on_host=True))]
    open_failures, answered = _against(requirements, set_records)
    by_demand = {
        demand: [item.record for item in good if demand.is_met_by(item.record)]
        for demand in _demanded(requirements)
    }
    untested = {demand: _untested(requirements, passed) for demand, passed in by_demand.items()}
    left = in_order(target for targets in untested.values() for target in targets)
    ineffective = {
        item.digest: objections[item.digest] or f"the stack demands no {_Demanded.of(item.record)}"
        for item in set_records.records
        if not item.record.is_bad
        and (objections[item.digest] or not any(demand.is_met_by(item.record) for demand in by_demand))
    }
    on_hardware = [
        f"{item.record.kind} record {short_id(item.digest)} was made on {', '.join(item.record.hardware)} "
        f"and does not count ({objections[item.digest]}): run its tests there again, no bypass helps"
        for item in set_records.records
        # What failed is weighed above; what is `untested` did not use the GPU that was there.
        if item.record.verdict in ("passed", "invalid")
        and objections[item.digest]
        and any(
            demand.is_met_by(item.record) and any(covers(item.record.hardware, name) for name in names)
            for demand, names in untested.items()
            if not requirements.wheel_set.for_cpu
        )
    ]
    missing = [f"no {demand} has passed on {', '.join(names)}" for demand, names in untested.items() if names]
    if missing and not set_records.records:
        missing = ["there is no test record"]
    if missing:
        kinds = {item.digest: item.record.kind for item in set_records.records}
        missing += [
            f"{kinds[digest]} record {short_id(digest)}: {why}" for digest, why in ineffective.items()
        ]
    host, host_missing = _weigh_host(requirements, set_records)
    passed = (
        f"{record.kind} passed on {', '.join(dict.fromkeys(_computed_on(record))) or 'a CPU'}"
        for passed in by_demand.values()
        for record in passed
    )
    return Evidence(
        ran=all(any(demand.is_met_by(item.record) for item in ran) for demand in by_demand),
        # A record may hold any text, and these sentences come to pages and terminals.
        open_failures=tuple(map(visible, open_failures)),
        missing=tuple(map(visible, missing)),
        on_hardware=tuple(map(visible, on_hardware)),
        untested=left,
        answered=tuple(map(visible, answered)),
        host=visible(host),
        host_missing=tuple(map(visible, host_missing)),
        passed=tuple(map(visible, passed)),
        ineffective={digest: visible(why) for digest, why in ineffective.items()},
    )


def _weigh_host(requirements: RecordRequirements, set_records: SetRecords) -> tuple[str, list[str]]:
    """Return what a record shows of the tests that need no hardware; or why none shows that they passed."""
    wheel_set, problems = requirements.wheel_set, []
    for item in set_records.records:
        host = item.record.host
        if host is None:
            continue
        objections = (*_objections(requirements, item, on_host=True), *_host_objections(requirements, host))
        if not objections:
            tests, count = item.record.counts.passed, sum(host.imported.values())
            where = f"Python {host.python}, {host.platform}"
            return f"{count} modules imported and {tests} tests passed on {where}", []
        problems.append(f"smoke record {short_id(item.digest)}: {objections[0]}")
    if not set_records.records:
        return "", ["there is no test record"]
    place = f"Python {wheel_set.python}, {wheel_set.platform}"
    problem = f"no record shows that every package imports and the smoke tests pass without a GPU on {place}"
    return "", [problem, *problems]


def _host_objections(requirements: RecordRequirements, host: HostTests) -> Iterator[str]:
    wheel_set = requirements.wheel_set
    place, here = (Platform(python=wheel_set.python, tag=tag) for tag in (wheel_set.platform, host.platform))
    if host.python != wheel_set.python or not here.is_same_machine(place):
        yield f"it was made with Python {host.python} on {host.platform}, and the set is for {place}"
    if left := [name for name in requirements.imports if not host.imported.get(name)]:
        yield f"no module of {', '.join(left)} was imported"
    if requirements.own_tests and not host.own_tests:
        yield "none of the stack's own tests passed"


def _against(
    requirements: RecordRequirements, set_records: SetRecords
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The failures that stand against a set, and those that somebody has answered."""
    good = [item for item in set_records.records if objection(requirements, item) is None]
    ran = [item for item in set_records.records if not any(_objections(requirements, item, on_host=True))]
    answers = {
        answer.record: answer
        for _, answer in set_records.answers
        if answer.set_id == requirements.wheel_set.id
    }
    problems = dict(set_records.unusable)
    for item in set_records.records:
        record = item.record
        if (
            record.is_bad
            and record.set_id == requirements.wheel_set.id
            # What failed without a GPU is answered by what passes without one.
            and not _overtaken(requirements, set_records, item, good if record.hardware else [*good, *ran])
        ):
            tests = f" with {record.failures} failed tests" if record.verdict != "failed" else ""
            sentence = (
                f"{record.kind} record {short_id(item.digest)}: {record.verdict}{tests}: {record.reason}"
            )
            problems[item.digest] = sentence
    present = {item.digest for item in set_records.records} | problems.keys()
    open_failures = [problem for digest, problem in problems.items() if digest not in answers]
    # An answer outlives its record only where somebody has taken the record away.
    open_failures += [
        f"the record {short_id(digest)}, which {answer.who} has answered, is not there any more"
        for digest, answer in answers.items()
        if digest not in present
    ]
    answered = [
        f"{problem}; answered by {answers[digest].who}: {answers[digest].reason}"
        for digest, problem in problems.items()
        if digest in answers
    ]
    return tuple(open_failures), tuple(answered)


def failures(wheel_set: WheelSet, set_records: SetRecords) -> tuple[str, ...]:
    """The failures that stand against a set, a sentence each, whatever a stack demands of it."""
    requirements = RecordRequirements(wheel_set=wheel_set, records={}, moment=datetime.now(UTC))
    return tuple(map(visible, _against(requirements, set_records)[0]))


def _overtaken(
    requirements: RecordRequirements, set_records: SetRecords, failure: StoredRecord, good: list[StoredRecord]
) -> bool:
    """Whether a later record of the same kind has passed on the same hardware.

    Later is what began later and came later: the clock of a machine may be slow, and the ledger has the order
    in which records came. On hardware that is not the set's nothing can pass: there, any later one of the
    set's own answers it.

    Of a suite some of whose shards ran again, the later record is of the others too, and so may have begun
    when the failed one did.
    """
    failed, arrived = failure.record, set_records.arrivals.get(failure.digest, 0)
    hardware = failed.hardware
    if failed.verdict == "invalid" and not requirements.wheel_set.for_cpu:
        targets = requirements.wheel_set.targets
        hardware = tuple(name for name in hardware if any(covers([name], target) for target in targets))
    return any(
        (later.kind, later.config) == (failed.kind, failed.config)
        and (later.began, later.ended) > (failed.began, failed.ended)
        and set_records.arrivals.get(digest, 0) >= arrived
        and all(covers(_computed_on(later), target) for target in hardware)
        for digest, later in ((item.digest, item.record) for item in good)
    )


def _computed_on(record: TestRecord) -> tuple[str, ...]:
    """The kinds of GPU that tests have passed on; for a CPU set, those that were there."""
    covered = [target for target, count in record.covered.items() if count]
    return tuple(name for name in record.hardware if not record.covered or covers(covered, name))


def _untested(requirements: RecordRequirements, passed: list[TestRecord]) -> tuple[str, ...]:
    if requirements.wheel_set.for_cpu:
        return () if passed else (CPU,)
    # Records add up: each target may have been tested on a different machine. A GPU that was there, and that
    # no test computed on, covers nothing.
    seen = {target for record in passed for target, count in record.covered.items() if count}
    return in_order(target for target in requirements.wheel_set.targets if target not in seen)


def objection(requirements: RecordRequirements, item: StoredRecord) -> str | None:
    """The reason why a record does not show that its set works, or None."""
    return next(_objections(requirements, item), None)


def _objections(
    requirements: RecordRequirements, item: StoredRecord, *, on_host: bool = False
) -> Iterator[str]:
    """All objections to a record; with `on_host`, except that it was made without the hardware."""
    wheel_set, record = requirements.wheel_set, item.record
    if item.doubt:
        yield item.doubt
    if problem := disagreement(record, wheel_set):
        yield problem
    # What passed on a host, and is untested for that, did run there.
    if record.verdict != "passed" and not (on_host and _passed_on_host(record)):
        yield f"{record.verdict}: {record.reason}" if record.reason else record.verdict
    if (record.family, record.targets) != (wheel_set.family, wheel_set.targets):
        yield f"it is of {record.family} ({', '.join(record.targets)}), not of {wheel_set.family}"
    tested = {wheel.file_name for wheel in record.wheels}
    if unsaid := sorted(name for name, digests in requirements.installed.items() if not digests & tested):
        yield f"it does not say which {', '.join(unsaid)} it was made with"
    if record.pytest_args:  # such as `-k one_test`: what was not selected is not even among the skips
        yield f"perhaps not every test ran: pytest was given {shlex.join(record.pytest_args)}"
    yield from _time_objections(requirements, record)
    if not requirements.wheel_set.for_cpu and (record.hardware or not on_host):
        yield from _hardware_objections(wheel_set, record, on_host=on_host)
    yield from _floor_objections(requirements, record, on_host=on_host)


def _passed_on_host(record: TestRecord) -> bool:
    counts = record.counts
    failed = counts.failed + counts.errors
    # What TorchDevice translated ran on no GPU either, and not as it runs on this host.
    return record.verdict == "untested" and not record.translated and counts.passed > 0 and not failed


def _time_objections(requirements: RecordRequirements, record: TestRecord) -> Iterator[str]:
    if problem := from_the_future(record, requirements.moment):
        yield problem
    if requirements.since is not None and record.began < requirements.since - SKEW:
        staged = f"{requirements.since:%Y-%m-%d %H:%M} UTC"
        yield f"it began at {record.started}, before the set was staged ({staged})"


def _hardware_objections(wheel_set: WheelSet, record: TestRecord, *, on_host: bool) -> Iterator[str]:
    if not record.hardware:
        yield f"it was made without any hardware of {wheel_set.family}"
    if not matches(record.hardware, wheel_set.targets):
        yield f"it was made on {', '.join(record.hardware)}, not on {wheel_set.family}"
    if not on_host and not record.gpus:
        yield "it does not say which GPUs there were: an older Cairn wrote it"
    # A run that skips every test which needs the GPU passes, and proves nothing of it.
    if not on_host and not record.counts.device_passed:
        yield "none of its tests used the GPU"


def _floor_objections(
    requirements: RecordRequirements, record: TestRecord, *, on_host: bool
) -> Iterator[str]:
    floor, counts = requirements.records.get(record.kind, Floor()), record.counts
    if counts.executed < floor.tests:
        yield f"{counts.executed} tests ran, fewer than the floor of {floor.tests}"
    if not requirements.wheel_set.for_cpu and not on_host and counts.device_passed < floor.device_tests:
        yield f"{counts.device_passed} tests passed on a GPU, fewer than the floor of {floor.device_tests}"
