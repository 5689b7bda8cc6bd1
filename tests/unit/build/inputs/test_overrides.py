import json
from pathlib import Path

import pytest
from msgspec import structs

from cairn import stack as stacks
from cairn.build import execution, job, plan
from cairn.build.inputs import variables
from cairn.build.model import BuildRequest
from cairn.cli import binder, main
from cairn.cli.build import run
from cairn.cli.ci import run as trail_command
from cairn.cli.upstream import build_prod_wheels
from cairn.errors import BuildError, ProblemsError, UsageError, WheelError
from cairn.sources.manifest import changelog, manifest
from cairn.stack import Environment
from helpers.build import MakeRequest, with_project

PYTORCH = Path(__file__).resolve().parents[4] / "external-builds" / "pytorch"
STACK = stacks.load(PYTORCH)
SAYING = """
import os
def build_wheel(folder, settings=None, metadata=None):
    raise SystemExit("it sees " + " ".join(str(os.environ.get(n)) for n in ("USE_FBGEMM", "USE_X", "OPT")))
"""


def with_env(request: BuildRequest, *texts: str) -> BuildRequest:
    return structs.replace(request, build_env=variables.parse_build_env(texts, request.stack))


def keys(request: BuildRequest) -> dict[str, str]:
    return {step.project.name: step.key for step in plan.make(request)}


def test_what_was_written_is_read() -> None:
    texts = ["USE_FBGEMM=0", "torch:USE_X=a=b c", "torchvision:FLAGS=", "USE_FBGEMM=1"]
    assert variables.parse_build_env(texts, STACK) == {
        "USE_FBGEMM": "1",
        "torch:USE_X": "a=b c",
        "vision:FLAGS": "",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("USE_FBGEMM", "'USE_FBGEMM' is not NAME=VALUE"),
        ("=1", "'' is not NAME=VALUE"),
        ("2FAST=1", "'2FAST' is not"),
        ("A B=1", "'A B' is not"),
        ("torch:=1", "'torch:' is not"),
        ("-DX=1", "'-DX' is not"),
        ("touch:USE_X=1", "no project 'touch'"),
        ("A=x\ny", "control character"),
        ("A=\0", "control character"),
        ("GITHUB_TOKEN=1", "looks like a secret"),
        ("torch:aws_secret_access_key=1", "looks like a secret"),
        ("INDEX=https://me:hunter2@example.org/", "looks like a secret"),
        ("PYTORCH_ROCM_ARCH=gfx942", "--targets"),
        ("torch:PYTORCH_BUILD_VERSION=1", "--version-suffix"),
        ("PYTORCH_BUILD_NUMBER=2", "--pytorch-build-number"),
        ("ROCM_HOME=/opt/rocm", "--rocm-version"),
        ("USE_FLASH_ATTENTION=ON", "use --enable-pytorch-flash-attention"),
        ("torch:USE_MEM_EFF_ATTENTION=OFF", "use --no-enable-pytorch-flash-attention"),
        ("MAX_JOBS=4", "--jobs"),
        ("USE_ROCM=0", "--targets"),
        ("PATH=/bin", "leave it out"),
        ("PYTHONPATH=/x", "leave it out"),
        ("SOURCE_DATE_EPOCH=1", "leave it out"),
        ("CMAKE_CXX_COMPILER_LAUNCHER=ccache", "--use-ccache"),
    ],
)
def test_what_cannot_be_given_is_refused_with_what_to_do(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        variables.parse_build_env([text], STACK)
    assert said in f"{caught.value} {caught.value.tip}"
    assert "hunter2" not in f"{caught.value} {caught.value.tip}"


def test_variables_that_follow_the_same_flag_are_refused_together() -> None:
    texts = ("USE_FLASH_ATTENTION=0", "MAX_JOBS=4", "USE_MEM_EFF_ATTENTION=off", "USE_FLASH_ATTENTION=0")
    with pytest.raises(ProblemsError) as caught:
        variables.parse_build_env(texts, STACK)
    flash, jobs = caught.value.problems
    assert str(flash).startswith("USE_FLASH_ATTENTION and USE_MEM_EFF_ATTENTION are set by Cairn itself for")
    assert flash.tip == "use --no-enable-pytorch-flash-attention"
    assert str(jobs).startswith("MAX_JOBS is set by Cairn itself for")


def test_a_constant_of_the_stack_can_be_changed_and_a_name_is_no_secret_for_its_letters() -> None:
    assert variables.parse_build_env(
        ["USE_GLOO=OFF", "USE_KEYS=1", "AUTHOR=x", "CXXFLAGS=-g"], STACK
    ).keys() == {*("USE_GLOO", "USE_KEYS", "AUTHOR", "CXXFLAGS")}


def test_a_build_sees_what_is_given_to_it(request_for: MakeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_FBGEMM", "from outside")
    request = with_env(
        request_for(a=SAYING), "USE_FBGEMM=0", "a:USE_X={not a placeholder}", "OPT=1", "a:OPT=2"
    )
    with pytest.raises(BuildError) as caught:
        execution.run(plan.make(request))
    assert "it sees 0 {not a placeholder} 2" in caught.value.tail


def test_it_replaces_a_constant_of_the_stack(request_for: MakeRequest) -> None:
    request = with_project(request_for(a=SAYING), environment=Environment(always={"USE_X": "ON"}))
    with pytest.raises(BuildError) as caught:
        execution.run(plan.make(with_env(request, "USE_X=OFF")))
    assert "it sees None OFF None" in caught.value.tail


def test_it_is_in_the_keys_of_the_projects_that_see_it(request_for: MakeRequest) -> None:
    request = request_for(a="", b="")
    plain, one, both = (keys(with_env(request, *texts)) for texts in ((), ("a:X=1",), ("X=1",)))
    assert plain["a"] != one["a"]
    assert plain["b"] == one["b"] != both["b"]
    assert one["a"] == both["a"]
    assert keys(with_env(request, "X=2"))["b"] != both["b"]


def test_it_is_in_the_manifest_whose_digest_is_that_of_old_without_any() -> None:
    without = manifest.create(
        [], stack="s", line="l", targets=("cpu",), pythons=("3.11",), platform="p", build_env={}
    )
    given = structs.replace(without, build_env={"torch:USE_FBGEMM": "0"})
    assert without.digest() != given.digest()
    (change,) = changelog.between(without, given, commits=False, say=lambda _line: None).values
    assert (change.name, change.before, change.after) == ("--build-env torch:USE_FBGEMM", None, "0")


def test_every_command_that_builds_takes_it(tmp_path: Path) -> None:
    given = ["--build-env", "USE_FBGEMM=0", "--build-env", "torch:USE_X=1"]
    words = ["--stack", str(PYTORCH), *given]
    out = ["--output-dir", str(tmp_path / "out")]
    parser = main.make_parser()
    wanted = run.job_of(binder.make(run.Run, parser.parse_args(["build", *words, *out])))
    script = build_prod_wheels.make_parser(PYTORCH / "build_prod_wheels.py").parse_args(
        ["build", *given, *out]
    )
    assert (
        wanted.build_env
        == build_prod_wheels._job(build_prod_wheels._request(script)).build_env
        == ("USE_FBGEMM=0", "torch:USE_X=1")
    )
    trail = binder.make(trail_command.Run, parser.parse_args(["ci", "run", *words, "--targets", "cpu"]))
    assert trail.how.build_env == ("USE_FBGEMM=0", "torch:USE_X=1")
    frozen = parser.parse_args(["manifest", "create", *words, "--output", "m.json"])
    assert frozen.build_env == ["USE_FBGEMM=0", "torch:USE_X=1"]


def test_the_manifest_beside_the_wheels_names_it(request_for: MakeRequest) -> None:
    request = with_env(request_for(), "USE_FBGEMM=0")
    with pytest.raises(WheelError, match="at least one wheel"):  # of the set, which comes after
        job.write_outputs(request, (), job.manifests_of([request], {request.stack.line: ()})[0])
    assert json.loads((request.output_dir / "manifest.json").read_text())["build_env"] == {"USE_FBGEMM": "0"}


def test_what_is_set_in_the_shell_and_known_to_be_read_is_named_with_what_to_use() -> None:
    environ = {
        "USE_FBGEMM": "0",
        "BUILD_TEST": "0",
        "CXX": "g++",
        "FFMPEG_ROOT": "/f",
        "MKLROOT": "/m",
        "PATH": "/bin",
        "MY_USE_X": "1",
        "EDITOR": "vi",
        "DEBUG": "",
        "AWS_SECRET_ACCESS_KEY": "x",
        "MAX_JOBS": "4",
        "PYTORCH_ROCM_ARCH": "gfx942",
        "LD_LIBRARY_PATH": "/x",
    }
    assert variables.unseen_by_builds(STACK, environ=environ) == (
        *("BUILD_TEST", "CXX", "FFMPEG_ROOT", "LD_LIBRARY_PATH", "MAX_JOBS (--jobs)", "MKLROOT"),
        *("PYTORCH_ROCM_ARCH (--targets (--pytorch-rocm-arch))", "USE_FBGEMM"),
    )
    named = ["CXX", "torch:MKLROOT", "USE_FBGEMM"]
    assert variables.unseen_by_builds(STACK, named, flags=[variables.TARGETS_FLAG], environ=environ) == (
        *("BUILD_TEST", "FFMPEG_ROOT", "LD_LIBRARY_PATH", "MAX_JOBS (--jobs)"),
    )
