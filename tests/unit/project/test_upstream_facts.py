"""Facts copied from upstream carry a marker, and a program compares them with upstream's checkout."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import compare_facts
import our_facts
import pytest
import upstream_files
from compare_facts import LIBRARIES, PYTORCH, THEROCK, Row
from upstream_files import Checkout, Facts

BUILD = upstream_files.BUILD
TODAY = date(2026, 11, 29)
LATER, PAST = date(2027, 5, 31), date(2026, 11, 28)


def test_every_copied_fact_has_a_marker_and_every_marker_is_compared() -> None:
    found, _ = compare_facts.markers()
    assert len(found) > 50
    assert list(compare_facts.unmarked(compare_facts.ROWS, compare_facts.notes())) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# @ 89553ce, a/b.py\nx = 1\n", ""),
        ("# A list.\n# @ 89553ce, c/d.py and\n# a/b.py\n", "nothing compares this fact with c/d.py"),
        ("x = 1\n", "have no marker that names ROCm/TheRock, a commit, and a/b.py"),
        ("# Source: @, a/b.py.\n# @ 89553ce, a/b.py\n", "a/b.py: names no commit"),
        ("# Source: @'s,\n# a/b.py\n# @ 89553ce, a/b.py\n", "a/b.py: names no commit"),
    ],
)
def test_a_fact_without_a_marker_and_a_marker_without_a_row_are_named(
    tmp_path: Path, text: str, problem: str
) -> None:
    place = tmp_path / "build_tools/data.toml"
    place.parent.mkdir()
    place.write_text(text.replace("@", THEROCK), encoding="utf-8")
    row = Row("names", "build_tools/data.toml", THEROCK, ("a/b.py",), _nothing, dict)
    problems = list(compare_facts.unmarked((row,), {"rules": []}, tmp_path))
    assert [problem in text for text in problems] == ([True] if problem else [])


@pytest.mark.parametrize("repository", [THEROCK, PYTORCH, LIBRARIES])
def test_a_rule_that_changed_is_named_by_the_checkout_of_its_repository_alone(
    checkout: Checkout, repository: str
) -> None:
    rule = {"place": "here", "repository": repository, "source": BUILD, "names": ["do_build_pytorch"]}
    rules = [{**rule, "digest": "0" * 12}]
    result = compare_facts.compare((), {repository: checkout}, {"rules": rules, "differences": []}, TODAY)
    assert [difference.category for difference in result.differences] == ["rules"]
    assert result.compared == {"rules": 1}


def _nothing(_checkout: Checkout) -> Facts:
    return {}


def _result(here: Facts, there: Facts, *differences: dict[str, Any]) -> compare_facts.Comparison:
    row = Row("preloads", "ours.toml", THEROCK, ("a.py",), lambda _: there, lambda _: here)
    notes = {"rules": (), "differences": differences}
    result = compare_facts.compare((row,), {THEROCK: Checkout(Path(__file__).parent)}, notes, TODAY)
    result.problems.remove("rules: nothing was compared")
    return result


def test_a_difference_is_named_or_explained_by_name_and_value_until_a_day() -> None:
    here, there = {"a": "1", "b": True}, {"a": "2", "b": True, "c": True}
    result = _result(here, there)
    assert [str(each) for each in result.differences] == [
        "preloads: a: ours is 1, upstream's 2",
        "preloads: c: ours is absent, upstream's there",
    ]
    assert (result.compared["preloads"], result.is_good) == (3, False)
    entry = {"category": "preloads", "names": ["a: 2", "c: *"], "reason": "for a reason", "look_again": LATER}
    assert _result(here, there, entry).is_good
    assert len(_result(here, {**there, "a": "3"}, entry).differences) == 1  # a further change
    past = _result(here, there, {**entry, "look_again": PAST})
    assert (past.is_good, "look again" in past.problems[0]) == (False, True)
    gone = _result(here, {**there, "a": "1"}, entry)
    assert gone.problems == ["preloads: a: 2: it does not differ any more: take it out of facts.toml"]
    assert "does not exist" in _result(here, here, {**entry, "category": "preload"}).problems[0]


def test_what_could_not_be_compared_is_not_good() -> None:
    assert _result({"a": True}, {}).problems == ["preloads: nothing was compared"]

    def unreadable(checkout: Checkout) -> Facts:
        return {"": checkout.text("missing.py")}

    def of_another_shape(_checkout: Checkout) -> Facts:
        return {"a": {"test": ""}["family"]}

    shaped = Row("preloads", "ours.toml", THEROCK, ("a.py",), of_another_shape, dict)
    found = compare_facts.compare(
        (shaped,), {THEROCK: Checkout(Path(__file__).parent)}, {"rules": [], "differences": []}, TODAY
    )
    assert found.problems[0] == "preloads: a.py: another shape than the reader knows: KeyError: 'family'"
    row = Row("preloads", "ours.toml", THEROCK, ("a.py",), unreadable, dict)
    notes = {
        "rules": [{"source": "missing.py", "names": ["f"], "digest": "", "place": "x"}],
        "differences": [],
    }
    result = compare_facts.compare((row,), {THEROCK: Checkout(Path(__file__).parent)}, notes, TODAY)
    assert not result.is_good
    assert [text.split(" cannot")[0] for text in result.problems] == [
        "preloads: missing.py",
        "rules: missing.py",
        "rules: nothing was compared",
    ]
    assert not compare_facts.Comparison().is_good


def test_what_can_be_read_is_compared_and_the_rest_is_named() -> None:
    here: Facts = {"a x": "1", "b x": "1", "c": True}
    there: Facts = {"a x": "2", "b *": upstream_files.Unread("b.py is gone"), "c": True}
    entry = {"category": "preloads", "names": ["b *: 2", "b x: 2"], "reason": "so", "look_again": LATER}
    result = _result(here, there, entry)
    assert [str(each) for each in result.differences] == ["preloads: a x: ours is 1, upstream's 2"]
    assert (result.problems, result.compared["preloads"]) == (["preloads: b.py is gone"], 2)


def test_a_reason_is_taken_out_only_where_the_fact_was_read_and_is_equal() -> None:
    entry = {"category": "preloads", "names": ["a: 2"], "reason": "so", "look_again": LATER}
    changed = "preloads: a: 2: upstream has changed it: explain it anew in facts.toml"
    assert _result({"a": "1"}, {"a": "3"}, entry).problems == [changed]
    gone = "preloads: a: 2: it does not differ any more: take it out of facts.toml"
    assert _result({"a": "1"}, {"a": "1"}, entry).problems == [gone]

    def missing(checkout: Checkout) -> Facts:
        return {"": checkout.text("missing.py")}

    row = Row("preloads", "ours.toml", THEROCK, ("a.py",), missing, dict)
    notes = {"rules": (), "differences": (entry,)}
    result = compare_facts.compare((row,), {THEROCK: Checkout(Path(__file__).parent)}, notes, TODAY)
    assert not any("any more" in text for text in result.problems)


@pytest.mark.parametrize(
    ("read", "path", "pattern", "name"),
    [
        (lambda of: upstream_files.flags(of, ["gone.py", BUILD]), "", "gone.py *", f"{BUILD} build --pre"),
        (lambda of: upstream_files.files(of, ["gone", upstream_files.SKIPS]), "", "gone/*", ""),
        (upstream_files.skips, f"{upstream_files.SKIPS}/generic.py", "generic *", "run_pytorch_tests_full "),
        (upstream_files.scripts, upstream_files.CORE_CLI, "core *", "profiler rocprof"),
        (upstream_files.projects, upstream_files.REPOSITORIES[1], "audio origin", "vision origin"),
        (upstream_files.variables, BUILD, "apex linux *", "torch windows CC"),
        (upstream_files.lines, upstream_files.RELEASES, "* lines", "presubmit linux_x86_64 pythons"),
        (upstream_files.projects, upstream_files.PIN, "triton windows commit", "triton windows origin"),
    ],
)
def test_a_file_that_cannot_be_read_leaves_the_others_to_be_compared(
    checkout: Checkout, tmp_path: Path, read: upstream_files.Reader, path: str, pattern: str, name: str
) -> None:
    shutil.copytree(checkout.root, tmp_path, dirs_exist_ok=True)
    if path == BUILD:
        (tmp_path / path).write_text(FILES[BUILD].replace("do_build_apex", "build_apex"), encoding="utf-8")
    elif path == upstream_files.RELEASES:
        (tmp_path / path).write_text(FILES[path].replace("CI_PYTORCH", "X"), encoding="utf-8")
    elif path:
        (tmp_path / path).write_bytes(b"\xff")
    facts = read(Checkout(tmp_path))
    unread = facts.pop(pattern)
    assert isinstance(unread, upstream_files.Unread)
    assert (path or pattern.rstrip("/ *")) in unread.reason
    assert any(found.startswith(name) for found in facts)


REPOSITORY = """
THIS_MAIN_REPO_NAME = "folder"
DEFAULT_ORIGIN = "url"
DEFAULT_HASHTAG = "main"
ROCM_TRITON_ORIGIN = "url"
TRITON_WINDOWS_ORIGIN = "url"
"""
FILES = {
    upstream_files.TARGETS: """
        # therock_add_amdgpu_target(gfx1 "no")
        therock_add_amdgpu_target(gfx942 "MI300A/MI300X CDNA" FAMILY dcgpu-all gfx94X-all)
        therock_add_amdgpu_target(gfx900 "Vega 10 / MI25" FAMILY dgpu-all
          EXCLUDE_TARGET_PROJECTS
            hipBLASLt # (an issue)
        )
    """,
    upstream_files.FAMILIES: """
BUILD_RUNNER_LABELS = {"linux": {"default": [{"label": "big", "weight": 1.0}]}}
amdgpu_family_info_matrix_presubmit = {
    "gfx94x": {
        "linux": {"family": "gfx94X-dcgpu", "test-runs-on": "mi300", "test-runs-on-multi-gpu": "eight"}
    },
}
amdgpu_family_info_matrix_postsubmit = {}
amdgpu_family_info_matrix_nightly = {}
""",
    upstream_files.RELEASES: """
RELEASE_PYTHON_VERSIONS = ["3.12"]
CI_PYTHON_VERSIONS = {"linux": ["3.11"]}
CI_PYTORCH_REFS = {"linux": ["release/2.13"]}
STABLE = {"linux": ["release/2.13"]}
RELEASE_PYTORCH_REFS = {platform: [*refs, "nightly"] for platform, refs in STABLE.items()}
UNSUPPORTED_AMDGPU_FAMILIES = {"linux": {"release/2.13": {"gfx90c"}}}
RUN = __import__("os").system("false")
""",
    upstream_files.BUCKETS: """
s3_bucket_configs = [S3BucketConfig("one-artifacts", iam_role="x"), S3BucketConfig("one-packages")]
_ALLOWED_ARTIFACT_RELEASE_TYPES = {"ci"}
_RELEASE_STREAM_BY_TYPE = {"prerelease": "rc"}
def get_release_package_index_url(release_type):
    return f"https://{stream}.example.org/whl/"
""",
    upstream_files.OWNERSHIP: "  known:\n    - dev\n    - stable\n  groups:\n    all:\n      - bkc\n",
    upstream_files.DIST_INFO: """
PackageEntry("core", "rocm-sdk-core", required=True)
LibraryEntry("hipfile", "core", "libhipfile.so*", "")
LibraryEntry(so_pattern="librpp.so*", package_name="libraries", shortname="rpp")
""",
    upstream_files.CORE_SETUP: 'setup({"scripts": ["amd-smi=core._cli:amd_smi", "lost = core._cli:lost"]})',
    upstream_files.CORE_CLI: 'def amd_smi():\n    _exec("bin/amd-smi", expand_devel=False)\n',
    upstream_files.PROFILER_SETUP: 'X = ["rocprof=profiler._cli:rocprof"]',
    upstream_files.PROFILER_CLI: 'def rocprof():\n    _exec("bin/rocprof")\n',
    upstream_files.PACKAGES: """
PROFILER_WHEEL_INCLUDES = ["bin/rocprof-*"]
PROFILERS = {"prof"}
def core_artifact_filter(an):
    core = an.name in ["base", "sysdeps"] and an.component in ["lib", "run"]
    return core or (an.name == "hotswap" and an.component == "lib")
def libraries_artifact_filter(family, an):
    return an.name in ["blas"] and an.component in ["lib"] and (an.target == family or an.target == "generic")
def profiler_artifact_filter(an):
    return an.name in PROFILERS and an.component in ["run"]
def device_artifact_filter(target, an):
    return an.name in ["blas"] and an.component == "lib" and target
""",
    upstream_files.BUILD: """
TYPE = "dev"
LLVM_BASE_URL = "https://example.org/llvm"
LINUX_LIBRARY_PRELOADS = ["amd_comgr"]
WINDOWS_LIBRARY_PRELOADS = ["hiprtc"]
def _setup_common_build_env(is_windows):
    env: dict[str, str] = {"PYTHONUTF8": "1"}
    env["USE_KINETO"] = os.environ.get("K", "ON" if not is_windows else "OFF")
    if is_windows:
        env.update({"CC": "clang-cl"})
    else:
        env["CXXFLAGS"] = " -W "
def do_build_pytorch(env):
    '''Say something.'''
    AOTRITON_SUPPORTED_ARCH_PREFIXES = ("gfx942",)
    env["USE_ROCM"] = "ON"
    env["VERSION"] = version()
    add_env_compiler_flags(env, "LDFLAGS", "-L")
    command.append("-Cwheel.force-include.torch/lib/a.dll=" "torch/lib/a.dll")
def do_build_pytorch_audio(env, is_windows):
    if not is_windows:
        env["ONLY_LINUX"] = "1"
    elif fast and is_windows:
        env |= {"ONLY_WINDOWS": "1"}
    else:
        env["NEITHER"] = "1"
    if is_windows and fast:
        if not is_windows: env["NEITHER"] = "1"
    elif not is_windows or fast:
        env["BOTH"] = "1"
def do_build_pytorch_vision(env): pass
def do_build_apex(env): pass
def build_triton_linux(env): env["SUFFIX"] = ""
def build_triton_windows(): windows_env.update({"LLVM_SYSPATH": str(llvm)})
def copy_uv_to_torch_lib(): return "uv.dll"
def main(argv):
    p = argparse.ArgumentParser()
    def add_common(p: argparse.ArgumentParser):
        p.add_argument("--pre", action=argparse.BooleanOptionalAction, default=True)
    sub_p = p.add_subparsers()
    build_p = sub_p.add_parser("build")
    add_common(build_p)
    group = build_p.add_mutually_exclusive_group()
    group.add_argument("-j", "--jobs", default=4, type=int)
    build_p.add_argument("--release-type", choices=["ci", "dev"], default=TYPE)
    build_p.add_argument("--output-dir", default=Path(__file__))
    build_p.set_defaults(jobs=10, func=do_build)
    repo_management.add_checkout_options(build_p, default_hipify="yes")
""",
    upstream_files.MANAGEMENT: """
TAG_UPSTREAM_DIFFBASE = "UP"
TAG_HIPIFY_DIFFBASE = "HIP"
def add_checkout_options(p):
    p.add_argument("--depth", default=None)
    p.add_argument("--hipify", action="store_true", default=default_hipify)
    p.add_argument("--no-wait", action="store_false")
""",
    upstream_files.PIN: "abc\n",
    f"{upstream_files.SKIPS}/generic.py": 'skip_tests = {"common": {"cuda": ["test_a" "test_b", "test_c"]}}',
    f"{upstream_files.SKIPS}/create_skip_tests.py": "",
    upstream_files.FULL: 'EXCLUDED_TEST_MODULES: list[str] = ["nn/test_a"]',
    **dict.fromkeys(upstream_files.REPOSITORIES, REPOSITORY),
    upstream_files.FAT: ' "libamdhip64.so"\nROCBLAS_LIB_DST=lib/rocblas/library\n "share/a.ids"\n',
    "version.txt": "2.14.0a0",
    f"{upstream_files.WORKFLOWS}multi_arch_ci.yml": "",
    f"{upstream_files.WORKFLOWS}other.yml": "",
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    root = tmp_path_factory.mktemp("upstream")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Checkout(root)


READ: list[tuple[upstream_files.Reader, Facts]] = [
    (
        upstream_files.targets,
        {
            "gfx942 families": frozenset({"dcgpu-all", "gfx94X-all"}),
            "gfx942 product": "MI300A/MI300X CDNA",
            "gfx900 families": frozenset({"dgpu-all"}),
            "gfx900 product": "Vega 10 / MI25",
        },
    ),
    (
        upstream_files.matrix,
        {
            "gfx94X-dcgpu trigger": "presubmit",
            "gfx94X-dcgpu linux_x86_64 test": "mi300",
            "gfx94X-dcgpu linux_x86_64 multi_gpu": "eight",
            "gfx94X-dcgpu linux_x86_64 bypass_tests": False,
            "linux_x86_64 build": ["big"],
        },
    ),
    (upstream_files.index_families, {"gfx94X-dcgpu": True}),
    (
        upstream_files.lines,
        {
            "pythons": ["3.12"],
            "presubmit linux_x86_64 pythons": frozenset({"3.11"}),
            "postsubmit linux_x86_64 pythons": frozenset({"3.11"}),
            "presubmit linux_x86_64 lines": frozenset({"release/2.13"}),
            "postsubmit linux_x86_64 lines": frozenset({"release/2.13"}),
            "release/2.13 linux_x86_64 without": frozenset({"gfx90c"}),
            "nightly linux_x86_64 without": frozenset(),
        },
    ),
    (
        upstream_files.indexes,
        {name: f"https://{name}.example.org/whl/" for name in ("dev", "stable", "rc")},
    ),
    (upstream_files.buckets, {"ci": "a release type", "one-artifacts": "a bucket"}),
    (upstream_files.preloads, {"linux amd_comgr": True, "windows hiprtc": True}),
    (upstream_files.libraries, {"hipfile": "libhipfile.so*", "rpp": "librpp.so*"}),
    (upstream_files.packages, {"core": "rocm-sdk-core"}),
    (
        upstream_files.scripts,
        {
            "core amd-smi": "bin/amd-smi, reports",
            "core lost": "a function that is not there, lost",
            "profiler rocprof": "bin/rocprof",
        },
    ),
    (
        upstream_files.artifacts,
        dict.fromkeys(
            [
                *(
                    "core base_lib",
                    "core base_run",
                    "core sysdeps_lib",
                    "core sysdeps_run",
                    "core hotswap_lib",
                ),
                *(
                    "libraries blas_lib",
                    "profiler prof_run",
                    "device blas_lib",
                    "profiler file bin/rocprof-*",
                ),
            ],
            True,
        ),
    ),
    (
        lambda checkout: upstream_files.flags(checkout, [BUILD]),
        {
            **{
                f"{BUILD} build {flag}": True
                for flag in (
                    *("--pre", "--no-pre", "-j", "--jobs", "--depth", "--hipify", "--no-wait"),
                    *("--release-type", "--output-dir"),
                )
            },
            f"{BUILD} build --pre default": "True",
            f"{BUILD} build -j default": "4",
            f"{BUILD} build --jobs default": "10",
            f"{BUILD} build --hipify default": "yes",
            f"{BUILD} build --no-wait default": "True",
            f"{BUILD} build --release-type default": "dev",
            f"{BUILD} build --release-type choices": frozenset({"ci", "dev"}),
        },
    ),
    (
        lambda checkout: upstream_files.files(checkout, [upstream_files.SKIPS]),
        {f"{upstream_files.SKIPS}/{name}.py": True for name in ("generic", "create_skip_tests")},
    ),
    (
        lambda checkout: upstream_files.workflows(checkout, ["multi_arch_ci.yml", "multi_arch_release.yml"]),
        {"multi_arch_ci.yml": True},
    ),
    (
        upstream_files.skips,
        {
            "generic common cuda test_atest_b": True,
            "generic common cuda test_c": True,
            "run_pytorch_tests_full common modules nn/test_a": True,
        },
    ),
    (
        upstream_files.fat_libraries,
        {"libamdhip64": True, "data lib/rocblas/library": True, "data share/a.ids": True},
    ),
    (
        lambda checkout: upstream_files.pytorch_files(checkout, ["test_nn.py"]),
        {
            ".ci/docker/ci_commit_pins/triton.txt": False,
            ".ci/docker/triton_version.txt": False,
            "version.txt": True,
            "test/test_nn.py": False,
        },
    ),
]


@pytest.mark.parametrize(("read", "facts"), READ)
def test_facts_are_read_out_of_files_that_are_not_run(
    checkout: Checkout, read: upstream_files.Reader, facts: Facts
) -> None:
    assert read(checkout) == facts


def test_the_variables_of_builds_are_read_by_project_and_platform(checkout: Checkout) -> None:
    facts = upstream_files.variables(checkout)
    of_torch = {name: value for name, value in facts.items() if name.startswith("torch linux")}
    assert of_torch == {
        "torch linux PYTHONUTF8": "1",
        "torch linux USE_KINETO": "ON",
        "torch linux CXXFLAGS": "-W",
        "torch linux USE_ROCM": "ON",
        "torch linux VERSION": "computed",
        "torch linux LDFLAGS": "computed",
    }
    assert facts["audio windows CC"] == "clang-cl"
    by_platform = {
        platform: {name.split()[2] for name in facts if name.startswith(f"audio {platform} ")}
        for platform in ("linux", "windows")
    }
    assert {"ONLY_LINUX", "BOTH"} == by_platform["linux"] - {"PYTHONUTF8", "USE_KINETO", "CXXFLAGS"}
    assert {"ONLY_WINDOWS", "NEITHER", "BOTH"} == by_platform["windows"] - {"PYTHONUTF8", "USE_KINETO", "CC"}
    assert (facts["audio windows USE_KINETO"], facts["triton windows LLVM_SYSPATH"]) == ("OFF", "computed")
    projects = upstream_files.projects(checkout)
    assert projects["flash attention targets"] == frozenset({"gfx942"})
    assert {"torch carries torch/lib/a.dll", "torch carries torch/lib/uv.dll"} <= set(projects)
    assert (projects["audio origin"], projects["triton windows commit"]) == ("url", "abc")


@pytest.mark.parametrize(
    ("read", "path", "text"),
    [
        (upstream_files.targets, upstream_files.TARGETS, "therock_add_amdgpu_target(${NEW} ${NAME})"),
        (upstream_files.libraries, upstream_files.DIST_INFO, 'LibraryEntry("a", "core", PATTERN, "")'),
        (upstream_files.skips, f"{upstream_files.SKIPS}/linux.py", "skip_tests = read()"),
        (upstream_files.matrix, upstream_files.FAMILIES, "amdgpu_family_info_matrix_weekly = read()"),
        (
            upstream_files.artifacts,
            upstream_files.PACKAGES,
            'def core_artifact_filter(an):\n    return an.name in read() and an.component in ["lib"]',
        ),
        (upstream_files.preloads, BUILD, "LINUX_LIBRARY_PRELOADS = read()"),
        (lambda checkout: upstream_files.flags(checkout, [BUILD]), BUILD, "    p.add_argument(NAME)"),
    ],
)
def test_what_a_reader_would_pass_over_is_an_error(
    checkout: Checkout, tmp_path: Path, read: upstream_files.Reader, path: str, text: str
) -> None:
    shutil.copytree(checkout.root, tmp_path, dirs_exist_ok=True)
    before = FILES.get(path, "")
    if path == BUILD and "=" in text:
        before = before.replace("LINUX_LIBRARY_PRELOADS", "OTHER")
    before = (
        before.replace(text.split(":", maxsplit=1)[0], "def before()") if text.startswith("def ") else before
    )
    (tmp_path / path).write_text(f"{before}{text}\n", encoding="utf-8")
    try:
        facts = read(Checkout(tmp_path))
    except upstream_files.UpstreamError:
        return
    assert any(isinstance(value, upstream_files.Unread) for value in facts.values())


def test_a_table_that_is_imported_is_read_or_named(checkout: Checkout, tmp_path: Path) -> None:
    shutil.copytree(checkout.root, tmp_path, dirs_exist_ok=True)
    name = "amdgpu_family_info_matrix_presubmit"
    beginning, table, rest = FILES[upstream_files.FAMILIES].partition(f"{name} = ")
    path = tmp_path / upstream_files.FAMILIES
    path.write_text(f"from tables import presubmit as {name}\n{beginning}other = {rest}", encoding="utf-8")
    with pytest.raises(upstream_files.UpstreamError, match=name):
        upstream_files.matrix(Checkout(tmp_path))
    (path.parent / "tables.py").write_text(f"from tables import x\npresubmit = {rest}", encoding="utf-8")
    assert table
    assert upstream_files.matrix(Checkout(tmp_path)) == upstream_files.matrix(checkout)


def test_a_digest_is_of_the_code_alone(checkout: Checkout, tmp_path: Path) -> None:
    digest = checkout.digest(BUILD, ["do_build_pytorch"])
    for text, is_equal in [
        (FILES[BUILD].replace("'''Say something.'''", "'''Say\n\n    more.'''\n    # and why"), True),
        (FILES[BUILD].replace('"USE_ROCM"] = "ON"', '"USE_ROCM"] = "OFF"'), False),
        (FILES[BUILD].replace('"SUFFIX"', '"OTHER"'), True),  # a different function
        (
            FILES[BUILD]
            .replace('"ON"\n    env["V', "(\n        'ON'\n    )\n\n    env[\n'V")
            .replace('VERSION"]', "VERSION'\n    ]"),
            True,
        ),
        (FILES[BUILD].replace('("gfx942",)', "(\n        'gfx942',\n    )"), True),
        (
            FILES[BUILD].replace(
                '(env, "LDFLAGS", "-L")', "(\n        env,\n        'LDFLAGS',\n        '-L',\n    )"
            ),
            True,
        ),
        (FILES[BUILD].replace('"torch/lib/a.dll")', '"torch/lib/b.dll")'), False),
        (FILES[BUILD].replace("version()", "version(None)"), False),
    ]:
        path = tmp_path / BUILD
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        assert (Checkout(tmp_path).digest(BUILD, ["do_build_pytorch"]) == digest) is is_equal


def test_a_product_that_upstream_adds_or_drops_is_named() -> None:
    names = ("MI350X/MI355X CDNA", "MI355X CDNA", "MI350X/MI355X/MI380X", "MI355X/MI380X")
    facts = [our_facts.gpu_targets({"gfx950 product": name})["gfx950 product"] for name in names]
    assert facts == [names[0], "with 350", "without 380", "without 380, with 350"]


def test_the_workflows_whose_runs_are_asked_for_are_compared(checkout: Checkout) -> None:
    assert our_facts.workflow_names() == ("multi_arch_ci.yml", "multi_arch_release.yml")
    checkouts = {THEROCK: checkout}
    rows = [row for row in compare_facts.ROWS if row.category == "workflows"]
    result = compare_facts.compare(rows, checkouts, {"rules": [], "differences": []}, TODAY)
    assert [str(each) for each in result.differences] == [
        "workflows: multi_arch_release.yml: ours is there, upstream's absent"
    ]


def test_defaults_and_choices_of_ours_are_compared() -> None:
    facts = our_facts.flags({})
    fetch, build = "build_tools/fetch_artifacts.py", f"{BUILD} build"
    assert facts[f"{fetch} --output-dir default"] == "build/artifacts"
    assert facts[f"{fetch} --platform choices"] == frozenset({"linux", "windows"})
    assert facts[f"{build} --pytorch-build-number default"] == "1"
    assert "nightly-bkc" in str(facts[f"{build} --release-type choices"])
    assert facts[f"{upstream_files.REPOSITORIES[2]} checkout --hipify default"] == "True"
    assert f"{build} --clean default" not in facts  # false, as where it is not given


def test_the_program_prints_what_it_compared(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_facts.main(["--therock", str(checkout.root)]) == 1
    printed = capsys.readouterr().out
    assert "preloads: ours" not in printed
    assert "preloads: linux rccl: ours is there, upstream's absent" in printed
    assert compare_facts.main(["--pytorch", str(checkout.root), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["compared"]["fat wheels"] > 10
    assert {"category": "fat wheels", "name": "librccl", "here": "there", "there": "absent"} in answer[
        "differences"
    ]
    for words in ([], ["--therock", "missing"]):
        with pytest.raises(SystemExit) as caught:
            compare_facts.main(words)
        assert caught.value.code == 2
