"""`cairn release record` (add, answer, list) and `cairn release key`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Note, Piece, Table, Warn
from cairn.cli.binder import command
from cairn.options import argument, option
from cairn.output.wording import short_id

if TYPE_CHECKING:
    from cairn.release.weighing import Evidence, SetRecords
    from cairn.store.protocol import Store


@dataclass(frozen=True, kw_only=True)
class AddRecords(signing.SignOptions, common.StoreOptions):
    """Options of `cairn release record add`.

    A record is kept as it is and never removed. One that failed stands against the set until a later one
    has passed on the same hardware, or somebody answers it. junit.xml and compat.json beside it are kept
    with it.

        cairn release record add smoke/record.json --store ./store
    """

    files: tuple[Path, ...] = argument("FILE", "a record.json", nargs="+", convert=converters.file)
    dry_run: bool = common.dry_run()


@dataclass(frozen=True, kw_only=True)
class AnswerRecord(signing.SignOptions, common.StoreOptions):
    """Options of `cairn release record answer`.

    Every page of the set, the report and the terminal show who said so and why.

        cairn release record answer 3f9a --who ann --reason "the disk was full" --store ./store
    """

    record: str = argument("RECORD", "its file, or its digest: the first digits will do")
    who: str = option("whom to ask", required=True)
    reason: str = option("why it does not count", required=True)
    dry_run: bool = common.dry_run()


@dataclass(frozen=True, kw_only=True)
class ListRecords(common.OptionalStack, common.StoreOptions):
    """Options of `cairn release record list`.

    With --stack, each is weighed as the gate would: by the kinds and floors of the stack.

        cairn release record list out/set.json --store ./store --stack pytorch
    """

    set_id: str = common.set_argument()
    index: str = common.index("staging")
    trust: tuple[str, ...] = signing.trust("whose signature a record must have to count")


def _add(request: AddRecords) -> Answer:
    from cairn.release import records
    from cairn.release.index import commit

    store, signer = request.open_existing_store(), request.signer()
    inputs = [records.read_given(path) for path in request.files]
    # All are looked at before the first is kept.
    for dry_run in (True, request.dry_run):
        added = [
            records.add(
                store, item.data, name=item.name, results=item.results, signer=signer, dry_run=dry_run
            )
            for item in inputs
        ]
    late = [] if request.dry_run else _late(store, {str(item.record.set_id) for item in added})
    waiting = [commit.LAGGING] if late and not commit.can_change_gated(store) else []
    verb = "would add" if request.dry_run else "+"
    warnings = (
        f"{index} offers the set {short_id(set_id)}, and its pages say by now: {why}. To take it back: "
        f"cairn release yank {short_id(set_id)} --reason …; to say why it does not count: "
        "cairn release record answer"
        for index, set_id, why in late
    )
    return Answer(
        {
            "added": [
                {"set": item.record.set_id, "record": item.digest, "verdict": item.record.verdict}
                for item in added
            ],
            "late": [{"index": index, "set": set_id, "failed": why} for index, set_id, why in late],
            "dry_run": request.dry_run,
        },
        (
            *(f"{verb} {item.digest} {item.record.kind}, {item.record.verdict}" for item in added),
            *map(Warn, (*warnings, *waiting)),
        ),
    )


def _late(store: Store, set_ids: Collection[str]) -> list[tuple[str, str, str]]:
    """Where users are offered one of these sets that a record stands against: the index, the set and why."""
    from cairn.release import records
    from cairn.release.index import keys
    from cairn.release.index.reading import read_current
    from cairn.release.index.snapshot import Index, existing

    offers: list[tuple[str, str, str]] = []
    for name in filter(keys.is_gated, existing(store)):
        now = read_current(Index(store, name))
        entries = [now.set(set_id) for set_id in sorted({*set_ids} & {*now.set_ids})]
        # Its pages may have to wait for a promoter's key.
        standing = [(entry, entry.failed or records.standing(store, entry.set_id)) for entry in entries]
        offers += [(name, entry.set_id, why) for entry, why in standing if why and entry.yanked is None]
    return offers


def _answer(request: AnswerRecord) -> Answer:
    from cairn.release import records

    store, dry_run = request.open_existing_store(), request.dry_run
    set_id, digest = records.find(store, request.record)
    answer = records.answer(store, set_id, digest, who=request.who, reason=request.reason, dry_run=dry_run)
    verb = "would answer" if dry_run else "answered"
    return Answer(answer, [f"{verb} {digest} of the set {short_id(set_id)}"], more={"dry_run": dry_run})


def _list(request: ListRecords) -> Answer:
    from cairn import datafile
    from cairn.release import records
    from cairn.release.gate import gate
    from cairn.release.gate.case import Case
    from cairn.release.index.reading import read_current
    from cairn.release.index.snapshot import Index, read_set, whole_id

    store = request.open_existing_store()
    index = read_current(Index(store, request.index))
    set_id = whole_id(common.set_id_of(request.set_id), index)
    set_records = records.read(store, set_id, trust=signing.read_trust(request.trust, store=store))
    evidence = None
    if (stack := request.load_stack()) is not None:
        wheel_set = read_set(store, set_id)
        evidence = gate.weigh(
            Case(source=index, target=index, wheel_set=wheel_set, stack=stack, set_records=set_records)
        )
    return Answer(
        {
            "set": set_id,
            "records": [
                {"digest": item.digest, **datafile.to_plain(item.record)} for item in set_records.records
            ],
            "answers": [answer for _, answer in set_records.answers],
            "unusable": [{"digest": digest, "problem": problem} for digest, problem in set_records.unusable],
        },
        _text(set_records, evidence),
        more={"weighed": _weighed(evidence)} if evidence else {},
    )


def _weighed(evidence: Evidence) -> dict[str, object]:
    """Return evidence as plain data; programs know its open failures as `standing`."""
    from cairn import datafile

    plain = datafile.to_plain(evidence)
    return {"standing": plain.pop("open_failures"), **plain}


def _text(set_records: SetRecords, evidence: Evidence | None) -> Iterator[Piece]:
    answers = {answer.record: answer for _, answer in set_records.answers}
    rows = []
    for item in set_records.records:
        record, answer = item.record, answers.get(item.digest)
        note = f"answered by {answer.who}: {answer.reason}" if answer else record.reason
        if evidence is not None and item.digest in evidence.ineffective:
            note = f"does not count: {evidence.ineffective[item.digest]}"
        kinds = Counter(record.hardware).items()
        gpus = [f"{count}x {name}" if count > 1 else name for name, count in kinds]
        where = ", ".join(gpus) or "no GPU"
        if gpus and record.not_covered:
            where += f"; nothing on {', '.join(record.not_covered)}"
        counts = f"{record.counts.passed} of {record.counts.total}"
        rows.append((short_id(item.digest), record.kind, record.verdict, where, counts, record.started, note))
    if rows:
        yield Table(("record", "kind", "verdict", "hardware", "passed", "started", "remark"), rows)
    else:
        yield "there is no test record"
    for _, problem in set_records.unusable:
        yield "failed", problem
    for line in (*evidence.open_failures, *evidence.missing) if evidence else ():
        yield "failed", line


@dataclass(frozen=True, kw_only=True)
class CreateKey:
    """Options of `cairn release key create`.

    The private half stays with you; users get the public one from where they know it is yours.

        cairn release key create --output-dir ~/.config/cairn
    """

    output_dir: Path = common.output_dir()


def _create_key(request: CreateKey) -> Answer:
    from cairn.release.trust import signers

    key = signers.create(request.output_dir)
    private, public = (request.output_dir / name for name in (signers.PRIVATE_NAME, signers.PUBLIC_NAME))
    text = (
        key.key_id,
        Note(f"{private} signs: keep it to yourself, and a copy where nobody else can read it"),
        Note(f"{public} checks: give it to those who are to trust you"),
    )
    return Answer({"key_id": key.key_id, "private_key": private, "public_key": public}, text)


COMMANDS = {
    "create": command(CreateKey, _create_key),
    "add": command(AddRecords, _add),
    "answer": command(AnswerRecord, _answer),
    "list": command(ListRecords, _list),
}
