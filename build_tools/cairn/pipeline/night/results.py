"""Show test results: in the step summary of the job, and as a page beside the results.

The results are compared with those of earlier sets of the same line and family in the store.
"""

from __future__ import annotations

from pathlib import Path

from cairn import files
from cairn.errors import CairnError
from cairn.matrix.legs import Leg
from cairn.output import Progress, console, github, silent, wording
from cairn.pipeline.night import plan
from cairn.pipeline.night.plan import NightRun
from cairn.release import records
from cairn.release.index.generation import now
from cairn.release.index.listing import index_set
from cairn.release.index.people import lock_name
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index, read_set
from cairn.release.trust.signers import Signer
from cairn.release.weighing import StoredRecord
from cairn.store.protocol import Store
from cairn.testing import junit
from cairn.testing import record as test_record
from cairn.testing.record import TestRecord
from cairn.testing.report import results, summary
from cairn.testing.report.summary import EarlierRun

PAGE = "report.html"
_EARLIER = 3  # nights that failures are compared with


def keep(run: NightRun, leg: Leg, folder: Path, *, title: str, name: str, signer: Signer | None) -> None:
    """Store the test record in a folder, and show the results.

    Args:
        run: the night.
        leg: whose set was tested.
        folder: with the record, the results and the JUnit XML.
        title: of the results.
        name: of the record, in messages.
        signer: signs the record; None for no signature.
    """
    records.add_file(run.store, folder / test_record.FILE, name=name, signer=signer)
    say = console.current().warn
    try:  # a failure to show them does not change them
        run_results = results.read(folder)
        earlier = (
            earlier_runs(
                run.store, plan.index_of(leg, run.plan.staging), run_results.record, most=_EARLIER, say=say
            )
            if run_results.record is not None
            else ()
        )
        run_summary = summary.of_run(run_results, earlier)
        github.add_summary(summary.step_summary(title, [run_summary]))
        files.write_text(folder / PAGE, summary.page(title, [(run_results, run_summary)], generated=now()))
    except (CairnError, OSError) as error:
        say(f"the results of {title} are not shown: {error}")


def earlier_runs(
    store: Store, index: str, record: TestRecord, *, most: int, say: Progress = silent
) -> tuple[EarlierRun, ...]:
    """Return records of the same kind of earlier sets with the same stack, line, family, Python and platform.

    Args:
        store: the store that has the record's set.
        index: where the earlier sets are, such as `staging`.
        record: whose history it is.
        most: how many.
        say: called for each record that cannot be read: an incomplete history is better than none.

    Returns:
        The newest first.
    """
    if record.set_id is None:
        return ()
    tested_set = index_set(read_set(store, record.set_id))
    snapshot = read_current(Index(store, index))
    # When an index took a set, not when it was tested: a set of last week is tested again today.
    added = {
        entry.set_id: entry.added for entry in snapshot.sets() if lock_name(entry) == lock_name(tested_set)
    }
    until = added.pop(tested_set.set_id, None)
    before = [set_id for set_id, when in added.items() if until is None or when < until]
    runs: list[EarlierRun] = []
    for set_id in sorted(before, key=lambda set_id: added[set_id], reverse=True):
        if len(runs) == most:
            break
        # Valid ones of the same tests, all of them.
        matches = [
            entry
            for entry in records.read(store, set_id).records
            if (entry.record.kind, entry.record.config) == (record.kind, record.config)
            and entry.record.verdict != "invalid"
            and not entry.record.pytest_args
        ]
        if matches:
            last = max(matches, key=lambda entry: entry.record.began)
            runs.append(_with_results(store, set_id, last, say))
    return tuple(runs)


def _with_results(store: Store, set_id: str, item: StoredRecord, say: Progress) -> EarlierRun:
    try:
        data = records.junit_of(store, item)
        outcomes = None if data is None else junit.loads(data, name=test_record.JUNIT).by_test
    except CairnError as error:
        say(f"no results of the set {wording.short_id(set_id)}: {error}")
        outcomes = None
    return EarlierRun(set_id=set_id, record=item.record, outcomes=outcomes)
