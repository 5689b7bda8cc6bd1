"""`cairn release record`: add, answer, list."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, signing
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.gate.evidence import Evidence
    from cairn.release.records import Kept
    from cairn.store.protocol import Store

_EXAMPLE = "cairn release record add smoke/record.json --store ./store"
_SHOWN = 12  # digits of a digest


def add_to(commands: Subparsers) -> None:
    """Add `record` and its commands."""
    group = commands.add_parser("record", help="the test records of a set, and what was said to failed ones")
    records = add_commands(
        group,
        description="Test records beside the set they are of: the gate reads them all.",
        example=_EXAMPLE,
    )
    _add_add(records)
    _add_answer(records)
    _add_list(records)


def set_id_of(text: str) -> str:
    """The id that a set.json has, or the beginning of one as it was given."""
    from cairn.errors import UsageError
    from cairn.wheels import wheelset

    if text and Path(text).is_dir():
        raise UsageError(f"{text} is a folder, not a set.json", tip=f"did you mean {Path(text, 'set.json')}?")
    if Path(text).is_file():
        return wheelset.read(Path(text)).id
    if Path(text).suffix or "/" in text:
        raise UsageError(f"there is no file {text}", tip="name a set.json, or the id of a set")
    return text


def _add_add(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "add",
        _add,
        about="put test records beside the set they are of",
        more="A record is kept as it is and never removed. One that failed stands against the set until a "
        "later one has passed on the same hardware, or somebody answers it. junit.xml and compat.json "
        "beside it are kept with it.",
        example=_EXAMPLE,
    )
    parser.add_argument("files", nargs="+", type=converters.file, metavar="FILE", help="a record.json")
    arguments.add_store(parser)
    signing.add_sign_key(parser)
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_answer(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "answer",
        _answer,
        about="say by name why a failed record does not hold its set back",
        more="Every page of the set, the report and the terminal show who said so and why.",
        example='cairn release record answer 3f9a --who ann --reason "the disk was full" --store ./store',
    )
    parser.add_argument("record", metavar="RECORD", help="its file, or its digest: the first digits will do")
    parser.add_argument("--who", required=True, metavar="WHO", help="whom to ask")
    parser.add_argument("--reason", required=True, help="why it does not count")
    arguments.add_store(parser)
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_list(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "list",
        _list,
        about="list the test records of a set, and what each comes to",
        more="With --stack, each is weighed as the gate would: by the kinds and floors of the stack.",
        example="cairn release record list out/set.json --store ./store --stack external-builds/pytorch",
    )
    parser.add_argument("set_id", metavar="SET", help="its set.json, or its id: the first digits will do")
    arguments.add_store(parser)
    arguments.add_index(parser, default="staging")
    arguments.add_stack(parser, required=False)
    signing.add_trust(parser, what="whose signature a record must have to count")
    arguments.add_json(parser)


def _add(options: argparse.Namespace) -> int:
    from cairn.release import records

    store, signer = arguments.open_existing_store(options), signing.signer(options)
    given = [records.read_given(path) for path in options.files]
    # All are looked at before the first is kept.
    for dry_run in (True, options.dry_run):
        added = [
            records.add(store, one.data, name=one.name, results=one.results, signer=signer, dry_run=dry_run)
            for one in given
        ]
    late = [] if options.dry_run else _late(store, {str(kept.record.set_id) for kept in added})
    if options.json:
        found = [
            {"set": kept.record.set_id, "record": kept.digest, "verdict": kept.record.verdict}
            for kept in added
        ]
        told = [{"index": index, "set": set_id, "failed": why} for index, set_id, why in late]
        console.current().json({"added": found, "late": told, "dry_run": options.dry_run})
        return 0
    for kept in added:
        verb = "would add" if options.dry_run else "+"
        console.current().out(f"{verb} {kept.digest} {kept.record.kind}, {kept.record.verdict}")
    for index, set_id, why in late:
        console.current().warn(
            f"{index} offers the set {set_id[:_SHOWN]}, and its pages say by now: {why}. To take it back: "
            f"cairn release yank {set_id[:_SHOWN]} --reason …; to say why it does not count: "
            "cairn release record answer"
        )
    return 0


def _late(store: Store, set_ids: Collection[str]) -> list[tuple[str, str, str]]:
    """Where users are offered one of these sets that a record stands against: the index, the set and why."""
    from cairn.release.index import keys
    from cairn.release.index.snapshot import Index, existing

    found = []
    for name in filter(keys.is_gated, existing(store)):
        now = Index(store, name).load()
        listed = [now.set(set_id) for set_id in sorted({*set_ids} & {*now.set_ids})]
        found += [(name, one.set_id, one.failed) for one in listed if one.failed and one.yanked is None]
    return found


def _answer(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.release import records

    store = arguments.open_existing_store(options)
    set_id, digest = records.find(store, options.record)
    said = records.answer(
        store, set_id, digest, who=options.who, reason=options.reason, dry_run=options.dry_run
    )
    if options.json:
        console.current().json({**datafile.to_plain(said), "dry_run": options.dry_run})
    else:
        verb = "would answer" if options.dry_run else "answered"
        console.current().out(f"{verb} {digest} of the set {set_id[:_SHOWN]}")
    return 0


def _list(options: argparse.Namespace) -> int:
    from cairn.release import records
    from cairn.release.index.snapshot import Index, whole_id

    store = arguments.open_existing_store(options)
    set_id = whole_id(set_id_of(options.set_id), Index(store, options.index).load())
    kept = records.read(store, set_id, trust=signing.trust(options) if options.trust else None)
    found = _weighed(store, set_id, kept, options) if options.stack else None
    if options.json:
        console.current().json(_plain(set_id, kept, found))
    else:
        _show(kept, found)
    return 0


def _weighed(store: Store, set_id: str, kept: Kept, options: argparse.Namespace) -> Evidence:
    from cairn.release.gate import gate
    from cairn.release.gate.case import Case
    from cairn.release.index.snapshot import Index, read_set

    there = Index(store, options.index).load()
    case = Case(
        source=there,
        target=there,
        wheel_set=read_set(store, set_id),
        stack=arguments.read_stack(options),
        kept=kept,
    )
    return gate.weigh(case)


def _plain(set_id: str, kept: Kept, found: Evidence | None) -> dict[str, object]:
    from cairn import datafile

    plain: dict[str, object] = {
        "set": set_id,
        "records": [{"digest": item.digest, **datafile.to_plain(item.record)} for item in kept.records],
        "answers": [datafile.to_plain(said) for _, said in kept.answers],
        "unusable": [{"digest": digest, "problem": problem} for digest, problem in kept.unusable],
    }
    return plain if found is None else {**plain, "weighed": datafile.to_plain(found)}


def _show(kept: Kept, found: Evidence | None) -> None:
    screen = console.current()
    answers = {said.record: said for _, said in kept.answers}
    rows = []
    for item in kept.records:
        record, said = item.record, answers.get(item.digest)
        note = f"answered by {said.who}: {said.reason}" if said else record.reason
        if found is not None and item.digest in found.ineffective:
            note = f"does not count: {found.ineffective[item.digest]}"
        kinds = Counter(record.hardware).items()
        there = [f"{count}x {name}" if count > 1 else name for name, count in kinds]
        where = ", ".join(there) or "no GPU"
        if there and record.not_covered:
            where += f"; nothing on {', '.join(record.not_covered)}"
        counts = f"{record.counts.passed} of {record.counts.total}"
        rows.append((item.digest[:_SHOWN], record.kind, record.verdict, where, counts, record.started, note))
    if rows:
        screen.table(("record", "kind", "verdict", "hardware", "passed", "started", "remark"), rows)
    else:
        screen.out("there is no test record")
    for _, problem in kept.unusable:
        screen.item("failed", problem)
    for line in (*found.standing, *found.missing) if found else ():
        screen.item("failed", line)
