"""Pages are read as docutils and GitHub read them, and what differs is named."""

from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.testing.compat import pages
from cairn.testing.compat.rows import Row, RowTable

RST = """\
.. _label:

Types
=====

Prose with a | bar and - a dash.

.. list-table::
    :header-rows: 1

    * - Data type
      - Description
      - Since
    * - ``torch.half`` or ``torch.float16``
      - Sixteen bits,
        in two lines
      - `2.0 <https://example.org/a>`_
    * - ``torch.bool``
      -
      - ❌

After
-----
"""
MARKDOWN = """\
# Projects

| Project | Linux support |
| ------- | ------------- |
| torch   | ✅ Supported (see [#1](https://example.org)) |
| `apex`  | ✅ Using<br><ul><li>more</li></ul> |

not | a | table
"""
TABLE = RowTable(
    id="types",
    page="page.rst",
    section="Types",
    columns=("Data type", "Since"),
    rows=(Row(cells=("torch.half", "2.0")), Row(cells=("torch.bool", "❌"))),
)


def test_a_list_table_is_read_without_its_markup() -> None:
    page = pages.parse(RST)
    assert page.headings == ("Types", "After")
    (table,) = page.tables
    assert table.heading == "Types"
    assert table.columns == ("Data type", "Description", "Since")
    assert table.rows == (("torch.half", "Sixteen bits, in two lines", "2.0"), ("torch.bool", "", "❌"))


def test_a_pipe_table_is_read_without_its_markup() -> None:
    (table,) = pages.parse(MARKDOWN).tables
    assert table.columns == ("Project", "Linux support")
    assert table.rows == (("torch", "✅ Supported (see #1)"), ("apex", "✅ Using"))


def test_a_page_that_says_the_same_has_no_difference() -> None:
    assert pages.differences(pages.parse(RST), [TABLE]) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("``torch.bool``", "``torch.int1``", "only on the page: torch.int1 | ❌"),
        ("- ❌", "- 6.3", "only in the list: torch.bool | ❌"),
        ("Types\n", "Kinds\n", "is in 'Kinds', ours in 'Types'"),
        ("- Since\n", "- From\n", "has the columns Data type, Description, From"),
        (".. list-table::", ".. csv-table::", "the page has 0 tables, the list 1"),
        ("    * - ``torch.bool``\n      -\n      - ❌\n", "", "the page has 1 rows, the list 2"),
    ],
)
def test_what_differs_is_named(old: str, new: str, said: str) -> None:
    assert old in RST
    assert any(said in line for line in pages.differences(pages.parse(RST.replace(old, new)), [TABLE]))


def test_a_section_that_is_gone_is_named() -> None:
    statements = RowTable(
        id="s", page="page.rst", section="Before", columns=("Statement",), of_page=False, rows=()
    )
    assert pages.differences(pages.parse(RST), [statements, TABLE]) == ["the page has no section 'Before'"]


def test_a_page_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.rst").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read as a page"):
        pages.read(tmp_path / "page.rst")
