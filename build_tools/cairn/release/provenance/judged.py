"""Read what the gate found of a set, and compare it with what the index says and what the records show."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from cairn import datafile, targets
from cairn.errors import StoreError, UsageError
from cairn.output.wording import short_id
from cairn.release.index import keys
from cairn.release.index.generation import IndexSet
from cairn.release.provenance import evidence
from cairn.store.protocol import Reader, read_named
from cairn.wheels.wheelset import WheelSet

TESTED = "tested on hardware of each target"
"""What the gate calls the demand that test records meet."""


class _Demand(datafile.Value, forbid_unknown_fields=False):
    name: str
    outcome: str


class Judgement(datafile.Value, forbid_unknown_fields=False):
    """The fields of a gate's report that checking needs.

    Attributes:
        set_id: of the set that it judged.
        judged: when.
        demands: each with how it stood.
        target: the index that the set was to go to; None in early ones.
        untested: the targets that no passed record is of.
        answered: failed records that stand against the set, with whose word lets it through.
        records: digests of the records that were weighed.
    """

    set_id: str
    judged: str
    demands: tuple[_Demand, ...]
    target: str | None = None
    untested: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    records: tuple[str, ...] = ()


def judgement(reader: Reader, set_id: str, digest: str, index: str) -> Judgement:
    """The gate's judgement of a set that was to go to an index.

    Raises:
        StoreError: it is missing, was changed, is of another set or index, or is a no.
        UsageError: it cannot be read.
    """
    title = f"the judgement {short_id(digest)}"
    data = read_named(reader, keys.set_key(set_id, f"judgements/{digest}.json"), digest, name=title)
    judgement = datafile.loads(data, Judgement, name=title)
    if judgement.set_id != set_id:
        raise StoreError(f"{title} is of another set: {short_id(judgement.set_id)}")
    if judgement.target not in (None, index):
        raise StoreError(f"{title} is of another index: {str(judgement.target)[:100]}")
    if refused := [demand.name for demand in judgement.demands if demand.outcome == "not met"]:
        raise StoreError(f"{title} is a no: {', '.join(refused)}")
    return judgement


def contradictions(
    reader: Reader, wheel_set: WheelSet, entry: IndexSet, judgement: Judgement
) -> Iterator[str]:
    """The points where an index claims more for a set than the gate, or the gate more than the records.

    Args:
        reader: what has the records.
        wheel_set: the set.
        entry: what the index says of it.
        judgement: by which it has it.
    """
    word = entry.untested or ""
    # Earlier ones have the words alone, and so has what a promoter signed of a file.
    words = re.split(r"[\s,;]+", word)
    shown = (*entry.untested_targets, *words, *([targets.CPU] if words[0] == "untested" else ()))
    if hidden := [name for name in judgement.untested if name not in shown]:
        yield f"the judgement says that it is untested on {', '.join(hidden)}, and the index does not"
    if not word and (judgement.answered or any(demand.outcome == "bypassed" for demand in judgement.demands)):
        yield "the judgement let it in on somebody's word, and the index does not say so"
    yield from (
        f"the index does not say: {answer}" for answer in judgement.answered if word and answer not in word
    )
    if any(demand.name == TESTED and demand.outcome == "met" for demand in judgement.demands):
        covered = set[str]()
        for digest in judgement.records:
            # One of something else, or none, shows nothing of this set.
            with contextlib.suppress(StoreError, UsageError):
                _, test_record = evidence.record(reader, wheel_set, digest)
                if test_record.verdict == "passed":
                    covered |= {targets.CPU, *(name for name, count in test_record.covered.items() if count)}
        claimed = [name for name in wheel_set.targets or (targets.CPU,) if name not in judgement.untested]
        if left := [name for name in claimed if name not in covered]:
            yield f"the judgement says that it was tested on {', '.join(left)}, and no record beside it does"
