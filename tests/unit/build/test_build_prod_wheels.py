"""The flags of upstream's build script, which follow from the stack."""

from pathlib import Path

import pytest

from cairn import venv
from cairn.build import job
from cairn.build.model import BuiltWheel
from cairn.cli.main import main
from cairn.cli.upstream import build_prod_wheels
from cairn.cli.upstream.build_prod_wheels import Build
from cairn.errors import UsageError
from cairn.rocm.install import InstallRequest
from cairn.targets import parse_targets
from helpers import pythons, wheels

BUILDS = Path(__file__).resolve().parents[3] / "external-builds"
SCRIPT = BUILDS / "pytorch" / "build_prod_wheels.py"
OUT = ["build", "--output-dir", "out"]


def parsed(*words: str) -> Build:
    projects = build_prod_wheels._projects(words, SCRIPT)
    return build_prod_wheels._request(build_prod_wheels.make_parser(SCRIPT, projects).parse_args(words))


@pytest.mark.parametrize("stack", ["pytorch", "sample"])
def test_upstreams_names_are_kept(stack: str, tmp_path: Path) -> None:
    folders = {
        "torch": "--pytorch-dir",
        "audio": "--pytorch-audio-dir",
        "vision": "--pytorch-vision-dir",
        "triton": "--triton-dir",
    }
    given = [word for name, flag in folders.items() for word in (flag, str(tmp_path / name))]
    for name in folders:
        (tmp_path / name).mkdir()
    request = parsed("--stack", str(BUILDS / stack), *OUT, *given)
    job = build_prod_wheels._job(request)
    assert {name: job.checkouts[name] for name in folders} == {name: tmp_path / name for name in folders}
    assert job.required == set(folders)
    without = ("--no-build-triton", "--no-build-pytorch-audio", "--no-build-pytorch-vision")
    request = parsed(f"--stack={BUILDS / stack}", *OUT, *without)
    job = build_prod_wheels._job(request)
    assert job.checkouts.keys() - {"apex"} == {"torch"}
    assert job.required == {"torch"}
    request = parsed(*OUT, "--build-triton", "--build-pytorch-audio", "--build-pytorch-vision")
    assert build_prod_wheels._job(request).required == {"torch", "triton", "audio", "vision"}


def test_compile_jobs_are_limited_by_the_flag_that_is_named_for_max_jobs() -> None:
    assert build_prod_wheels._job(parsed(*OUT, "--jobs", "3")).jobs == 3
    assert build_prod_wheels._job(parsed(*OUT)).jobs == 0


def test_each_project_of_a_stack_has_its_flags_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*OUT, "--stack", str(BUILDS / "pyg"), "--no-build-cluster", "--build-scatter"]
    request = parsed(*words)
    job = build_prod_wheels._job(request)
    assert (set(job.checkouts), job.required) == ({"scatter"}, {"scatter"})
    with pytest.raises(SystemExit):
        parsed(*words, "--no-build-triton")
    assert "--no-build-triton" in capsys.readouterr().err


def test_a_stack_that_cannot_be_read_is_what_is_reported(tmp_path: Path) -> None:
    words = [*OUT, "--no-build-triton", "--stack", str(tmp_path / "none")]
    options = build_prod_wheels.make_parser(SCRIPT, build_prod_wheels._projects(words, SCRIPT)).parse_args(
        words
    )
    with pytest.raises(UsageError, match="there is no stack"):
        options.run(options)


def test_a_project_called_like_a_flag_of_the_script_does_not_take_it(tmp_path: Path) -> None:
    text = (BUILDS / "pyg" / "stack.toml").read_text().replace('name = "scatter"', 'name = "output"')
    (tmp_path / "stack.toml").write_text(text)
    (tmp_path / "smoke-tests").mkdir()
    request = parsed(*OUT, "--stack", str(tmp_path), "--no-build-output")
    assert request.output_dir.name == "out"
    assert set(build_prod_wheels._job(request).checkouts) == {"cluster"}


def test_offline_reaches_what_asks_indexes() -> None:
    assert build_prod_wheels._job(parsed(*OUT, "--offline")).sdk.source.offline
    assert not build_prod_wheels._job(parsed(*OUT)).sdk.source.offline


@pytest.mark.parametrize(
    ("given", "requirement"),
    [
        ((), "rocm[libraries,devel]"),
        (("--rocm-extras", "device-gfx1100"), "rocm[libraries,devel,device-gfx1100]"),
        (
            ("--rocm-extras", "device-gfx942, libraries,device-gfx950"),
            "rocm[libraries,devel,device-gfx942,device-gfx950]",
        ),
        (("--rocm-sdk-version", "7.10.0"), "rocm[libraries,devel]==7.10.0"),
        (("--rocm-sdk-version", "==7.10.0a20251120"), "rocm[libraries,devel]==7.10.0a20251120"),
        (("--rocm-sdk-version", ">1.0"), "rocm[libraries,devel]>1.0"),
        (("--rocm-sdk-version", "~=7.10"), "rocm[libraries,devel]~=7.10"),
        (("--rocm-sdk-version", "==7.*"), "rocm[libraries,devel]==7.*"),
        (("--rocm-sdk-version", ""), "rocm[libraries,devel]"),
    ],
)
def test_the_sdk_is_asked_for_as_upstream_asks(given: tuple[str, ...], requirement: str) -> None:
    sdk = parsed(*OUT, *given).sdk_request()
    assert parsed(*given, *OUT).sdk_request() == sdk, "before the command as after it"
    request = InstallRequest(python=Path(), version=sdk.version, extras=sdk.extras)
    assert request.requirement == requirement
    # Only the index knows which version is the newest that a comparison allows.
    assert (sdk.exact is not None) == ("==" in requirement and "*" not in requirement)


def test_what_is_neither_a_version_nor_a_comparison_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("seven", "~7", "7.10.0; evil", ">"):
        with pytest.raises(SystemExit):
            parsed(*OUT, "--rocm-sdk-version", text)
        assert "no version, such as 7.10.0" in capsys.readouterr().err


def test_the_targets_may_stand_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def targets(*words: str) -> tuple[str, ...]:
        return parse_targets(build_prod_wheels._job(parsed(*OUT, *words)).targets or "")

    monkeypatch.setenv("PYTORCH_ROCM_ARCH", "gfx942;gfx1100")
    assert set(targets()) == {"gfx942", "gfx1100"}
    assert "GPU targets gfx942;gfx1100, as PYTORCH_ROCM_ARCH says" in "".join(capsys.readouterr())
    assert targets("--pytorch-rocm-arch", "gfx1201") == ("gfx1201",)
    assert "PYTORCH_ROCM_ARCH" not in "".join(capsys.readouterr())
    monkeypatch.setenv("PYTORCH_ROCM_ARCH", "")
    assert build_prod_wheels._job(parsed(*OUT)).targets is None
    assert "PYTORCH_ROCM_ARCH" not in "".join(capsys.readouterr())


def test_an_environment_of_another_python_is_not_installed_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, other = pythons.several(2)
    environment = venv.create(tmp_path / "env", python=other.path)
    monkeypatch.setenv("VIRTUAL_ENV", str(environment.path))
    words = [*OUT, "--output-dir", str(tmp_path / "out"), "--root-checkout-dir", str(tmp_path)]
    assert build_prod_wheels.main([*words, "--install"], script=str(SCRIPT)) == UsageError.exit_code
    assert f"{environment.python} is {other.version}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()  # before anything is built


@pytest.mark.parametrize("python", [None, "#!/bin/sh\nexit 1\n"])
def test_an_environment_without_a_usable_python_stops_no_build_that_need_not_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], python: str | None
) -> None:
    program = tmp_path / "née Änv" / "bin" / "python"
    if python is not None:
        program.parent.mkdir(parents=True)
        program.write_text(python)
        program.chmod(0o755)
    monkeypatch.setenv("VIRTUAL_ENV", str(program.parent.parent))
    words = [*OUT, "--output-dir", str(tmp_path / "out"), "--root-checkout-dir", str(tmp_path)]
    assert build_prod_wheels.main(words, script=str(SCRIPT))
    assert "there is no checkout of torch" in capsys.readouterr().err
    assert build_prod_wheels.main([*words, "--install"], script=str(SCRIPT)) == UsageError.exit_code
    message = capsys.readouterr().err
    assert str(program if python else program.parent.parent) in message
    assert "--python" not in message  # which the script does not have


def test_wheels_are_installed_beside_the_folder_that_a_killed_pip_has_left(tmp_path: Path) -> None:
    environment = venv.create(tmp_path / "env")
    (environment.site_packages / "left_over-1.0.dist-info").mkdir()
    wheel = wheels.build_wheel(tmp_path, requires=())
    built = BuiltWheel(
        project="torch",
        wheel=wheel,
        sha256="",
        version="1.0",
        targets=(),
        seconds=0,
        started=0,
        ended=0,
        cached=True,
    )
    words = ["build", "--output-dir", str(tmp_path / "out"), "--pytorch-rocm-arch", "cpu", "--offline"]
    job.install(build_prod_wheels._job(parsed(*words)), [built], environment.python)
    assert "demo" in venv.installed_names(environment)


@pytest.mark.usefixtures("build_cache")
def test_a_build_prints_what_it_takes_and_leaves_no_folder_where_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "src" / "pytorch").mkdir(parents=True)
    folders = ("--root-checkout-dir", str(tmp_path / "src"), "--output-dir", str(tmp_path / "out" / "wheels"))
    shared = ("build", *folders, "--jobs", "2")
    assert main([*shared, "--stack", str(SCRIPT.parent), "--targets", "gfx942"])
    told = [capsys.readouterr().err]
    assert build_prod_wheels.main([*shared, "--pytorch-rocm-arch", "gfx942"], script=str(SCRIPT))
    told.append(capsys.readouterr().err)
    line = "first builds of torch take about 20.0 GB of disk, and about 3 h on 2 cores, less where wheels are"
    for text in told:
        assert line in " ".join(text.split())
        assert "no ROCm SDK is installed" in text
    assert [path.name for path in tmp_path.iterdir()] == ["src"]
