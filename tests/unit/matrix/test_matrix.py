"""The matrix that build and test read: what is in it, in which order, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from cairn import stack as stacks
from cairn.errors import UsageError
from cairn.matrix import legs, matrix_toml

ROOT = Path(__file__).parents[3]
STACKS = [ROOT / "external-builds" / name for name in ("pytorch", "sample")]

# Not a shipped matrix: small enough that a test lists its legs. The shipped ones are read below.
CONFIG = """
schema = "cairn.matrix-toml/1"
owner = "ROCm"
[platforms.linux_x86_64]
build = ["big-linux"]
elsewhere = ["ubuntu-24.04"]
[platforms.win_amd64]
build = ["windows-2022"]
[triggers.presubmit]
families = ["gfx110X-all"]
pythons = ["3.12"]
[triggers.nightly]
families = ["gfx1151", "gfx94X-dcgpu"]
lines = ["nightly", "release/2.9"]
pythons = ["3.13", "3.11"]
[families.gfx94X-dcgpu.linux_x86_64]
test = ["self-hosted", "gfx942"]
multi_gpu = ["eight-gfx942"]
[families.gfx110X-all]
win_amd64 = { bypass_tests = true }
[families.gfx110X-all.linux_x86_64]
test = ["gfx1100"]
expect_failure = { issue = "TheRock#1927", until = "2999-12-31" }
push_on_success = false
[families.gfx1151.linux_x86_64]
test = ["ubuntu-24.04"]
"""


def _config(tmp_path: Path, text: str = CONFIG) -> matrix_toml.MatrixToml:
    path = tmp_path / "matrix.toml"
    path.write_text(text, encoding="utf-8")
    return matrix_toml.load_matrix_toml(path, stacks.load(STACKS[0]))


def _make(tmp_path: Path, text: str = CONFIG, **choice: object) -> legs.Matrix:
    chosen = legs.Choice(**{"trigger": "nightly", **choice})  # type: ignore[arg-type]
    stack = stacks.load(STACKS[0])
    return legs.make(stack, _config(tmp_path, text), chosen, stack_path=Path("external-builds/pytorch"))


@pytest.mark.parametrize("old", ["true", "false"])
def test_a_failure_that_is_expected_without_an_issue_says_what_to_write(tmp_path: Path, old: str) -> None:
    known = CONFIG.replace('{ issue = "TheRock#1927", until = "2999-12-31" }', old)
    with pytest.raises(UsageError, match="expect_failure") as refused:
        _config(tmp_path, known)
    assert "write expect_failure = { issue = " in str(refused.value.tip)


def test_a_night_has_what_earlier_triggers_have_in_natural_order(tmp_path: Path) -> None:
    found = _make(tmp_path)
    assert [leg.id for leg in found.legs] == [
        f"{line}-{family}-py{python}-{platform}"
        for line in ("nightly", "release-2.9")
        for family in ("gfx94X-dcgpu", "gfx110X-all", "gfx1151")
        for python in ("3.11", "3.13")
        for platform in ("linux_x86_64", "win_amd64")
        if platform == "linux_x86_64" or family == "gfx110X-all"
    ]
    assert found.lines == ("nightly", "release/2.9")


def test_the_order_of_the_file_changes_nothing(tmp_path: Path) -> None:
    turned = CONFIG.replace('["gfx1151", "gfx94X-dcgpu"]', '["gfx94X-dcgpu", "gfx1151"]')
    assert _make(tmp_path, turned.replace('["3.13", "3.11"]', '["3.11", "3.13"]')) == _make(tmp_path)


def test_a_leg_says_all_that_its_jobs_need(tmp_path: Path) -> None:
    leg = _make(tmp_path, trigger="presubmit").legs[0]
    assert msgspec.to_builtins(leg) == {
        "id": "nightly-gfx110X-all-py3.12-linux_x86_64",
        "name": "nightly gfx110X-all Python 3.12 linux_x86_64",
        "stack": "external-builds/pytorch",
        "line": "nightly",
        "family": "gfx110X-all",
        "targets": "gfx1100,gfx1101,gfx1102,gfx1103",
        "python": "3.12",
        "platform": "linux_x86_64",
        "os": "linux",
        "trigger": "presubmit",
        "build_runs_on": ("big-linux",),
        "test_runs_on": ("gfx1100",),
        "multi_gpu_runs_on": (),
        "expect_failure": True,
        "known_failure": "until 2999-12-31, TheRock#1927",
        "bypass_tests": False,
        "push_on_success": False,
        "suites": (),
        "compat": False,
        "build": "nightly-gfx110X-all-py3.12-linux_x86_64",
        "split": False,
        "host_runs_on": (),
    }


def test_families_that_are_built_together_have_one_build_for_all_their_targets(tmp_path: Path) -> None:
    text = CONFIG.replace(
        'elsewhere = ["ubuntu-24.04"]', 'build_together = true\nelsewhere = ["ubuntu-24.04"]'
    )
    found = _make(tmp_path, text, lines=("nightly",), pythons=("3.11",))
    together, windows = found.builds
    assert (together.id, together.split) == ("nightly-py3.11-linux_x86_64", True)
    assert together.targets == "gfx942,gfx1100,gfx1101,gfx1102,gfx1103,gfx1151"
    assert together.families == ("gfx94X-dcgpu", "gfx110X-all", "gfx1151")
    assert (windows.id, windows.split) == ("nightly-gfx110X-all-py3.11-win_amd64", False)
    # On GitHub's own runners, which have six hours, each family is built by itself.
    fork = _make(tmp_path, text, lines=("nightly",), pythons=("3.11",), owner="somebody")
    assert [(build.families, build.split) for build in fork.builds[:2]] == [
        (("gfx94X-dcgpu",), False),
        (("gfx110X-all",), False),
    ]
    # The legs are what they are without it: each is tested and promoted by itself.
    apart = _make(tmp_path, lines=("nightly",), pythons=("3.11",))
    assert [leg.id for leg in found.legs] == [leg.id for leg in apart.legs]
    assert [build.legs for build in apart.builds] == [(leg.id,) for leg in apart.legs]


def test_the_figures_of_a_night_are_those_of_its_jobs(tmp_path: Path) -> None:
    text = CONFIG.replace('build = ["big-linux"]', 'build = ["big-linux"]\nbuild_together = true')
    together, apart = (
        legs.figures_of(_make(tmp_path, one, lines=("nightly",), pythons=("3.11",)).legs, shards=6)
        for one in (text, CONFIG)
    )
    # freeze, stage, merge, promote and report, and a job for each build, smoke test and shard.
    assert (together.builds, together.tests, together.jobs, together.artifacts) == (
        2,
        4,
        2 + 4 + 6 + 5,
        2 + 4 + 6 + 1,
    )
    assert (apart.builds, apart.jobs, apart.downloads) == (4, together.jobs + 2, 4)
    # A token for each job and a second one for tests, 13 uploads, a list, two downloads, and the beginning.
    assert together.requests == 17 + (4 + 6) + 2 * 13 + 1 + 2 + 2
    assert list(together.limits()) == [
        "nightly: 1 of 2 builds run on GitHub's own runners, which end after 6 hours and have 14 GB of disk",
        "nightly: stage downloads 2 artifacts: on a runner of GitHub's own they may have 7000 MB each",
    ]
    crowded = msgspec.structs.replace(together, shards=257)
    assert "nightly: 257 shards, and GitHub makes 256 jobs of one matrix at most" in list(crowded.limits())


def test_a_family_can_be_left_out_of_the_common_build(tmp_path: Path) -> None:
    text = CONFIG.replace('elsewhere = ["ubuntu-24.04"]', "build_together = true")
    text = text.replace('test = ["ubuntu-24.04"]', "build_alone = true")
    found = _make(tmp_path, text, platforms=("linux_x86_64",), lines=("nightly",), pythons=("3.11",))
    together, alone = found.builds
    assert together.families == ("gfx94X-dcgpu", "gfx110X-all")
    # Users of its index ask for its device wheels by the same extras as before.
    assert (alone.id, alone.targets, alone.split) == ("nightly-gfx1151-py3.11-linux_x86_64", "gfx1151", True)


def test_a_fork_has_githubs_own_runners_only(tmp_path: Path) -> None:
    fork = {leg.family: leg for leg in _make(tmp_path, owner="somebody", platforms=("linux_x86_64",)).legs}
    assert {leg.build_runs_on for leg in fork.values()} == {("ubuntu-24.04",)}
    assert {name: leg.test_runs_on for name, leg in fork.items()} == {
        "gfx94X-dcgpu": (),
        "gfx110X-all": (),
        "gfx1151": ("ubuntu-24.04",),
    }
    assert _make(tmp_path, owner="rocm") == _make(tmp_path)


@pytest.mark.parametrize(
    ("labels", "theirs"),
    [
        (("ubuntu-24.04",), False),
        (("ubuntu-24.04-arm",), False),
        (("windows-2025-vs2026",), False),
        (("macos-15-intel",), False),
        (("ubuntu-24.04-gfx942",), True),
        (("self-hosted", "ubuntu-24.04"), True),
        (("windows-gfx1151-gpu-rocm",), True),
    ],
)
def test_a_runner_of_somebody_s_is_told_from_githubs(labels: tuple[str, ...], *, theirs: bool) -> None:
    assert matrix_toml.usable(labels, at_home=False) == (() if theirs else labels)
    assert matrix_toml.usable(labels, at_home=True) == labels


def test_a_fork_without_a_build_runner_is_told_so_and_does_not_wait_for_one(tmp_path: Path) -> None:
    text = CONFIG.replace('elsewhere = ["ubuntu-24.04"]\n', "")
    with pytest.raises(UsageError, match="linux_x86_64 is built on big-linux, a runner of ROCm's"):
        _make(tmp_path, text, owner="somebody")


def test_two_lines_whose_legs_would_have_one_id_are_refused() -> None:
    stack = stacks.load(STACKS[1])
    config = matrix_toml.load_matrix_toml(STACKS[1] / matrix_toml.FILE, stack)
    legs_ = legs.make(stack, config, legs.Choice(trigger="presubmit"), stack_path=STACKS[1]).legs
    other = msgspec.structs.replace(legs_[0], line="release-2.9")
    with pytest.raises(UsageError, match=r"have one id, release-2\.9-gfx94X"):
        legs._refuse_one_id_for_two([*legs_, other])
    with pytest.raises(UsageError, match=r"have one id, release-2\.9-py3\.12"):
        legs._refuse_one_id_for_two([*legs_, msgspec.structs.replace(other, id="release-2.9-gfx90a")])


@pytest.mark.parametrize(
    "choice",
    [
        {"families": ("gfx1151",)},
        {"pythons": ("3.13",)},
        {"platforms": ("win_amd64",)},
        {"lines": ("nightly",), "families": ("gfx110X-all",), "pythons": ("3.11",)},
    ],
)
def test_the_legs_that_were_not_asked_for_are_those_of_the_same_lines(
    tmp_path: Path, choice: dict[str, tuple[str, ...]]
) -> None:
    whole, some = _make(tmp_path), _make(tmp_path, **choice)
    assert whole.others == ()
    expected = {leg.id: leg for leg in whole.legs if leg.line in some.lines}
    assert {leg.id: leg for leg in (*some.legs, *some.others)} == expected
    assert len(some.legs) + len(some.others) == len(expected) > len(some.legs) > 0


def test_what_is_named_takes_the_place_of_what_the_trigger_has(tmp_path: Path) -> None:
    found = _make(
        tmp_path,
        trigger="presubmit",
        lines=("release/2.7",),
        families=("gfx94X-dcgpu",),
        pythons=("3.13", "3.12"),
    )
    assert [leg.id for leg in found.legs] == [
        f"release-2.7-gfx94X-dcgpu-py{python}-linux_x86_64" for python in ("3.12", "3.13")
    ]


@pytest.mark.parametrize(
    ("choice", "tip"),
    [
        ({"families": ("gfx94-dcgpu",)}, "did you mean gfx94X-dcgpu"),
        ({"families": ("gfx942",)}, "gfx942 is a target of gfx94X-dcgpu"),
        ({"lines": ("nightli",)}, "did you mean nightly"),
        ({"pythons": ("2.7",)}, "Pythons are: 3.10, 3.11, 3.12"),
        ({"platforms": ("linux_x8664",)}, "did you mean linux_x86_64"),
    ],
)
def test_an_unknown_name_is_refused_with_what_is_near(
    tmp_path: Path, choice: dict[str, tuple[str, ...]], tip: str
) -> None:
    with pytest.raises(UsageError) as refused:
        _make(tmp_path, **choice)
    assert tip in str(refused.value.tip)


@pytest.mark.parametrize(
    ("change", "choice", "reason"),
    [
        (("gfx110X-all", "gfx1151"), {"platforms": ("win_amd64",)}, "is not built for win_amd64"),
        (('families = ["gfx110X-all"]', ""), {"trigger": "presubmit"}, "presubmit has no family"),
    ],
)
def test_an_empty_matrix_says_why(
    tmp_path: Path, change: tuple[str, str], choice: dict[str, object], reason: str
) -> None:
    text = CONFIG if "platforms" in choice else CONFIG.replace(*change)
    if "platforms" in choice:
        choice = {**choice, "families": ("gfx94X-dcgpu",)}
    found = _make(tmp_path, text, **choice)
    assert found.legs == ()
    assert reason in str(found.empty_because)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["gfx1151", ', '["gfx1152", ', "triggers.nightly.families names 'gfx1152', which is unknown"),
        ("[families.gfx1151.", "[families.gfx1159.", "unknown GPU target 'gfx1159'"),
        (
            "families.gfx1151.linux_x86_64",
            "families.gfx1151.linux",
            "families.gfx1151 names 'linux', which is",
        ),
        ('"release/2.9"]', '"release/9.9"]', "triggers.nightly.lines names 'release/9.9', which is unknown"),
        ('"3.13", ', '"3.15", ', "triggers.nightly.pythons names '3.15', which is unknown"),
        ('"3.13", ', '"py313", ', "triggers.nightly.pythons names 'py313', which is no version"),
        ("win_amd64", "win_arm64", "platforms names 'win_arm64', which is unknown"),
        ('build = ["big-linux"]', "build = []", "platforms.linux_x86_64.build names no runner"),
        ("[triggers.nightly]", "[triggers.nightli]", "nightli"),
        ("bypass_tests = true", "bypass_test = true", "unknown field `bypass_test`"),
        ("{ bypass_tests = true }", '{ test = ["my-windows"] }', "GPUs are checked on Linux alone"),
        (
            "bypass_tests = true",
            'except_lines = ["release/9.9"]',
            "families.gfx110X-all.win_amd64.except_lines names 'release/9.9'",
        ),
        ('until = "2999-12-31"', 'until = "soon"', "'soon' is not a date"),
        ('issue = "TheRock#1927"', 'issue = " "', "names no issue"),
        ("matrix-toml/1", "matrix-toml/2", "has schema 'cairn.matrix-toml/2'"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in CONFIG
    with pytest.raises(UsageError) as refused:
        _config(tmp_path, CONFIG.replace(old, new))
    assert said in str(refused.value)


@pytest.mark.parametrize("folder", STACKS, ids=lambda path: path.name)
@pytest.mark.parametrize("trigger", matrix_toml.TRIGGERS)
def test_the_stacks_have_a_matrix_for_every_trigger(folder: Path, trigger: matrix_toml.TriggerName) -> None:
    stack = stacks.load(folder)
    config = matrix_toml.load_matrix_toml(folder / matrix_toml.FILE, stack)
    here = legs.make(stack, config, legs.Choice(trigger=trigger), stack_path=folder)
    fork = legs.make(stack, config, legs.Choice(trigger=trigger, owner="a-fork"), stack_path=folder)
    assert [leg.id for leg in here.legs] == [leg.id for leg in fork.legs]
    assert len({leg.id for leg in here.legs}) == len(here.legs) > 0


def test_a_later_trigger_has_every_leg_of_an_earlier_ones_families() -> None:
    stack = stacks.load(STACKS[0])
    config = matrix_toml.load_matrix_toml(STACKS[0] / matrix_toml.FILE, stack)
    found = [set(config.families_of(trigger)) for trigger in matrix_toml.TRIGGERS]
    assert found[0] < found[1] < found[2] == set(config.families)


@pytest.mark.parametrize(
    ("until", "expected", "note"),
    [
        ("2999-12-31", True, "expected to fail until 2999-12-31, TheRock#1927"),
        ("2026-01-02", False, "was expected to fail until 2026-01-02, TheRock#1927"),
    ],
)
def test_a_failure_is_expected_until_its_day_has_passed(
    tmp_path: Path, until: str, *, expected: bool, note: str
) -> None:
    leg = _make(tmp_path, CONFIG.replace("2999-12-31", until), trigger="presubmit").legs[0]
    assert leg.expect_failure is expected
    assert legs.notes(leg) == ["stays in staging", note]


def test_how_each_leg_ends_is_known_beforehand(tmp_path: Path) -> None:
    ends = {
        leg.family: (leg.ends, legs.notes(leg)[0])
        for leg in _make(tmp_path, platforms=("linux_x86_64",)).legs
    }
    assert ends == {
        "gfx94X-dcgpu": ("tested", "promoted when its tests have passed"),
        "gfx110X-all": ("staged", "stays in staging"),
        "gfx1151": ("tested", "promoted when its tests have passed"),
    }
    fork = _make(tmp_path, owner="somebody", families=("gfx94X-dcgpu",)).legs[0]
    assert (fork.ends, legs.notes(fork)) == (
        "untested",
        ["goes to untested"],
    )


@pytest.mark.parametrize(
    ("platform", "owner", "labels"),
    [
        ('host_test = ["cpu-box"]', None, ("cpu-box",)),
        ('host_test = ["cpu-box"]', "somebody", ("windows-2022",)),
        ("", None, ("windows-2022",)),
        ("host_test = []", None, ()),
        ("host_test = []", "somebody", ()),
    ],
)
def test_a_machine_without_a_gpu_tests_what_no_gpu_runner_does(
    tmp_path: Path, platform: str, owner: str | None, labels: tuple[str, ...]
) -> None:
    text = CONFIG.replace('build = ["windows-2022"]', f'build = ["windows-2022"]\n{platform}')
    found = _make(tmp_path, text, owner=owner, lines=("nightly",), pythons=("3.11",))
    windows = next(leg for leg in found.legs if leg.platform == "win_amd64")
    assert (windows.test_runs_on, windows.host_runs_on, windows.smoke_runs_on) == ((), labels, labels)
    ends = ("untested", "may be promoted untested")
    left = ("staged", "stays in staging: no machine tests win_amd64 (host_test)")
    assert (windows.ends, legs.notes(windows)[0]) == (ends if labels else left)
    # Where a GPU tests it, no other machine does.
    gpu = next(leg for leg in found.legs if leg.family == "gfx1151")
    assert (gpu.smoke_runs_on, gpu.host_runs_on) == (("ubuntu-24.04",), ())


def test_a_family_is_not_built_for_lines_that_are_excepted(tmp_path: Path) -> None:
    text = CONFIG.replace('test = ["ubuntu-24.04"]', 'except_lines = ["release/2.9"]')
    found = _make(tmp_path, text, families=("gfx1151",))
    assert {leg.line for leg in found.legs} == {"nightly"}
    none = _make(tmp_path, text, families=("gfx1151",), lines=("release/2.9",))
    assert "gfx1151 is not built for" in str(none.empty_because)


def test_the_sample_is_for_every_python_that_cairn_runs_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: Python :: 3." in line]
    assert {"3.11", "3.14"} <= set(named)
    stack = stacks.load(STACKS[1])
    config = matrix_toml.load_matrix_toml(STACKS[1] / matrix_toml.FILE, stack)
    choice = legs.Choice(trigger="nightly", pythons=tuple(named))
    assert {leg.python for leg in legs.make(stack, config, choice, stack_path=STACKS[1]).legs} == set(named)
    with pytest.raises(UsageError, match="no Python '3'"):
        legs.make(stack, config, legs.Choice(trigger="nightly", pythons=("3",)), stack_path=STACKS[1])
