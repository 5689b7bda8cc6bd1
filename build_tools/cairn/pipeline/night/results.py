"""Test results for people: in the summary of the step that ran them, and as a page beside them."""

from __future__ import annotations

from pathlib import Path

from cairn import files
from cairn.errors import CairnError
from cairn.matrix.legs import Leg
from cairn.output import console, github
from cairn.pipeline import earlier_runs
from cairn.pipeline.night import plan
from cairn.pipeline.night.plan import NightRun
from cairn.release import records
from cairn.release.index.generation import now
from cairn.release.provenance.signing_key import Signer
from cairn.testing import record as test_record
from cairn.testing.report import page, results, step_summary, summary

PAGE = "report.html"
_EARLIER = 3  # nights that failures are compared with


def keep(run: NightRun, leg: Leg, folder: Path, *, title: str, name: str, signer: Signer | None) -> None:
    """Store the record of tests that is in a folder, and show their results.

    Args:
        run: the night.
        leg: whose set was tested.
        folder: with the record, the results and the JUnit XML.
        title: of the results.
        name: of the record, in messages.
        signer: signs the record; None for no signature.
    """
    records.add_file(run.store, folder / test_record.FILE, name=name, signer=signer)
    show(run, leg, title, folder)


def show(run: NightRun, leg: Leg, title: str, folder: Path) -> None:
    """Show the results in a folder; a failure to show them does not change them."""
    say = console.current().warn
    try:
        run_results = results.read(folder)
        earlier = (
            earlier_runs.of_record(
                run.store, plan.index_of(leg, run.plan.staging), run_results.record, most=_EARLIER, say=say
            )
            if run_results.record is not None
            else ()
        )
        run_summary = summary.of_run(run_results, earlier)
        github.add_summary(step_summary.markdown_of(title, [run_summary]))
        files.write_text(folder / PAGE, page.render(title, [(run_results, run_summary)], generated=now()))
    except (CairnError, OSError) as error:
        say(f"the results of {title} are not shown: {error}")
