"""A report's tables, read back: as docutils and GitHub read them, and as HTML by a parser."""

import base64
import hashlib
from pathlib import Path

import pytest

from cairn.testing.compat import evidence, report
from helpers import compat
from helpers.compat_tables import rows_of
from helpers.html import parse

HOSTILE = "*`a`* | <b>|_x_\\ [l](u)\n\x1b[31m\u202e&amp;"

FOUND = compat.report(
    compat.row("torch.half", "supported", device="gfx942", found="1.2"),
    compat.row("torch.bool", "partial", reason="addition: a wrong sum"),
    compat.row("torch.int8", "unsupported", claim="unsupported", reason="no kernel"),
    compat.row("torch.int4", "not measurable", reason="no GPU", on_cpu="supported"),
    tested=compat.ROCM,
)
ROWS = (
    ("torch.half", "2.3", "✅ supported", "✅ supported, on gfx942", "1.2"),
    ("torch.bool", "2.3", "✅ supported", "⚠️ partial", "addition: a wrong sum"),
    ("torch.int8", "2.3", "❌ unsupported", "❌ unsupported", "no kernel"),
    ("torch.int4", "2.3", "✅ supported", "not measurable here", "no GPU; on the CPU: supported"),
)
COLUMNS = ("Data type", "Since PyTorch", "Page says", "Measured", "What was seen")


@pytest.mark.parametrize("text", [report.as_rst(FOUND), report.as_markdown(FOUND)], ids=["rst", "markdown"])
def test_the_tables_say_what_was_measured(text: str) -> None:
    assert "Data types" in text.splitlines() + [line.removeprefix("### ") for line in text.splitlines()]
    assert rows_of(text) == [COLUMNS, *ROWS]
    assert "1 supported, 1 partial, 1 unsupported, 1 not measurable" in text


def test_the_page_says_what_was_looked_at() -> None:
    found = compat.report(tested=compat.CPU)
    assert report.summary(found)[0] == f"torch 2.9.1+cpu, built for the CPU from commit {'c' * 40}"
    assert "GPUs: none" in report.as_markdown(found)


def test_what_failed_on_the_cpu_is_said() -> None:
    checks = (report.Check(what="addition", outcome="failed", reason="no kernel", essential=False),)
    measured = report.Measured(support="not measurable", reason="no GPU", on_cpu="partial", checks=checks)
    assert report.seen(measured) == "no GPU; on the CPU: partial (addition: no kernel)"


def test_nothing_in_a_report_is_markup() -> None:
    found = compat.report(compat.row(HOSTILE, "unsupported", reason=HOSTILE, found=HOSTILE))
    for text in (report.as_rst(found), report.as_markdown(found)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    # Each special character stands behind a backslash, in which both languages have it as itself.
    (_, row) = rows_of(report.as_markdown(found))
    assert len(row) == len(COLUMNS)
    assert not list(parse(report.as_html(found).encode()).all("b"))


def test_html_has_every_row_and_its_checks() -> None:
    checks = (report.Check(what="addition", outcome="failed", reason="a <b> sum", essential=False),)
    measured = report.Measured(support="partial", reason="addition", checks=checks)
    row = report.ReportRow(cells=("torch.bool", "2.3"), claim="supported", measured=measured)
    page = parse(report.as_html(compat.report(row)).encode())
    assert [cell.text for cell in page.one("thead").all("th")] == list(COLUMNS)
    assert page.one("tbody").one("tr").attributes["class"] == "less"
    assert "addition: failed, not essential: a <b> sum" in page.one("tbody").one("li").text


def test_a_report_is_written_in_every_form_and_read_again(tmp_path: Path) -> None:
    evidence.write(tmp_path, FOUND)
    names = ["compat.html", "compat.json", "compat.md", "compat.rst", "junit.xml"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert report.read(tmp_path) == report.read(tmp_path / "compat.json") == FOUND


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("- a", r"\- a"),
        ("1. a", r"\1. a"),
        (".. note:: a", r"\.. note\:\: a"),
        ("====", r"\===="),
        ("a::", r"a\:\:"),
        ("2.9.1", "2.9.1"),
    ],
)
def test_a_cell_is_no_list_and_no_directive(text: str, written: str) -> None:
    # Tried with docutils 0.23, which warns of nothing here and shows each text as it was.
    found = report.as_rst(compat.report(compat.row(text, "supported")))
    assert f"    * - {written}\n" in found


def test_html_has_contents_and_a_filter_that_only_the_page_itself_may_run() -> None:
    """Without a script the whole page is there, and no field that would do nothing."""
    root = parse(report.as_html(FOUND).encode())
    targets = [link.attributes["href"].removeprefix("#") for link in root.one("nav").all("a")]
    assert targets
    assert targets == [table.attributes["id"] for table in root.all("table")]
    assert "hidden" in root.one("div", class_="search").attributes
    assert not [one for one in root.all("tr") if "hidden" in one.attributes]
    script = root.one("script").text
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(m.attributes["content"] for m in root.all("meta") if "http-equiv" in m.attributes)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
