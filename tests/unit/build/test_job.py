from pathlib import Path

import pytest
from msgspec import structs

from cairn import stack as stacks
from cairn.build import job
from cairn.build.build_options import CompilerCache
from cairn.build.model import Job
from cairn.errors import PrerequisiteError, UsageError
from cairn.stack import Feature, Sdk, Stack
from helpers.build import MakeRequest, project, repository

STACK = Stack(
    name="s",
    line="nightly",
    targets=("gfx942",),
    projects=(structs.replace(project("torch"), version_file="version.txt"),),
    features={"flash_attention": Feature(needs=("triton",), targets=("gfx90a", "gfx942", "gfx11"))},
)


@pytest.mark.parametrize(
    ("targets", "projects", "chosen", "on"),
    [
        (("gfx942",), ("torch", "triton"), {}, True),
        (("gfx1030", "gfx1100"), ("torch", "triton"), {}, True),
        (("gfx1030",), ("torch", "triton"), {}, False),
        (("gfx942",), ("torch",), {}, False),
        (("gfx942",), ("torch",), {"flash_attention": True}, True),
        (("gfx942",), ("torch", "triton"), {"flash_attention": False}, False),
    ],
)
def test_a_feature_is_on_where_it_can_work_unless_chosen(
    targets: tuple[str, ...], projects: tuple[str, ...], chosen: dict[str, bool], *, on: bool
) -> None:
    found = job.features(STACK, targets, {name: Path(name) for name in projects}, chosen)
    assert ("flash_attention" in found) is on


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("version_suffix", ("rocm7.10.0", "+rocm 7", "+", "+a+b", "+\n", "+rocm7.10.0\n", "+rocm7\nTag: x")),
        ("version_suffix", ("+rocm7|evil==1", "+rocm7/../x")),
        ("build_number", ("one", "-1", "", "1\nTag: x", "1; rm", "٣", "9" * 5000)),
    ],
)
def test_values_that_reach_versions_and_environments_are_refused_at_once(
    field: str, values: tuple[str, ...], tmp_path: Path
) -> None:
    for value in values:
        with pytest.raises(UsageError) as caught:
            Job(stack=STACK, checkouts={}, output_dir=tmp_path, **{field: value})  # type: ignore[arg-type]
        assert repr(value)[:20] in str(caught.value)


def test_suffixes_that_pep_440_allows_are_taken(tmp_path: Path) -> None:
    for suffix in (None, "", "+rocm7.10.0", "+devrocm7.10.0.dev0-efed3c", "+CPU"):
        wanted = Job(stack=STACK, checkouts={}, output_dir=tmp_path, version_suffix=suffix)
        assert wanted.version_suffix == suffix


def rocm_only_job(tmp_path: Path, *, targets: str) -> Job:
    torch = repository(tmp_path / "t", {"version.txt": "1.0", "setup.py": ""})
    apex = repository(tmp_path / "a", {"version.txt": "1.0", "setup.py": ""})
    own = structs.replace(
        STACK.projects[0], name="apex", distribution="apex", checkout_dir="a", rocm_only=True
    )
    stack = structs.replace(STACK, sdk=Sdk(version="7.0"), projects=(*STACK.projects, own))
    return Job(
        stack=stack,
        checkouts={"torch": torch, "apex": apex},
        output_dir=tmp_path,
        targets=targets,
        env_dir=tmp_path / "env",
    )


@pytest.mark.parametrize("written", ["cpu", " cpu ", "cpu,"])
def test_cpu_needs_no_sdk_however_it_is_written_and_leaves_out_what_is_rocms_own(
    written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = rocm_only_job(tmp_path, targets=written)
    (planned,) = job.plans_of((wanted,))
    assert (planned[0].request.for_cpu, planned[0].request.sdk) == (True, None)
    assert [step.project.name for step in planned] == ["torch"]
    assert "skipping apex: there is no build of it without ROCm" in capsys.readouterr().err
    required = structs.replace(wanted, required=frozenset({"apex"}))
    with pytest.raises(UsageError, match="apex cannot be built for the CPU"):
        job.plans_of((required,))
    for on_gpu in (wanted, required):
        with pytest.raises(PrerequisiteError, match="SDK"):
            job.plans_of((structs.replace(on_gpu, targets="gfx942"),))


def test_the_pytorch_stack_has_apex_pinned_by_torch_and_for_rocm_only() -> None:
    folder = Path(__file__).resolve().parents[3] / "external-builds" / "pytorch"
    apex = stacks.load(folder).for_line("release/2.9").project("apex")
    assert (apex.pin, apex.distribution, apex.checkout_dir) == ("related_commits", "apex", "apex")
    assert apex.rocm_only


@pytest.mark.parametrize(
    ("compiler_cache", "remote", "expected"),
    [
        (None, "http://127.0.0.1:1", False),
        ("sccache", "", True),
        ("ccache", "", False),
        ("ccache", "file:/srv/ccache", False),
        ("ccache", "file:/srv/ccache redis://127.0.0.1:1|read-only", True),
    ],
)
def test_a_build_has_a_network_for_its_compiler_cache(
    request_for: MakeRequest,
    monkeypatch: pytest.MonkeyPatch,
    compiler_cache: CompilerCache | None,
    remote: str,
    *,
    expected: bool,
) -> None:
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", remote)
    request = structs.replace(request_for(base=""), compiler_cache=compiler_cache)
    assert request.has_network(project("base")) is expected
    assert request.has_network(project("base", network=True))
