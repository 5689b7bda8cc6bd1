"""The list of rows is whole, and each row can be measured or says why not."""

import ast
import functools
from collections import Counter
from pathlib import Path

from cairn.testing import compat
from cairn.testing.compat import report

PROBES = Path(compat.__file__).parent / "probes"
TABLES = report.load_rows()
ROWS = [(table, row) for table in TABLES for row in table.rows]

# As the pages have them: the rows of each table, in order.
ON_THE_PAGES = {
    "pytorch-compatibility.rst": (8, 20, 22, 11, 8, 2, 3, 2, 2, 4, 4, 15),
    "pytorch-compatibility-short.rst": (7, 4),
    "pytorch-build-readme.md": (5, 5),
}
SECTIONS_OF_HIP_SEMANTICS = 9
LIBRARIES_WITHOUT_A_TABLE = ("torchtext", "torchtune", "torchserve", "torchrec")


def test_every_table_of_the_pages_is_there_with_every_row() -> None:
    for page, counts in ON_THE_PAGES.items():
        assert tuple(len(t.rows) for t in TABLES if t.page == page and t.of_page) == counts
    assert sum(map(sum, ON_THE_PAGES.values())) == sum(len(t.rows) for t in TABLES if t.of_page) == 122


def test_what_the_pages_say_outside_of_tables_is_there() -> None:
    sections = [t.section for t in TABLES if t.page == "hip-semantics.txt"]
    assert len(sections) == len(set(sections)) == SECTIONS_OF_HIP_SEMANTICS
    outside = [t.section for t in TABLES if not t.of_page and t.page != "hip-semantics.txt"]
    assert tuple(outside) == LIBRARIES_WITHOUT_A_TABLE


def test_a_row_has_a_name_of_its_own() -> None:
    assert max(Counter(table.id for table in TABLES).values()) == 1
    assert max(Counter((table.id, row.name) for table, row in ROWS).values()) == 1


def test_each_row_is_measured_or_says_why_not() -> None:
    for table, row in ROWS:
        place = f"{table.id}/{row.name}"
        assert len(row.cells) == len(table.columns), place
        assert all(row.cells), place
        assert bool(row.probe) != bool(row.why_not or table.why_not), place
        if row.probe:
            name, *arguments = row.probe.split()
            assert probes()[name] == len(arguments), f"{place}: {name} takes {probes()[name]} arguments"


@functools.cache
def probes() -> dict[str, int]:
    """The probes by name, each with how many arguments it takes; read, not imported: they import torch."""
    found = {}
    for path in PROBES.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                found[f"{path.stem}.{node.name}"] = len(node.args.args) - 1
    return found


def test_no_probe_is_without_a_row() -> None:
    assert set(probes()) - {row.probe.split()[0] for _, row in ROWS if row.probe} == {"harness.describe"}
