"""The allowlist: what it takes, and that it names file, line and reason for what it refuses."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.sources.patches import audit

HEAD = 'schema = "cairn.patches/1"\n\n'
ENTRY = """\
[[patch]]
project = "torch"
commit = "0123456789abcdef0123456789abcdef01234567"
why = "Without it nothing links."
upstream = "https://github.com/pytorch/pytorch/pull/7"
owner = "Jö Doe"
expires = 2026-12-31
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "allow list.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_entry(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + ENTRY + 'path = "third_party/fbgemm"\npatch = "' + "a" * 64 + '"\n')
    (entry,) = audit.load_allowlist(path)
    assert (entry.project, entry.path, entry.owner) == ("torch", "third_party/fbgemm", "Jö Doe")
    assert entry.expires == dt.date(2026, 12, 31)
    assert entry.patch == "a" * 64
    assert entry.where == f"{path}:3"


def test_the_date_may_be_text_and_the_file_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    text = "\ufeff" + HEAD + ENTRY.replace("2026-12-31", '"2026-12-31"')
    (entry,) = audit.load_allowlist(written(tmp_path, text.replace("\n", "\r\n")))
    assert entry.expires == dt.date(2026, 12, 31)


def test_the_shipped_one_is_well_formed() -> None:
    path = audit.find_allowlist(Path(__file__))
    assert path is not None
    audit.load_allowlist(path)


def test_it_is_found_from_a_folder_below(tmp_path: Path) -> None:
    path = tmp_path / "patches-policy/allowlist.toml"
    path.parent.mkdir()
    path.write_text(HEAD)
    (tmp_path / "a/b").mkdir(parents=True)
    assert audit.find_allowlist(tmp_path / "a/b") == path


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("commit = ", "commit : ", 5, "Expected '='"),
        ('"0123456789abcdef', '"0123', 5, "commit is '0123"),
        ('why = "Without it nothing links."\n', "", 3, "why is missing"),
        ("expires = 2026-12-31", "expires = 2026-12-31T00:00:00", 9, "expires is"),
        ("expires = 2026-12-31", 'expires = "2026-02-31"', 9, "day is out of range"),
        ("expires = 2026-12-31", "expires = 20261231", 9, "expected a date"),
        ("https://github.com/pytorch/pytorch/pull/7", "soon", 7, "the URL of a pull request"),
        ("owner = ", "ownr = ", 8, "unknown key ownr"),
        ("Jö Doe", "", 8, "owner is ''"),
        ("[[patch]]", "[[patches]]", 3, "unknown key patches"),
        ("[[patch]]", "[patch]", 3, "not an array of tables"),
        ("cairn.patches/1", "cairn.patches/2", 1, "expected 'cairn.patches/1'"),
        ("[[patch]]", "<<<<<<< HEAD\n[[patch]]", 3, "Invalid statement"),
    ],
)
def test_malformed(tmp_path: Path, old: str, new: str, line: int, reason: str) -> None:
    path = written(tmp_path, (HEAD + ENTRY).replace(old, new))
    with pytest.raises(UsageError) as error:
        audit.load_allowlist(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert reason in str(error.value)


def test_the_second_of_two_entries_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + ENTRY + "\n" + ENTRY.replace("torch", "audio", 1).replace("pull/7", "7"))
    with pytest.raises(UsageError, match=r":15: upstream is 'https"):
        audit.load_allowlist(path)


def test_a_duplicate_names_both(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + ENTRY + ENTRY)
    with pytest.raises(UsageError, match=r":10: 0123456789ab is allowed at .*:3 already"):
        audit.load_allowlist(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        audit.load_allowlist(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'schema = "x"\nowner = "J\xf6"\n')
    with pytest.raises(UsageError, match=r"latin\.toml:2: not UTF-8"):
        audit.load_allowlist(tmp_path / "latin.toml")
