"""skip-tests/*.toml: what is invalid is said, all of it at once, and stops the run."""

import re
from datetime import date
from pathlib import Path

import pytest

from cairn.errors import ProblemsError, UsageError
from cairn.testing.skips import select, skip_files
from cairn.testing.skips.conditions import RunFacts
from cairn.testing.skips.skip_files import Listed

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "skip-tests.md"
# Not the shipped skip list: what the reader refuses. `cairn test skips lint` reads the shipped one.
SCHEMA = 'schema = "cairn.skips/1"\n'
WHY = 'reason = "it hangs"\nowner = "rocm-pytorch"\nexpires = 2027-06-30\n'
TODAY = date(2026, 11, 22)


def entry(tests: str, more: str = "", why: str = WHY) -> str:
    return f"[[skips]]\ntests = {tests}\n{more}{why}"


def read(tmp_path: Path, *files: str) -> tuple[Listed, ...]:
    folder = tmp_path / "skip-tests"
    folder.mkdir()
    for number, text in enumerate(files):
        (folder / f"{number}.toml").write_text(SCHEMA + text, encoding="utf-8")
    return skip_files.read([folder])


def test_entries_come_in_the_order_of_their_files(tmp_path: Path) -> None:
    found = read(tmp_path, entry('["a.py::test_a"]') + entry('["a.py::test_b"]'), entry('["a.py::test_c"]'))
    assert [str(listed) for listed in found] == [
        "0.toml, entry 1 (a.py::test_a)",
        "0.toml, entry 2 (a.py::test_b)",
        "1.toml, entry 1 (a.py::test_c)",
    ]
    assert found[0].entry.expires == date(2027, 6, 30)


def test_a_folder_without_files_is_an_error_and_a_file_without_entries_is_not(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no \*\.toml"):
        skip_files.read([tmp_path])
    (tmp_path / ".generic.toml.swp.toml").touch()  # an editor's own
    with pytest.raises(UsageError, match=r"has no \*\.toml"):
        skip_files.read([tmp_path])
    assert read(tmp_path, "") == ()
    with pytest.raises(UsageError, match="cannot read"):
        skip_files.read([tmp_path / "generic.toml"])


@pytest.mark.parametrize(
    ("text", "said", "tip"),
    [
        (entry('["a.py::test_a"]', 'isue = "x"\n'), "unknown field `isue`", "issue"),
        (entry('["a.py::test_a"]', 'when = { familly = ["gfx942"] }\n'), "unknown field `familly`", "family"),
        (entry('["a.py::test_a"]', 'when = { platform = ["macos"] }\n'), "'macos'", ""),
        (entry('["a.py::test_a"]', why='reason = "x"\nexpires = 2027-06-30\n'), "required field `owner`", ""),
        (entry('["a.py::test_a"]', why='reason = "x"\nowner = "y"\nexpires = "soon"\n'), "expires", ""),
        (entry('"a.py::test_a"'), "expected `array`", ""),
        ('[[skip]]\ntests = ["a.py::test_a"]\n' + WHY, "unknown field `skip`", "skips"),
    ],
)  # fmt: skip
def test_a_mistyped_key_is_named(tmp_path: Path, text: str, said: str, tip: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert tip in str(caught.value.tip)


def problems(tmp_path: Path, *files: str) -> list[str]:
    with pytest.raises(ProblemsError) as caught:
        read(tmp_path, *files)
    return [str(problem) for problem in caught.value.problems]


def test_all_that_cannot_be_meant_is_said_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        entry('["test_print"]')
        + entry('["a.py::test_*"]')
        + entry("[]")
        + entry('["a.py::test_a"]', 'patterns = ["a.py::T::test_b*"]\n'),
        entry('["a.py::test_c"]', 'when = { family = ["gfx9"] }\n')
        + entry('["a.py::test_d"]', why=WHY.replace("it hangs", " ")),
    )
    assert [text.partition(": ")[0] for text in found] == [
        "0.toml, entry 1 (test_print)",
        "0.toml, entry 2 (a.py::test_*)",
        "0.toml, entry 3 () names no test",
        "0.toml, entry 4 (a.py::test_a and 1 more)",
        "1.toml, entry 1 (a.py::test_c)",
        "1.toml, entry 2 (a.py::test_d) has an empty reason",
    ]


def test_a_test_named_again_is_refused_with_both_places(tmp_path: Path) -> None:
    twice = entry('["a.py::test_a"]') + entry('["a.py::test_a"]', 'when = { torch = "==2.13.*" }\n')
    in_one = entry('["c.py::test_a", "c.py::test_a"]')
    in_file = entry('["b.py::test_a"]') + entry('["b.py"]') + entry('["d.py::test_a"]')
    found = problems(tmp_path, twice + in_one, in_file)
    for said, expected in zip(
        found,
        (
            "0.toml, entry 2 (a.py::test_a) names a.py::test_a again, after 0.toml, entry 1",
            "names c.py::test_a again",
            "entry 1 (b.py::test_a) names b.py::test_a, and 1.toml, entry 2 (b.py) its whole file",
        ),
        strict=True,
    ):
        assert expected in said
    (tmp_path / "imported").mkdir()
    (tmp_path / "imported" / "generic.toml").write_text(SCHEMA + entry('["d.py::test_a"]'))
    with pytest.raises(ProblemsError) as caught:
        skip_files.read([tmp_path / "skip-tests", tmp_path / "imported"])
    place = f"{tmp_path}/skip-tests/1.toml, entry 3"
    assert any(f"again, after {place}" in str(problem) for problem in caught.value.problems)


def test_one_test_may_have_an_entry_for_each_line(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        entry('["a.py::test_a"]', 'when = { torch = "==2.12.*" }\n'),
        entry('["a.py::test_a"]', 'when = { torch = "==2.13.*" }\n'),
    )
    chosen = select.select(found, RunFacts(torch="2.13.0+rocm7.10"), today=TODAY)
    assert chosen.entries == found[1:]
    assert chosen.remarks == ()


def test_a_run_says_what_may_be_missing(tmp_path: Path) -> None:
    found = read(tmp_path, entry('["a.py::test_a"]', 'when = { torch = "==2.12.*" }\n'))
    chosen = select.select(found, RunFacts(torch="2.14.0a0"), today=TODAY)
    assert chosen.entries == ()
    assert chosen.remarks == (
        "nothing is left out: none of the 1 entries applies to this run",
        "no entry is for torch 2.14: the conditions on torch are ==2.12.*",
    )
    assert select.select((), RunFacts(), today=TODAY).remarks == ("nothing is left out: there is no entry",)


def test_an_expired_entry_still_holds_and_is_named(tmp_path: Path) -> None:
    found = read(tmp_path, entry('["a.py::test_a"]') + entry('["nn/b.py"]'))
    last = select.select(found, RunFacts(), today=date(2027, 6, 30))
    assert not last.expired
    over = select.select(found, RunFacts(), today=date(2027, 7, 1))
    assert over.entries == over.expired == found
    assert over.modules == ("nn/b.py",)


def test_the_page_shows_a_file_that_can_be_read(tmp_path: Path) -> None:
    text, *_ = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "page.toml").write_text(text, encoding="utf-8")
    found = skip_files.read([tmp_path])
    assert [len(each.entry.names) for each in found] == [3, 1]
    assert skip_files.__doc__ is not None
    (tmp_path / "page.toml").write_text(re.sub("(?m)^    ", "", skip_files.__doc__.partition("\n")[2]))
    assert [each.entry.unresolved for each in skip_files.read([tmp_path])] == [False, True]


def test_our_own_skips_can_be_read_and_are_for_gpus_or_old_releases() -> None:
    entries = skip_files.read([ROOT / "external-builds" / "pytorch" / "skip-tests"])
    on_cpu = select.select(entries, RunFacts(targets=("cpu",), torch="2.13.0"), today=TODAY)
    assert on_cpu.entries == ()
    old = select.select(entries, RunFacts(targets=("cpu",), torch="2.7.0a0+cpu"), today=TODAY)
    assert {one.entry.reason.partition(",")[0] for one in old.entries} == {
        "it calls numpy.trapz",
        "scipy 1.17",
    }
    counts = {
        torch: select.select(
            entries, RunFacts(targets=("gfx942",), platform="linux", torch=torch), today=TODAY
        ).counts
        for torch in ("2.7.0", "2.12.0", "2.13.0")
    }
    assert counts == {
        "2.7.0": {"ids": 24, "patterns": 3, "unresolved patterns": 0},
        "2.12.0": {"ids": 6, "patterns": 0, "unresolved patterns": 141},
        "2.13.0": {"ids": 6, "patterns": 0, "unresolved patterns": 30},
    }


def test_an_unresolved_entry_has_a_pattern_and_a_range_of_torch(tmp_path: Path) -> None:
    pattern, torch = 'patterns = ["a.py::*::test_a"]\n', 'when = { torch = ">=2.8" }\n'
    unresolved = "unresolved = true\n"
    whole = f"[[skips]]\n{pattern}{torch}{unresolved}{WHY}"
    found = problems(
        tmp_path,
        f"[[skips]]\n{pattern}{unresolved}{WHY}"
        f'[[skips]]\ntests = ["a.py::test_b"]\n{torch}{unresolved}{WHY}'
        + entry('["a.py::test_c"]', 'source = "generic.py"\n'),
    )
    assert [text.partition(")")[2] for text in found] == [
        " is unresolved for every torch",
        " is unresolved and has exact ids",
        " has a source without a commit",
    ]
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.toml").write_text(SCHEMA + whole + entry('["b.py::test_b"]'), encoding="utf-8")
    assert [listed.entry.unresolved for listed in skip_files.read([tmp_path / "more"])] == [True, False]
