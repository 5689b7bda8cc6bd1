"""Findings that are known and let through."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.wheels.verify import findings
from helpers.formats import make_elf
from helpers.wheels import LINUX, MakeWheel, cairn_wheel

ENTRY = """schema = "cairn.allow/1"
[[finding]]
wheel = "demo-*.whl"
code = "rpath"
member = "demo/bin/*.so"
reason = "nobody starts them"
"""


@pytest.fixture
def wheel(make_wheel: MakeWheel) -> Path:
    binary = make_elf(runpath="/opt/x")
    files = {"demo/bin/a.so": binary, "demo/bin/b.so": binary, "demo/c.so": binary}
    return make_wheel(tags=LINUX, files=files)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write_(text: str) -> Path:
        path = tmp_path / "allow.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_


def test_what_is_allowed_is_told_and_does_not_fail(
    wheel: Path, write: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn_wheel("verify", "--allow", write(ENTRY), wheel) == 7
    text = capsys.readouterr().out
    assert "1 finding, 2 allowed" in text
    assert "[rpath] demo/bin/*.so: allowed, nobody starts them" in text
    assert "[rpath] demo/c.so: it looks" in text
    every = write(ENTRY.replace("demo/bin/*.so", "demo/*"))
    assert cairn_wheel("verify", "--allow", every, wheel) == 0
    assert "good, 3 allowed" in capsys.readouterr().out
    assert cairn_wheel("verify", "--json", "--allow", every, wheel) == 0
    assert json.loads(capsys.readouterr().out) == {
        str(wheel): {"findings": [], "notes": [], "not_checked": []}
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("demo-*.whl", "torch-*.whl"),
        ('"rpath"', '"needed"'),
        ("demo/bin/*.so", "demo/lib/*.so"),
        ('member = "demo/bin/*.so"\n', ""),
    ],
)
def test_what_lets_nothing_through_is_reported(
    wheel: Path, write: Callable[[str], Path], capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    assert cairn_wheel("verify", "--allow", write(ENTRY.replace(old, new)), wheel) == 7
    told = capsys.readouterr()
    assert "3 findings" in told.out
    assert "allowed" not in told.out
    assert "entry 1: no " in told.err.replace("\n", " ")


def test_an_entry_that_has_expired_counts_no_more(
    wheel: Path, write: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn_wheel("verify", "--allow", write(ENTRY + "expires = 2020-01-31\n"), wheel) == 7
    told = capsys.readouterr()
    assert "3 findings" in told.out
    assert "expired on 2020-01-31" in told.err.replace("\n", " ")
    assert cairn_wheel("verify", "--allow", write(ENTRY + "expires = 2999-01-31\n"), wheel) == 7
    assert "2 allowed" in capsys.readouterr().out


@pytest.mark.parametrize(("days", "allowed"), [(-1, False), (0, True), (1, True)])
def test_an_entry_counts_up_to_its_last_day(
    write: Callable[[str], Path], days: int, *, allowed: bool
) -> None:
    finding = findings.Finding(code=findings.FindingCode.RPATH, member="demo/bin/a.so", reason="", fix="")
    today = date(2027, 1, 31)
    entries = findings.read_allowed([write(ENTRY + f"expires = {today + timedelta(days=days)}\n")])
    wheel = Path("demo-1.0-py3-none-any.whl")
    judged = findings.apply_allowed({wheel: [finding]}, entries, today=today)
    assert (judged.findings[wheel] == ()) == allowed


def test_a_finding_on_the_whole_wheel(make_wheel: MakeWheel, write: Callable[[str], Path]) -> None:
    text = """schema = "cairn.allow/1"
[[finding]]
wheel = "demo-*"
code = "python-tag"
reason = "it is for later"
"""
    wheel = make_wheel(tags=("cp312-cp312-manylinux_2_28_x86_64",))
    assert cairn_wheel("verify", "--python", "3.11", wheel) == 7
    assert cairn_wheel("verify", "--python", "3.11", "--allow", write(text), wheel) == 0
    assert cairn_wheel("verify", "--python", "junk", wheel) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("finding = 3", "has schema None"),
        (ENTRY.replace("/1", "/2"), "has schema 'cairn.allow/2'"),
        (ENTRY + "[other]", "at the top: object contains unknown field `other`"),
        (ENTRY + 'whel = "x"', "at finding[0]: object contains unknown field `whel`"),
        (
            ENTRY.replace('reason = "nobody starts them"\n', ""),
            "at finding[0]: object missing required field `reason`",
        ),
        (ENTRY.replace("nobody starts them", " "), "at finding[0].reason"),
        (ENTRY.replace('"rpath"', '"rpaths"'), "at finding[0].code: invalid enum value 'rpaths'"),
        (ENTRY.replace('"rpath"', '"archive"'), "'archive' cannot be allowed"),
        (ENTRY.replace('"rpath"', "7"), "at finding[0].code"),
        (ENTRY + 'expires = "soon"', "at finding[0].expires"),
        (ENTRY + ENTRY.partition("\n")[2], "entry 2: it repeats"),
        ('schema = "cairn.allow/1"\n[finding]\nwheel = "x"', "at finding: expected `array`"),
        ('schema = "cairn.allow/1"\nfinding = [1]', "at finding[0]: expected `object`"),
        ("[[", "not TOML"),
    ],
)
def test_malformed_files_are_refused(write: Callable[[str], Path], text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        findings.read_allowed([write(text)])
    assert message in str(caught.value)
