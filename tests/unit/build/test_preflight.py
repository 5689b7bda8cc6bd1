"""What can be known before a build is said before the SDK is downloaded and anything is compiled."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from cairn.build import job
from cairn.build.model import Job, SdkRequest
from cairn.errors import (
    CairnError,
    PrerequisiteError,
    ProblemsError,
    SourceError,
    SystemFailureError,
    UsageError,
)
from cairn.sources.worktree import journal
from cairn.stack import Cost, Sdk, Stack
from cairn.venv import PackageSource
from helpers.build import project, repository
from helpers.serving import serving
from helpers.sources import git

TORCH = project("torch", version_file="version.txt")
AUDIO = project("audio", distribution="torchaudio", version_file="version.txt", needs=("torch",))
NOTE = journal.Journal(project="torch", origin="u", hashtag="main", commit="0" * 40, phase="ready")


@pytest.fixture
def wanted(tmp_path: Path, build_cache: Path) -> Job:  # noqa: ARG001 - its place alone
    """A job for a GPU, whose SDK is nowhere: asking for it would fail in another way than is tested here."""
    trees = {
        name: repository(tmp_path / name, {"version.txt": "2.9.0a0\n", "setup.py": ""})
        for name in ("torch", "audio")
    }
    return Job(
        stack=Stack(name="s", line="l", targets=("gfx942",), projects=(TORCH, AUDIO), sdk=Sdk()),
        checkouts=trees,
        required=frozenset({"torch"}),
        output_dir=tmp_path / "out",
        sdk=SdkRequest(source=PackageSource(index_url="http://127.0.0.1:9/none/")),
        install_rocm=True,
        targets="gfx942",
        env_dir=tmp_path / "envs",
    )


def refused(wanted: Job) -> CairnError:
    with pytest.raises(CairnError) as caught:
        job.run((wanted,))
    assert not (wanted.environments() / "sdk").exists(), "the SDK was asked for"
    return caught.value


def test_an_unfinished_checkout(wanted: Job) -> None:
    phases: tuple[journal.Phase, ...] = ("moving", "placed", "hipifying")
    for phase in phases:
        journal.write(wanted.checkouts["torch"] / ".git", structs.replace(NOTE, phase=phase))
        error = refused(wanted)
        assert isinstance(error, SourceError)
        assert "torch is unfinished" in str(error)
        assert "checkout" in (error.tip or "")


def test_a_version_file_without_a_version(wanted: Job) -> None:
    for text in ("2.9.0 beta", "", "2.9\n2.10", "<<<<<<< HEAD", "two.nine", "2.9.0+"):
        (wanted.checkouts["torch"] / "version.txt").write_text(text)
        error = refused(wanted)
        assert isinstance(error, SourceError), text
        assert "version.txt" in str(error)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"targets": "gfx9420"}, "gfx9420"),
        ({"targets": "cpu,gfx942"}, "cpu"),
        ({"channel": "stable", "sdk": SdkRequest(version="7.10.0a20251124")}, "stable"),
        ({"sdk": SdkRequest(version="seven")}, "seven"),
    ],
)
def test_what_was_asked_for_and_is_not_possible(wanted: Job, changes: dict[str, object], said: str) -> None:
    error = refused(structs.replace(wanted, **changes))  # type: ignore[arg-type]
    assert error.exit_code == UsageError.exit_code
    assert said in str(error)


def test_a_suffix_after_a_version_that_has_one(wanted: Job) -> None:
    (wanted.checkouts["torch"] / "version.txt").write_text("2.9.0+git1234")
    error = refused(structs.replace(wanted, version_suffix="+rocm7.10.0"))
    assert "2.9.0+git1234+rocm7.10.0" in str(error)


def test_a_missing_checkout(wanted: Job, tmp_path: Path) -> None:
    gone = structs.replace(wanted, checkouts={"torch": tmp_path / "gone"})
    assert f"no checkout of torch at {tmp_path / 'gone'}" in str(refused(gone))
    assert "nothing to build" in str(refused(structs.replace(gone, required=frozenset())))


def test_a_folder_that_is_no_checkout_or_has_nothing_to_build(wanted: Job, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain = structs.replace(wanted, checkouts={"torch": tmp_path / "plain"})
    assert "is not a git checkout" in str(refused(plain))
    (wanted.checkouts["torch"] / "setup.py").unlink()
    assert "nothing to build" in str(refused(wanted))


def test_a_machine_without_a_compiler_for_the_cpu(wanted: Job) -> None:
    lacking = structs.replace(wanted, targets="cpu", build_env=("CXX=no-such-compiler",))
    assert isinstance(refused(lacking), PrerequisiteError)


def test_a_folder_that_cannot_be_written(wanted: Job, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "out", Path("/proc/no/out")):
        error = refused(structs.replace(wanted, output_dir=place))
        assert isinstance(error, SystemFailureError)
        assert str(place) in str(error)


def test_all_that_is_wrong_is_said_at_once(wanted: Job) -> None:
    (wanted.checkouts["torch"] / "version.txt").write_text("2.9.0 beta")
    journal.write(wanted.checkouts["audio"] / ".git", structs.replace(NOTE, phase="hipifying"))
    wrong = structs.replace(wanted, targets="gfx9420", output_dir=Path("/proc/no"), build_env=("TOKEN=1",))
    error = refused(wrong)
    assert isinstance(error, ProblemsError)
    said = "\n".join(str(problem) for problem in error.problems)
    for part in ("gfx9420", "version.txt", "audio is unfinished", "/proc/no", "looks like a secret"):
        assert part in said
    assert error.exit_code == UsageError.exit_code


def test_the_plan_says_so_too_and_asks_for_no_output_folder(wanted: Job) -> None:
    (wanted.checkouts["torch"] / "version.txt").write_text("2.9.0 beta")
    cpu = structs.replace(wanted, targets="cpu", install_rocm=False)
    with pytest.raises(SourceError, match=r"version\.txt"):
        job.plans_of((cpu,))[0]
    assert not wanted.output_dir.exists()


def test_a_stack_without_rocm_has_no_gpu_targets(wanted: Job) -> None:
    plain = structs.replace(wanted, stack=structs.replace(wanted.stack, sdk=None))
    assert "gfx942" in str(refused(plain))


def test_a_disk_that_is_full(wanted: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=20_000_000))
    assert "only 20.0 MB are free" in str(refused(wanted))


def test_a_disk_that_a_first_build_would_fill(wanted: Job, capsys: pytest.CaptureFixture[str]) -> None:
    costs = {"torch": Cost(disk=10**18), "sdk": Cost(disk=10**18)}
    asking = structs.replace(wanted, stack=structs.replace(wanted.stack, costs=costs))
    refused(structs.replace(asking, build_env=("TOKEN=1",)))
    assert "torch, audio, sdk take about 2000000.0 TB the first time" in " ".join(
        capsys.readouterr().err.split()
    )
    (wanted.checkouts["torch"] / "build").mkdir()  # was built before
    refused(structs.replace(asking, targets="cpu", build_env=("TOKEN=1",)))
    assert "the first time" not in capsys.readouterr().err


def test_a_tree_that_is_not_hipified_is_not_built_for_rocm(wanted: Job) -> None:
    torch = structs.replace(TORCH, hipify="build_amd")
    stack = structs.replace(wanted.stack, projects=(torch, AUDIO))
    asked = structs.replace(wanted, stack=stack, build_env=("TOKEN=1",))  # refused in any case

    def said(asked: Job) -> str:
        return "\n".join(map(str, getattr(refused(asked), "problems", ["the token"])))

    assert "is not hipified" in said(asked)
    assert "is not hipified" not in said(structs.replace(asked, targets="cpu"))
    git(wanted.checkouts["torch"], "tag", "THEROCK_HIPIFY_DIFFBASE")
    assert "is not hipified" not in said(asked)


@pytest.mark.parametrize(
    ("names", "asked", "said"),
    [
        (
            ("rocm", "rocm-sdk-libraries-gfx110x-all"),
            "gfx1100,gfx942",
            "no code for gfx942: it is for gfx1100",
        ),
        (("rocm-sdk-device-gfx1100", "rocm-sdk-libraries"), "gfx110X-all", "no code for gfx1101, gfx1102"),
        (("rocm-sdk-libraries-gfx1100-gfx942",), "gfx90a:xnack+", "no code for gfx90a:xnack+"),
        (("rocm_sdk_device_gfx1100",), "gfx942", "no code for gfx942"),
        (("rocm-sdk-device-gfx1100", "old-rocm-sdk-device-gfx942"), "gfx942", "no code for gfx942"),
        (("rocm-sdk-libraries-gfx94x-dcgpu",), "gfx942:xnack-", None),
        (("rocm-sdk-libraries-next",), "gfx942", None),  # a name that says nothing
        (("rocm",), "gfx942", None),
    ],
)
def test_targets_that_the_index_has_no_sdk_for_are_refused_before_the_download(
    names: tuple[str, ...], asked: str, said: str | None, wanted: Job, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / "index" / name).mkdir(parents=True)
    with serving(tmp_path / "index") as url:
        source = SdkRequest(source=PackageSource(index_url=f"{url}/"))
        asking = structs.replace(wanted, sdk=source, targets=asked, build_env=("TOKEN=1",))
        text = str(refused(asking)) + "".join(map(str, getattr(refused(asking), "problems", ())))
    assert "looks like a secret" in text
    assert ("the ROCm SDK has no code" in text) is (said is not None)
    assert said is None or said in text


def test_targets_that_the_installed_sdk_has_no_code_for_are_refused(wanted: Job) -> None:
    folder = wanted.environments() / "sdk"
    marker = {"schema": "cairn.sdk-environment/1", "request": "", "digest": "0", "version": "7.10.0"}
    places = dict.fromkeys(("root", "bin", "cmake"), str(wanted.environments()))
    folder.mkdir(parents=True)
    (folder / "cairn-sdk.json").write_text(json.dumps({**marker, **places, "targets": ["gfx1100"]}))
    asking = structs.replace(wanted, targets="gfx1100,gfx1101", install_rocm=False)
    with pytest.raises(UsageError, match="has no code for gfx1101: it is for gfx1100"):
        job.run((asking,))
    with pytest.raises(UsageError, match="has no code for gfx1101"):
        job.plans_of((asking,))
    generic = json.dumps({**marker, **places, "targets": ["gfx11-generic"]})
    (folder / "cairn-sdk.json").write_text(generic)
    assert job.plans_of((asking,))[0][0].request.targets == ("gfx1100", "gfx1101")
