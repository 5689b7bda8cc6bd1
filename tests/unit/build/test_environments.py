import concurrent.futures
import contextlib
import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn import interpreters, venv
from cairn.build import environments
from cairn.build.environments import Content
from cairn.errors import BuildError, UsageError
from cairn.interpreters import Interpreter
from cairn.venv import PackageSource, VirtualEnvironment
from helpers.wheels import build_wheel

pytestmark = pytest.mark.usefixtures("build_cache")


def ready(tmp_path: Path, *requirements: str, what: str = "torch") -> VirtualEnvironment:
    source = PackageSource(no_index=True, find_links=(str(tmp_path / "links"),))
    content = Content(requirements=requirements, what=what)
    return environments.ready(content, source, log=tmp_path / "log", say=lambda _: None)


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    (tmp_path / "links").mkdir()
    return build_wheel(tmp_path / "links", name="tool", requires=())


def inode(env: VirtualEnvironment) -> int:
    return env.site_packages.stat().st_ino


@pytest.mark.usefixtures("tool")
def test_an_environment_is_made_once_for_all_that_want_the_same(tmp_path: Path) -> None:
    first = ready(tmp_path, "tool>=0.5", what="torch")
    assert (first.site_packages / "tool" / "__init__.py").is_file()
    (first.site_packages / "__pycache__").mkdir(exist_ok=True)  # as Python writes it
    (first.site_packages / "__pycache__" / "a.pyc").touch()
    second = ready(tmp_path, "tool==1.0", what="vision")
    assert (second.path, inode(second)) == (first.path, inode(first))


def test_different_bytes_of_one_version_are_a_different_environment(tmp_path: Path, tool: Path) -> None:
    first = ready(tmp_path, "tool")
    tool.unlink()
    build_wheel(tmp_path / "links", name="tool", requires=(), files={"tool/__init__.py": b"VALUE = 2\n"})
    second = ready(tmp_path, "tool")
    assert second.path != first.path
    assert (second.site_packages / "tool" / "__init__.py").read_bytes() == b"VALUE = 2\n"


def test_one_that_is_not_as_it_was_made_is_made_again(tmp_path: Path) -> None:
    env = ready(tmp_path)
    module, note = env.bin / "activate", env.path / "cairn-environment.json"
    more = env.site_packages / "other.py"
    before = module.read_bytes()
    faults: dict[str, Callable[[], object]] = {
        "file gone": module.unlink,
        "file added": more.touch,
        "file changed": lambda: module.write_bytes(b"exit 1\n"),
        "no note": note.unlink,  # it was killed before its end
        "half a note": lambda: note.write_text(note.read_text()[:40]),
    }
    for fault, happen in faults.items():
        environments.give_back(env, "torch")  # no build runs in it any more
        happen()
        assert ready(tmp_path) == env
        assert (module.read_bytes(), more.exists()) == (before, False), fault


def test_a_build_that_changes_its_environment_is_told_and_the_next_gets_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = ready(tmp_path)
    environments.give_back(env, "torch")
    assert not capsys.readouterr().err
    (env.site_packages / "smuggled.py").touch()
    environments.give_back(env, "torch")
    assert "the build of torch has changed its environment" in capsys.readouterr().err
    assert not (ready(tmp_path).site_packages / "smuggled.py").exists()


def test_one_that_a_build_has_changed_stays_for_the_builds_that_run_in_it(tmp_path: Path) -> None:
    one, other = ready(tmp_path, what="torch"), ready(tmp_path, what="vision")
    assert one.path == other.path
    (one.site_packages / "smuggled.py").touch()
    environments.give_back(one, "torch")
    third = ready(tmp_path, what="audio")
    assert other.python.exists(), "vision still runs in it"
    assert third.path != other.path
    assert not (third.site_packages / "smuggled.py").exists()
    assert ready(tmp_path, what="audio").path == third.path
    environments.give_back(other, "vision")
    assert ready(tmp_path).path == one.path, "free again, and made again"
    assert not (one.site_packages / "smuggled.py").exists()


def test_what_another_process_builds_in_is_not_taken_from_it(tmp_path: Path) -> None:
    env = ready(tmp_path)
    environments.give_back(env, "torch")
    program = (
        "import sys; from pathlib import Path; from cairn.build.cache import in_use\n"
        "in_use.note(Path(sys.argv[1]), sys.argv[2]); print('noted', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(environments.root()), env.path.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        (env.site_packages / "smuggled.py").touch()
        beside = ready(tmp_path)
        process.kill()
    assert (beside.path != env.path, (env.site_packages / "smuggled.py").exists()) == (True, True)
    environments.give_back(beside, "torch")
    assert ready(tmp_path).path == env.path, "the other is gone, however it ended"
    assert not (env.site_packages / "smuggled.py").exists()


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = [pool.submit(ready, tmp_path) for _ in range(3)]
    assert len({inode(run.result()) for run in runs}) == 1


def test_requirements_that_contradict_each_other_are_told_before_anything_is_installed(
    tmp_path: Path,
) -> None:
    with pytest.raises(BuildError, match="the build requirements of torch cannot be met") as caught:
        ready(tmp_path, "tool<1", "tool>=1")
    assert any("tool" in line for line in caught.value.tail)
    assert not environments.root().exists()


def test_what_no_build_has_used_for_long_is_removed(tmp_path: Path) -> None:
    old = ready(tmp_path)
    new = environments.ready(
        Content(requirements=(), sdk=tmp_path, what="torch"),
        PackageSource(),
        log=tmp_path / "log",
        say=lambda _: None,
    )
    long_ago = time.time() - 40 * 86400
    for path in (old.path / "cairn-environment.json", old.path.with_suffix(".lock")):
        os.utime(path, (long_ago, long_ago))
    assert environments.trim(dt.timedelta(days=30)) == (), "a build of 40 days, or a clock that jumped"
    environments.give_back(old, "torch")
    assert environments.trim(dt.timedelta(days=30)) == (old.path,)
    assert not old.path.exists()
    assert venv.describe(new.path).python.exists()


def test_a_requirements_file_may_lie_in_a_folder_of_any_name(tmp_path: Path) -> None:
    listed = []
    for number, folder in enumerate(("a b", "a #1", "${HOME}", "é ñ", "-q", "a\\b", "a;b,c")):
        build_wheel(tmp_path / "links", name=f"tool{number}", requires=())
        listed.append(tmp_path / folder / "requirements-build.txt")
        listed[-1].parent.mkdir()
        listed[-1].write_text(f"tool{number}==1.0\n")
    source = PackageSource(no_index=True, find_links=(str(tmp_path / "links"),))
    locked = environments.resolve_requirements(
        [f"-r {path}" for path in listed], source, python=Path(sys.executable), project="torch"
    )
    assert [line.split()[0] for line in locked.splitlines() if "==" in line] == [
        f"tool{number}==1.0" for number in range(7)
    ]


def test_what_the_sdk_has_is_not_looked_for(tmp_path: Path, tool: Path) -> None:
    """It is imported from its own environment: no index need have it, at that version or at all."""
    sdk = venv.describe(tmp_path / "sdk")
    info = sdk.site_packages / "rocm-7.10.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rocm\nVersion: 7.10.0\n")
    wheel = build_wheel(tmp_path, name="torch", requires=("rocm[libraries]==7.10.0", "tool"))
    env = environments.ready(
        Content(requirements=(), wheels=(wheel,), sdk=sdk.path, what="vision"),
        PackageSource(no_index=True, find_links=(str(tool.parent),)),
        log=tmp_path / "log",
        say=lambda _: None,
    )
    assert {path.name for path in env.site_packages.iterdir()} >= {"torch", "tool"}


def another_python() -> Interpreter | None:
    for version in ("3.13", "3.12", "3.11"):
        with contextlib.suppress(UsageError):
            if (found := interpreters.find(version)).version != interpreters.current().version:
                return found
    return None


def test_an_environment_of_a_different_python_is_known_by_its_own_folders(tmp_path: Path, tool: Path) -> None:
    other = another_python()
    if other is None:
        pytest.skip("no second Python here")
    content = Content(requirements=("tool",), sdk=tmp_path / "sdk", python=other, what="torch")
    source = PackageSource(no_index=True, find_links=(str(tool.parent),))
    env = environments.ready(content, source, log=tmp_path / "log", say=lambda _: None)
    assert env.site_packages.parent.name == f"python{other.version}"
    assert {path.name for path in env.site_packages.iterdir()} >= {"tool", "cairn_sdk.pth"}
    environments.give_back(env, "torch")
    assert (env.path / "cairn-environment.json").exists()
    (env.site_packages / "tool" / "__init__.py").write_text("changed = True")
    environments.give_back(env, "torch")
    assert not (env.path / "cairn-environment.json").exists()


def test_what_uv_refuses_is_one_error_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    env = venv.create(tmp_path / "env")
    log = tmp_path / "log"

    def install(requirement: str) -> None:
        environments.install(env, [requirement], PackageSource(), subject="the tools", log=log)

    with pytest.raises(BuildError, match="the tools cannot be installed") as caught:
        install("no-such-thing")
    assert any("no-such-thing was not found" in line for line in caught.value.tail)
    assert "no-such-thing was not found" in log.read_text()
    assert "PIP_EXTRA_INDEX_URL" not in (caught.value.tip or "")
    (tmp_path / "links").mkdir()
    build_wheel(tmp_path / "links", name="tool", requires=())
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    for requirement in ("no-such-thing==1+cpu", "tool==1.0+cpu"):  # PyPI takes no local versions
        with pytest.raises(BuildError, match="the tools cannot be installed") as caught:
            install(requirement)
        assert "PIP_EXTRA_INDEX_URL" in (caught.value.tip or "")


def test_a_build_environment_shares_no_file_with_uvs_cache(tmp_path: Path, tool: Path) -> None:
    env = ready(tmp_path, "tool")
    assert tool.is_file()
    linked = [path for path in env.site_packages.rglob("*") if path.is_file() and path.stat().st_nlink > 1]
    assert linked == []


def test_a_file_that_differs_from_its_hash_is_not_installed(tmp_path: Path, tool: Path) -> None:
    source = PackageSource(no_index=True, find_links=(str(tool.parent),))
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"tool==1.0 --hash=sha256:{'0' * 64}\n")
    env = venv.create(tmp_path / "env")
    words = ["--require-hashes", "--no-deps", "-r", str(requirements)]
    with pytest.raises(BuildError, match="the tools cannot be installed") as caught:
        environments.install(env, words, source, subject="the tools", log=tmp_path / "log")
    assert any("Hash mismatch" in line for line in caught.value.tail)
    assert not (env.site_packages / "tool").exists()
