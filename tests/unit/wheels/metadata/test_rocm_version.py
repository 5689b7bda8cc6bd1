from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from cairn.errors import WheelError
from cairn.wheels.metadata.rocm_version import (
    again,
    channel_of,
    promote,
    rocm_version_of,
    sorts_above,
    suffix,
    with_rocm,
    with_suffix,
    without_again,
)
from helpers.wheels import RELEASES, rocm_versions


@pytest.mark.parametrize(
    ("rocm", "expected", "channel"),
    [
        ("7.10.0", "+rocm7.10.0", "stable"),
        ("7.10.0a20251124", "+rocm7.10.0a20251124", "nightly"),
        ("7.10.0rc2", "+rocm7.10.0rc2", "prerelease"),
        ("7.10.0.dev0+efed3c", "+devrocm7.10.0.dev0-efed3c", "dev"),
        ("7.10.0.dev0", "+devrocm7.10.0.dev0", "dev"),
        ("7.14.0a20260811+bkc.20260813", "+rocm7.14.0a20260811-bkc.20260813", "nightly-bkc"),
        ("10.1.0a20260811+bkc.20260813", "+rocmv.10.1.0.a.20260811.bkc.20260813", "nightly-bkc"),
        ("9.9", "+rocm9.9", "stable"),
        ("10.0", "+rocmv.10.0.0.0", "stable"),
        ("10.0.0rc1", "+rocmv.10.0.0.rc.1", "prerelease"),
        ("10.0.0a20270101", "+rocmv.10.0.0.a.20270101", "nightly"),
        ("10.0.0.post1", "+rocmv.10.0.0.0.post.1", "stable"),
        ("10.0.0.1", "+rocmv.10.0.0.1.0", "stable"),
        ("10.0.0.dev0+efed3c", "+devrocmv.10.0.0.dev.0.efed3c", "dev"),
    ],
)
def test_suffix_by_channel(rocm: str, expected: str, channel: str) -> None:
    assert suffix(rocm) == expected
    assert channel_of(rocm) == channel
    assert Version(rocm_version_of(f"2.9.0{expected}") or "0") == Version(rocm)


NONE = [
    "1!7.0",
    "7.0a1.dev2",
    "7.0+local",
    "seven",
    "",
    "7.0\n",
    "7.0a1+local",
    "7.0a1+bkc",
    "7.0a1+bkc.2026",
]
NONE += ["7.0+bkc.20260813", "7.0rc1+bkc.20260813", "7.0a1+bkc.20260813.1"]


@pytest.mark.parametrize("rocm", NONE)
def test_versions_of_no_channel_are_refused(rocm: str) -> None:
    with pytest.raises(WheelError):
        suffix(rocm)


def test_a_commit_and_a_local_part_stay_before_the_suffix() -> None:
    assert with_suffix("2.12.0a0+git1a2b3c4d", "+rocm7.10.0") == "2.12.0a0+git1a2b3c4d.rocm7.10.0"
    assert with_suffix("2.9.0", "+devrocm7.10.0.dev0-efed3c") == "2.9.0+devrocm7.10.0.dev0-efed3c"
    assert with_suffix("2.9.0", "") == "2.9.0"
    with pytest.raises(WheelError):
        with_suffix("2.9.0", "+ü")


@pytest.mark.parametrize("version", ["2.9.0", "2.9.0+cpu", "2.9.0+git1a2b", "2.9.0+rocm", "2.9.0+rocmx.y"])
def test_other_versions_name_no_rocm(version: str) -> None:
    assert rocm_version_of(version) is None


@given(rocm_versions(), st.sampled_from([None, "1a2b3c4d"]))
def test_round_trip(rocm: str, commit: str | None) -> None:
    version = with_suffix(f"2.9.0+git{commit}" if commit else "2.9.0", suffix(rocm))
    assert Version(rocm_version_of(version) or "0") == Version(rocm)
    assert rocm_version_of(str(Version(version))) == rocm_version_of(version)


@given(rocm_versions(first_major=10), rocm_versions(first_major=10))
def test_from_rocm_10_on_pip_sorts_as_rocm_does(first: str, second: str) -> None:
    if (channel_of(first) == "dev") != (channel_of(second) == "dev"):
        return
    one, other = (Version("2.9.0" + suffix(text)) for text in (first, second))
    a, b = (Version(Version(text).public) for text in (first, second))
    if a != b:
        assert (one < other) == (a < b)
    elif not Version(first).local and not Version(second).local:
        assert one == other


@given(rocm_versions(), rocm_versions(first_major=10))
def test_rocm_10_sorts_above_all_before_it(old: str, new: str) -> None:
    if Version(old).major < 10 and (channel_of(old) == "dev") == (channel_of(new) == "dev"):
        assert Version("2.9.0" + suffix(old)) < Version("2.9.0" + suffix(new))


@given(RELEASES)
def test_stable_above_prerelease_above_nightly_above_dev(release: tuple[int, int, int]) -> None:
    base = ".".join(map(str, release))
    stages = (base + ".dev0+abc", base + "a20251124", base + "rc1", base)
    versions = [Version("2.9.0" + suffix(text)) for text in stages]
    assert versions == sorted(versions)
    assert len(set(versions)) == 4


@given(RELEASES)
def test_a_best_known_configuration_is_between_its_nightly_and_the_next(
    release: tuple[int, int, int],
) -> None:
    base = ".".join(map(str, release))
    stages = ("a20260811", "a20260811+bkc.20260813", "a20260811+bkc.20260814", "a20260812", "rc1")
    versions = [Version("2.9.0" + suffix(base + stage)) for stage in stages]
    assert versions == sorted(versions)
    assert len(set(versions)) == 5


@given(RELEASES)
def test_a_build_of_the_same_version_is_above_the_one_before_and_below_the_next(
    release: tuple[int, int, int],
) -> None:
    base, patch = ".".join(map(str, release)), ".".join(map(str, (*release[:2], release[2] + 1)))
    for stages in (
        (base, patch),
        (base + "a20260811", base + "a20260811+bkc.20260813", base + "a20260812", base),
    ):
        first, *later = (f"2.9.0{suffix(stage)}" for stage in stages)
        marked = [again(first, number) for number in (0, 1, 2, 10)]
        versions = [Version(text) for text in (*marked, *later)]
        assert versions == sorted(versions)
        assert len(set(versions)) == len(versions)
        assert [without_again(text) for text in marked] == [(first, number) for number in (0, 1, 2, 10)]
        assert {rocm_version_of(text) for text in marked} == {rocm_version_of(first)}


def test_the_mark_of_a_later_build_stays_with_its_stage() -> None:
    assert promote("2.9.0+rocm7.10.0a20251124.again.2", "rc1") == "2.9.0+rocm7.10.0rc1"
    assert with_rocm("2.9.0+git1a2b.again.1", "7.10.0") == "2.9.0+git1a2b.rocm7.10.0"
    assert with_rocm("2.9.0+again.1", "7.10.0") == "2.9.0+rocm7.10.0"
    assert again("1.0", 1) == "1.0+again.1"
    assert again("", 1) == "+again.1"


def test_upstreams_way_to_write_rocm_10_is_read_and_promoted() -> None:
    theirs = "2.13.0+rocm10.1.0a20260811.bkc.20260813"
    assert rocm_version_of(theirs) == "10.1.0a20260811+bkc.20260813"
    assert promote(theirs, "rc1") == "2.13.0+rocmv.10.1.0.rc.1"
    assert with_rocm(theirs, "10.1.0") == "2.13.0+rocmv.10.1.0.0"


@given(RELEASES, RELEASES)
def test_final_releases_sort_by_number_in_each_scheme(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    first, second = (Version("2.9.0" + suffix(".".join(map(str, r)))) for r in (one, other))
    assert (first < second) == (one < other)


def test_promotion() -> None:
    nightly = "2.12.0a0+git1a2b3c4d.rocm7.13.0a20260430"
    candidate = promote(nightly, "rc1")
    assert candidate == "2.12.0a0+git1a2b3c4d.rocm7.13.0rc1"
    assert promote(candidate, "final") == "2.12.0a0+git1a2b3c4d.rocm7.13.0"
    assert promote("7.13.0a20260430", "rc2") == "7.13.0rc2"
    assert promote("2.9.0+rocmv.10.0.0.a.20270101", "final") == "2.9.0+rocmv.10.0.0.0"


@pytest.mark.parametrize(
    ("version", "stage"),
    [
        ("2.9.0+rocm7.13.0", "rc1"),
        ("2.9.0+rocm7.13.0", "final"),
        ("2.9.0+rocm7.13.0rc2", "rc1"),
        ("2.9.0+devrocm7.13.0.dev0-abc", "final"),
        ("2.9.0+rocm7.13.0a1", "beta"),
        ("2.9.0+rocm7.13.0a1", "rc"),
        ("2.9.0+rocm7.13.0a1", "rc²"),
        ("2.9.0+rocm7.13.0a1", "rc" + "9" * 5000),
        ("2.9.0+cpu", "final"),
        ("x", "final"),
    ],
)
def test_promotion_only_goes_forward(version: str, stage: str) -> None:
    with pytest.raises(WheelError):
        promote(version, stage)


@given(rocm_versions())
def test_promotion_ends_at_the_final_release(rocm: str) -> None:
    version = "2.9.0" + suffix(rocm)
    if channel_of(rocm) in ("nightly", "nightly-bkc", "prerelease"):
        final = promote(version, "final")
        assert final == "2.9.0" + suffix(Version(rocm).base_version)
        assert sorts_above(final, [version]) is None


@pytest.mark.parametrize(
    ("new", "existing", "why"),
    [
        ("2.12.0+rocm10.0", "2.12.0+rocm7.0", "write it 2.12.0+rocmv.10.0.0.0"),
        ("2.12.0+rocm.10.0", "2.12.0+rocm7.0", "as text"),
        ("2.12.0+rocm7.2", "2.12.0+rocm7.10", "2 is less than 10"),
        ("2.12.0+rocm7.10.1a20260101", "2.12.0+rocm7.10.0", "a number such as '0'"),
        ("2.12.0+rocm7.10.0rc10", "2.12.0+rocm7.10.0rc9", "as text"),
        ("2.12.0", "2.12.0+rocm7.0", "no segment to compare with"),
        ("2.11.0+rocm7.0", "2.12.0+rocm7.0", "2.11.0 is older than 2.12.0"),
        ("2.12.0+rocm7.0.dev1", "2.12.0+rocm7.0.0", "a number"),
    ],
)
def test_a_version_that_sorts_below_is_explained(new: str, existing: str, why: str) -> None:
    reason = sorts_above(new, ["2.0", existing])
    assert reason is not None
    assert why in reason
    assert existing in reason


@given(st.lists(rocm_versions()), rocm_versions())
def test_the_answer_is_pips_order(existing: list[str], new: str) -> None:
    there = ["2.9.0" + suffix(text) for text in existing]
    version = "2.9.0" + suffix(new)
    above = all(Version(text) <= Version(version) for text in there)
    assert (sorts_above(version, there) is None) == above


def test_an_equal_version_and_an_empty_index_are_fine() -> None:
    assert sorts_above("2.9.0+rocm7.10.0", ["2.9.0+rocm7.10.0", "2.9.0"]) is None
    assert sorts_above("2.9.0", []) is None
