"""Ids of tests are exact, and a pattern's star stands for whole parts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import UsageError
from cairn.testing.skips import ids
from cairn.testing.skips.plugin import Match, Matcher


def test_an_id_as_pytest_writes_it() -> None:
    for text in (
        "test_nn.py",
        "nn/test_convolution.py",
        "test_nn.py::TestNN::test_print",
        "distributed/_shard/test_a-b.py::test_free",
        "test_x.py::TestOuter::TestInner::test_print",
        "test_x.py::test_add[a-b::c[0]*]",
    ):
        assert ids.check(text) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin with a file"),
        ("test_print", "does not begin with a file"),
        ("TestNN::test_print", "does not begin with a file"),
        ("/home/test_nn.py::test_a", "does not begin with a file"),
        ("../test_nn.py::test_a", "does not begin with a file"),
        ("./test_nn.py::test_a", "does not begin with a file"),
        ("nn/./test_nn.py::test_a", "does not begin with a file"),
        ("a\\test_nn.py::test_a", "does not begin with a file"),
        ("test_nn.py::", "empty part"),
        ("test_nn.py::TestNN::", "empty part"),
        ("test_nn.py::::test_a", "empty part"),
        ("test_nn.py::TestNN::test_a ", "does not end"),
        ("test_nn.py::test_a[b", "does not end"),
        ("test_nn.py[b]", "does not end"),
        ("test_nn.py::TestNN::test_*", "a star, and an id is exact"),
    ],
)
def test_what_is_no_id(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        ids.check(text)


def matches(pattern: str, test: str) -> bool:
    compiled = ids.compile_pattern(pattern)
    plan = {"tests": [], "modules": [], "patterns": [{"prefix": compiled.prefix, "regex": compiled.regex}]}
    return Matcher([plan]).find(test) is not None


@pytest.mark.parametrize(
    ("pattern", "test", "expected"),
    [
        ("test_a.py::TestA::test_out_*", "test_a.py::TestA::test_out_add", True),
        ("test_a.py::TestA::test_out_*", "test_a.py::TestA::test_out_add_cuda_float32", True),
        ("test_a.py::TestA::test_out_*", "test_a.py::TestA::test_out__refs_add", True),
        ("test_a.py::TestA::test_out_*", "test_a.py::TestA::test_out", False),
        ("test_a.py::TestA::test_out_*", "test_a.py::TestA::test_out_", False),
        ("test_a.py::TestA::test_out_*", "test_a.py::TestA::test_outer_add", False),
        ("test_a.py::TestA::test_out_*", "test_a.py::TestAB::test_out_add", False),
        ("test_a.py::TestA::test_out_*", "b/test_a.py::TestA::test_out_add", False),
        ("test_a.py::TestA::test_out_*", "test_a.py::TestA::test_out_add[x]", False),
        ("test_a.py::TestA::test_*_cuda", "test_a.py::TestA::test_add_scalar_cuda", True),
        ("test_a.py::TestA::test_*_cuda", "test_a.py::TestA::test_cuda", False),
        ("test_a.py::TestA::test_*_cuda", "test_a.py::TestA::test_add_cuda_float32", False),
        ("test_a.py::TestA::*", "test_a.py::TestA::test_add[cpu-float32]", True),
        ("test_a.py::TestA::*", "test_a.py::TestB::test_add", False),
        ("test_a.py::*::test_add", "test_a.py::TestB::test_add", True),
        ("test_a.py::*::test_add", "test_a.py::test_add", False),
        ("test_a.py::*::test_add", "test_a.py::Outer::Inner::test_add", False),
        ("test_a.py::Outer::*::test_add", "test_a.py::Outer::Inner::test_add", True),
        ("test_a.py::test_add[*]", "test_a.py::test_add[cpu::x]", True),
        ("test_a.py::test_add[*]", "test_a.py::test_add[cpu-float32]", True),
        ("test_a.py::test_add[*]", "test_a.py::test_add", False),
        ("test_a.py::test_add[cpu-*]", "test_a.py::test_add[cpu-float32]", True),
        ("test_a.py::test_add[cpu-*]", "test_a.py::test_add[cpuless-float32]", False),
        ("test_a.py::test_add[*-float32]", "test_a.py::test_add[cuda-x-float32]", True),
        ("test_a.py::test_a.d_*", "test_a.py::test_axd_y", False),
        ("a/*::TestA::test_out", "a/test_a.py::TestA::test_out", True),
        ("a/*::TestA::test_out_*", "a/b/test_a.py::TestA::test_out_add", True),
        ("a/*::*::test_out", "a/b/test_a.py::TestA::test_out", True),
        ("a/*::TestA::test_out", "ab/test_a.py::TestA::test_out", False),
        ("a/*::TestA::test_out", "a/test_a.py::TestB::TestA::test_out", False),
        ("a/*::TestA::test_out", "a/test_a.py::TestA::test_outer", False),
    ],
)
def test_a_star_takes_whole_parts(pattern: str, test: str, *, expected: bool) -> None:
    assert matches(pattern, test) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("test_a.py::TestA::test_out*", "not a whole part"),
        ("test_a.py::TestA::*out", "not a whole part"),
        ("test_a.py::Test*::test_out", "not a whole part"),
        ("test_a.py::TestA::test_**", "not a whole part"),
        ("test_a.py::test_a[x*]", "not a whole part"),
        ("test_a.py::TestA::test_out", "no star"),
        ("test_a.py::*::test_*_a_*_b_*_c_*", "more than 4 stars"),
        ("*", "does not begin with a file"),
        ("a/*::test_out", "does not begin with a file"),
        ("a/*::*::test_out_*", "does not begin with a file"),
        ("*/test_a.py::TestA::test_out", "does not begin with a file"),
        ("../*::TestA::test_out", "does not begin with a file"),
        ("test_*.py::TestA::test_out", "does not begin with a file"),
    ],
)
def test_what_is_no_pattern(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        ids.compile_pattern(text)


WORDS = st.lists(st.sampled_from(["a", "b", "ab", "cuda"]), min_size=1, max_size=4)


@given(pattern=WORDS, test=WORDS, star=st.integers(0, 3))
def test_a_star_is_one_or_more_words(pattern: list[str], test: list[str], star: int) -> None:
    at = star % len(pattern)
    before, after = pattern[:at], pattern[at + 1 :]
    expected = len(test) >= len(pattern) and test[:at] == before and test[len(test) - len(after) :] == after
    text = "_".join(["test", *before, "*", *after])
    assert matches(f"t.py::T::{text}", f"t.py::T::{'_'.join(['test', *test])}") is expected


def test_a_folder_stands_for_the_files_below_it() -> None:
    names = ("a/*::TestA::test_out", "a.py::TestA::test_*", "b.py")
    assert [ids.is_of(name, "a/b/test_c.py") for name in names] == [True, False, False]
    assert [ids.is_of(name, "a.py") for name in names] == [False, True, False]


def test_what_may_have_been_meant() -> None:
    known = {
        "test_nn.py": ("test_nn.py::TestNN::test_print", "test_nn.py::TestNN::test_add[a]"),
        "test_torch.py": (),
    }
    assert ids.similar("test_nn.py::TestNN::test_add", known).endswith("test_nn.py::TestNN::test_add[*]?")
    assert (
        ids.similar("test_nn.py::TestMM::test_print", known) == "did you mean test_nn.py::TestNN::test_print?"
    )
    assert ids.similar("test_nn.py::TestNN::test_prin", known) == "did you mean test_print?"
    assert ids.similar("test_nn.py::TestNN::test_far_away", known) == ""
    assert "no test was collected from test_x.py" in ids.similar("test_x.py::test_a", known)


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_patterns_the_first_matches(order: int) -> None:
    compiled = [ids.compile_pattern(text) for text in ("test_a.py::*", "test_a.py::test_out_*")[::order]]
    patterns = [{"prefix": one.prefix, "regex": one.regex} for one in compiled]
    plans = [{"tests": [], "modules": [], "patterns": [one]} for one in patterns]
    assert Matcher(plans).find("test_a.py::test_out_add") == Match(entry=0, pattern=0)
    together = {"tests": [], "modules": [], "patterns": patterns}
    assert Matcher([together]).find("test_a.py::test_out_add") == Match(entry=0, pattern=0)
