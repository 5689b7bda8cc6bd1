"""The cases of ROCm/TheRock's unit tests for versions, families and promotion, with what Cairn makes of them.

Inputs and results were read there and typed anew. Where Cairn answers otherwise, or has no such thing, the
case names a section of docs/reference/therock.md, which has the reason.

ROCm/TheRock 89553ce, build_tools/github_actions/tests/determine_version_test.py,
build_tools/tests/build_prod_wheels_version_test.py, build_tools/tests/compute_rocm_package_version_test.py,
build_tools/tests/cmake_amdgpu_targets_test.py,
build_tools/github_actions/tests/expand_amdgpu_families_test.py,
build_tools/github_actions/tests/amdgpu_family_matrix_test.py,
build_tools/github_actions/tests/fetch_package_targets_test.py,
build_tools/github_actions/tests/python_to_cp_version_test.py,
build_tools/packaging/tests/promote_keep_list_test.py, build_tools/packaging/tests/promote_packages_test.py,
build_tools/packaging/tests/download_python_packages_test.py, build_tools/tests/fetch_artifacts_test.py and
build_tools/tests/python_package_paths_test.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.version import Version

from cairn import targets
from cairn.build.job import Job
from cairn.errors import CairnError, UsageError, WheelError
from cairn.release.publish import distribution
from cairn.stack import Stack
from cairn.wheels.metadata import device_names, wheel_info
from cairn.wheels.metadata.rocm_version import channel_of, promote, rocm_version_of, suffix, with_suffix
from cairn.wheels.rewrite.set_version import set_versions
from cairn.wheels.rewrite.version_options import NewVersion
from helpers.wheels import MakeWheel

SHA = "515115ea2cb85a0b71b5507ce56a627d14c7ae73"
OTHER_SHA = "abcdef1234567890abcdef1234567890abcdef12"

DIFFERENT = {
    # build_tools/github_actions/tests/determine_version_test.py
    "test_bkc_version_suffix": "ROCm 10 in versions",
    # build_tools/tests/build_prod_wheels_version_test.py
    "test_rocm_major_versions_have_known_sorting_issue": "ROCm 10 in versions",
    "test_dev_release_tags_git_commit_in_local_segment": "Commits in versions",
    # build_tools/tests/compute_rocm_package_version_test.py
    "VersionFileTest": "The version of ROCm itself",
    "PythonPackageVersionTest::test_custom_version_suffix": "Versions that are not valid",
    "PythonPackageVersionTest::test_override_base_version": "Versions that are not valid",
    "PythonPackageVersionTest::test_bkc_version_requires_base_date_metadata": "The version of ROCm itself",
    "DebPackageVersionTest": "Packages of distributions",
    "RpmPackageVersionTest": "Packages of distributions",
    "MainFunctionTest": "The version of ROCm itself",
    # build_tools/tests/cmake_amdgpu_targets_test.py
    "ParseAmdgpuTargetsCmakeTest": "The table of targets",
    # build_tools/github_actions/tests/expand_amdgpu_families_test.py
    "test_empty_input_returns_empty_list": "No targets, unknown targets",
    "test_unknown_family_silently_skipped_when_not_strict": "No targets, unknown targets",
    "test_main_empty_input_prints_empty": "No targets, unknown targets",
    # build_tools/github_actions/tests/amdgpu_family_matrix_test.py and fetch_package_targets_test.py
    "TestFamilyMatrixInvariants": "Runners",
    "TestExternalConfig": "Runners",
    "FetchPackageTargetsTest": "Runners",
    # build_tools/github_actions/tests/python_to_cp_version_test.py
    "python_to_cp_version_test": "Pythons",
    # build_tools/packaging/tests/promote_keep_list_test.py
    "ScanMultiarchMetadataTest": "Leaving targets out",
    "ApplyKeepListToMetadataTest": "Leaving targets out",
    "ApplyKeepListToRequiresTxtTest": "Leaving targets out",
    "ApplyKeepListToDistInfoPyTest": "Leaving targets out",
    "ParseArgumentsMutexTest": "Leaving targets out",
    # build_tools/packaging/tests/promote_packages_test.py
    "checkPromoteEverything: sdist and tarball": "Sources and tarballs",
    "checkPromoteOnlyRocm": "Half a promotion",
    "checkPromoteOnlyTorch": "Half a promotion",
    # build_tools/packaging/tests/download_python_packages_test.py
    "CategorizePackageTest": "Lists of names",
    "IsAllowedMultiArchPackageTest": "Lists of names",
    # external-builds/pytorch/skip_tests/ has no tests; the reference compares what its files do
    "skip_tests/create_skip_tests.py": "Skipped tests",
    # build_tools/tests/fetch_artifacts_test.py
    "testListArtifactsForGroup_NoTargetsBackwardsCompat": "Artifacts of a run",
    # build_tools/tests/python_package_paths_test.py
    "test_structured_key": "Places in a bucket",
    "test_plan_uploads": "Places in a bucket",
}
"""Upstream's test or class of tests to the section that says why Cairn answers otherwise."""


def test_every_difference_stands_in_the_reference_and_none_besides() -> None:
    page = Path(__file__).parents[3].joinpath("docs/reference/therock.md").read_text(encoding="utf-8")
    sections = {line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")}
    # Of command lines, which no test of theirs is about.
    assert sections - {"Scripts and flags", "Scripts for GitHub Actions"} == set(DIFFERENT.values())


@pytest.mark.parametrize(
    ("rocm", "theirs", "ours"),
    [
        (f"7.0.0.dev0+{SHA}", f"+devrocm7.0.0.dev0-{SHA}", None),
        ("7.0.0rc20250707", "+rocm7.0.0rc20250707", None),
        ("7.0.0", "+rocm7.0.0", None),
        ("7.10.0a20251124", "+rocm7.10.0a20251124", None),
        ("7.14.0a20260811+bkc.20260813", "+rocm7.14.0a20260811-bkc.20260813", None),
        (
            "10.1.0a20260811+bkc.20260813",
            "+rocm10.1.0a20260811-bkc.20260813",
            "+rocmv.10.1.0.a.20260811.bkc.20260813",
        ),
    ],
)
def test_suffixes(rocm: str, theirs: str, ours: str | None) -> None:
    assert suffix(rocm) == (ours or theirs)
    # Whoever wrote it: both are read, and name the same ROCm.
    assert rocm_version_of(f"2.13.0{theirs}") == rocm_version_of(f"2.13.0{ours or theirs}") == rocm


@pytest.mark.parametrize(
    ("base", "given", "expected"),
    [
        ("2.12.0a0", "+rocm7.10.0", "2.12.0a0+rocm7.10.0"),
        ("2.13.0", "+rocm10.1.0a20260811-bkc.20260813", "2.13.0+rocm10.1.0a20260811.bkc.20260813"),
        ("2.12.0a0+git1a2b3c4d", "+rocm7.10.0", "2.12.0a0+git1a2b3c4d.rocm7.10.0"),
    ],
)
def test_versions_of_wheels(base: str, given: str, expected: str) -> None:
    assert str(Version(with_suffix(base, given))) == expected


@pytest.mark.parametrize(
    "lowest_first",
    [
        [f"7.0.0.dev0+{SHA}", "7.0.0a20251202", "7.0.0rc1", "7.0.0"],
        ["7.14.0.dev0+1a2b3c4d", "7.14.0a20260811", "7.14.0rc1", "7.14.0"],
        ["10.1.0a20260811", "10.1.0a20260811+bkc.20260813", "10.1.0a20260812"],
        ["7.14.0a20260811", "7.14.0a20260811+bkc.20260813", "7.14.0a20260812"],
        # Upstream asserts the opposite, and names it an issue: TheRock#7183.
        ["7.14.0a20260728", "10.0.0a20260806"],
    ],
)
def test_order_of_wheels_by_their_rocm(lowest_first: Sequence[str]) -> None:
    versions = [Version("2.13.0" + suffix(rocm)) for rocm in lowest_first]
    assert versions == sorted(versions)
    assert len(set(versions)) == len(versions)


@pytest.mark.parametrize(
    ("rocm", "release_type"),
    [
        (f"7.9.0.dev0+{OTHER_SHA}", "dev"),
        ("7.9.0a20251001", "nightly"),
        ("7.9.0a20260811+bkc.20260813", "nightly-bkc"),
        ("7.9.0rc5", "prerelease"),
        ("7.10.0rc0", "prerelease"),
        ("7.10.0", "stable"),
    ],
)
def test_versions_of_rocm_are_known_by_their_release_type(rocm: str, release_type: str) -> None:
    assert channel_of(rocm) == release_type
    assert str(Version(rocm)) == rocm


@pytest.mark.parametrize("rocm", ["7.9.0abc", "1000abc", "7.99.0.custom1", "8.0.0~custom1", "7.10.0~rc0"])
def test_versions_that_are_none_are_refused(rocm: str) -> None:
    with pytest.raises(WheelError):
        suffix(rocm)


def test_the_arguments_that_upstream_derives_from_a_version(tmp_path: Path) -> None:
    stack = Stack(name="s", line="nightly", targets=("gfx942",), projects=())
    job = Job(stack=stack, checkouts={}, output_dir=tmp_path, version_suffix="+rocm7.0.0")
    assert job.version_suffix == suffix("7.0.0")


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ("gfx942", "gfx942"),
        ("gfx1100", "gfx1100"),
        ("gfx94X-dcgpu", "gfx942"),
        ("gfx110X-all,gfx94X-dcgpu", "gfx1100 gfx1101 gfx1102 gfx1103 gfx942"),
        ("dcgpu-all,gfx94X-dcgpu", "gfx908 gfx90a gfx942 gfx950 gfx1250"),
        # What the entries of its matrix name.
        ("gfx110X-all", "gfx1100 gfx1101 gfx1102 gfx1103"),
        ("gfx1151", "gfx1151"),
        ("gfx120X-all", "gfx1200 gfx1201"),
        ("gfx950-dcgpu", "gfx950"),
        ("gfx90a", "gfx90a"),
        ("gfx900", "gfx900"),
        ("gfx906", "gfx906"),
        ("gfx908", "gfx908"),
        ("gfx90c", "gfx90c"),
        ("gfx1150,gfx1152,gfx1153", "gfx1150 gfx1152 gfx1153"),
        ("gfx125X-dcgpu", "gfx1250"),
    ],
)
def test_families(families: str, expected: str) -> None:
    assert targets.parse_targets(families) == tuple(expected.split())


@pytest.mark.parametrize(
    "families", ["", "gfxNOPE", "gfx94X-dcgpu,gfxNOPE", "gfx94X-dcgpu,gfxNOPE,gfx110X-all"]
)
def test_no_targets_and_unknown_ones_are_refused(families: str) -> None:
    with pytest.raises(UsageError):
        targets.parse_targets(families)


def test_extras_of_devices() -> None:
    assert [device_names.extra_of(t) for t in targets.parse_targets("gfx94X-dcgpu")] == ["device-gfx942"]


@pytest.mark.parametrize(
    ("version", "stage", "expected"),
    [
        ("7.10.0rc1", "final", "7.10.0"),
        ("7.13.0a20260501", "final", "7.13.0"),
        ("7.13.0a20260501", "rc1", "7.13.0rc1"),
        ("2.10.0+rocm7.13.0a20260501", "final", "2.10.0+rocm7.13.0"),
        ("2.10.0+rocm7.13.0a20260430", "rc1", "2.10.0+rocm7.13.0rc1"),
    ],
)
def test_promoted_versions(version: str, stage: str, expected: str) -> None:
    assert promote(version, stage) == expected


@pytest.mark.parametrize("stage", ["garbage", "release", "a20260230", "a20261301", "a20260501"])
def test_stages_that_promotion_does_not_have(stage: str) -> None:
    with pytest.raises(WheelError):
        promote("7.13.0a20260430", stage)


LINUX, WINDOWS = "linux_x86_64", "win_amd64"


@pytest.mark.parametrize(
    "name",
    [
        *(f"rocm_sdk_core-7.9.0rc1-py3-none-{LINUX}", f"rocm_sdk_devel-7.9.0rc1-py3-none-{LINUX}"),
        f"rocm_sdk_libraries_gfx94x_dcgpu-7.9.0rc1-py3-none-{LINUX}",
        f"triton-3.3.1+rocm7.9.0rc1-cp312-cp312-{LINUX}",
        f"torch-2.7.1+rocm7.9.0rc1-cp312-cp312-{LINUX}",
        f"torchaudio-2.7.1a0+rocm7.9.0rc1-cp312-cp312-{LINUX}",
        f"torchvision-0.22.1+rocm7.9.0rc1-cp312-cp312-{LINUX}",
        *(f"rocm_sdk_core-7.9.0rc1-py3-none-{WINDOWS}", f"rocm_sdk_devel-7.9.0rc1-py3-none-{WINDOWS}"),
        f"rocm_sdk_libraries_gfx1151-7.9.0rc1-py3-none-{WINDOWS}",
        f"torch-2.9.0+rocm7.9.0rc1-cp312-cp312-{WINDOWS}",
        f"torchaudio-2.9.0+rocm7.9.0rc1-cp312-cp312-{WINDOWS}",
        f"torchvision-0.24.0+rocm7.9.0rc1-cp312-cp312-{WINDOWS}",
        "jax_rocm7_plugin-0.9.2+rocm7.15.0rc1-cp312-cp312-manylinux_2_28_x86_64",
    ],
)
def test_promoted_file_names(make_wheel: MakeWheel, tmp_path: Path, name: str) -> None:
    project, version, tag = name.split("-", 2)
    wheel = make_wheel(name=project, version=version, tags=(tag,), requires=(), pure=False)
    (change,) = set_versions([wheel], NewVersion(stage="final"), tmp_path / "out")
    assert change.target.name == f"{name.replace('rc1-', '-')}.whl"
    assert wheel_info.read(change.target).version == version.removesuffix("rc1")


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("torch-2.10.0-cp310-cp310-linux_x86_64.whl", "torch"),
        ("rocm_sdk_core-7.13.0-py3-none-linux_x86_64.whl", "rocm-sdk-core"),
        ("amd_torch_device_gfx942-2.10.0-py3-none-linux_x86_64.whl", "amd-torch-device-gfx942"),
        ("rocm_sdk_device_gfx1100-7.13.0-py3-none-linux_x86_64.whl", "rocm-sdk-device-gfx1100"),
        ("rocm_sdk_libraries_gfx942-7.13.0-py3-none-linux_x86_64.whl", "rocm-sdk-libraries-gfx942"),
    ],
)
def test_projects_of_files(file_name: str, expected: str) -> None:
    assert wheel_info.parse_file_name(file_name).distribution == expected


@pytest.mark.parametrize("file_name", ["index.html", "torch-2.10.0.whl.metadata", "README.md"])
def test_files_that_no_index_takes(tmp_path: Path, file_name: str) -> None:
    path = tmp_path / file_name
    path.write_text("something", encoding="utf-8")
    with pytest.raises(CairnError, match="neither a wheel nor an sdist"):
        distribution.read(path)
