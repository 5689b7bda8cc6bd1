"""What changed between two reports."""

import pytest

from cairn.testing.compat import report
from cairn.testing.compat.report import ReportRow
from helpers import compat

HALF = "torch.half"
OK = compat.row(HALF, "supported", device="gfx942")
IN_PART = compat.row(HALF, "partial", reason="addition: wrong", device="gfx942")
NOT_AT_ALL = compat.row(HALF, "unsupported", reason="crash", device="gfx942")
NO_GPU = compat.row(HALF, "not measurable", reason="no GPU")
ON_CPU = compat.row(HALF, "not measurable", reason="no GPU", on_cpu="supported")
NOT_ON_CPU = compat.row(HALF, "not measurable", reason="no GPU", on_cpu="unsupported")


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (OK, IN_PART, "less"),
        (IN_PART, NOT_AT_ALL, "less"),
        (NOT_AT_ALL, OK, "more"),
        (NO_GPU, OK, "newly measured"),
        (OK, NO_GPU, "no longer measured"),
        (ON_CPU, NOT_ON_CPU, "less"),
        (OK, compat.row(HALF, "supported", found="2.0"), "different"),
        (IN_PART, compat.row(HALF, "partial", reason="product: wrong"), "different"),
    ],
)
def test_a_change_says_what_it_means(before: ReportRow, after: ReportRow, kind: str) -> None:
    (change,) = report.diff(compat.report(before), compat.report(after)).changes
    assert (change.table, change.name, change.kind) == ("dtypes", HALF, kind)
    assert (change.before, change.after) == (before.measured, after.measured)


def test_reports_of_two_runs_that_saw_the_same_have_no_difference() -> None:
    again = compat.row(HALF, "supported", device="gfx1100")
    assert report.diff(compat.report(OK), compat.report(again)) == report.Difference(tested={}, changes=())


def test_rows_that_only_one_has_are_named() -> None:
    other = compat.row("torch.bool", "supported")
    found = report.diff(compat.report(OK, other), compat.report(OK))
    assert [(c.name, c.kind, c.after) for c in found.changes] == [("torch.bool", "row gone", None)]
    found = report.diff(compat.report(OK), compat.report(OK, other))
    assert [(c.name, c.kind, c.before) for c in found.changes] == [("torch.bool", "new row", None)]


def test_the_wheels_are_compared_too() -> None:
    found = report.diff(compat.report(tested=compat.CPU), compat.report(tested=compat.ROCM))
    assert found.tested["torch"] == ("2.9.1+cpu", "2.9.1+rocm7.10.0")
    assert found.tested["rocm"] == ("", "7.10.0")
