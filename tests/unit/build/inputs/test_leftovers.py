"""What a build leaves in a tree, and what lies there that the cache key does not cover."""

import dataclasses
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cairn import venv
from cairn.build import execution, plan
from cairn.build.model import BuildRequest, BuiltWheel, InstalledSdk
from cairn.errors import BuildError, SourceError
from cairn.rocm.install import SdkInfo
from cairn.stack import Sdk as StackSdk
from helpers.build import MakeRequest
from helpers.packing import backend

# Packs the folder `demo` as it lies there, as setuptools does with what package_data names, and keeps a build
# folder whose settings win over later ones, as torch's setup.py does with a CMakeCache.txt.
PACKING = backend("""
import os
def build_wheel(folder, settings=None, metadata=None):
    if os.environ.get("FAIL"):
        raise SystemExit("it failed")
    cached = Path("build/CMakeCache.txt")
    if not cached.exists():
        cached.parent.mkdir(exist_ok=True)
        cached.write_text(os.environ.get("FLAVOUR", ""))
    Path("build/steps").open("a").write("x")
    Path("demo/made.dat").write_text(cached.read_text())
    members = {str(p): p.read_bytes() for p in sorted(Path("demo").rglob("*")) if p.is_file()}
    members["demo/version.txt"] = cached.read_bytes()
    members["demo/steps.txt"] = Path("build/steps").read_bytes()
    return write_wheel(folder, "demo", "1.0", members).name
""")
STUB = "def find_libraries(name):\n    return []\n"
INIT = "demo/_rocm_init.py"

Demo = Callable[..., BuildRequest]


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> InstalledSdk:
    folder = tmp_path_factory.mktemp("sdk")
    env = venv.create(folder / "env")
    (env.site_packages / "rocm_sdk.py").write_text(STUB)
    (env.site_packages / "_rocm_sdk_core" / "lib").mkdir(parents=True)
    (env.site_packages / "_rocm_sdk_core" / "lib" / "liba.so").touch()
    info = SdkInfo(version="7.0", targets=(), root=folder, bin=folder, cmake=folder)
    return InstalledSdk(environment=env.path, info=info, digest="d")


@pytest.fixture
def demo(request_for: MakeRequest, sdk: InstalledSdk) -> Demo:
    """Makes the request to build one checkout, for the CPU or (`rocm=True`) against an SDK."""
    request = request_for(demo=PACKING)
    tree = request.checkouts["demo"]
    (tree / "demo").mkdir()
    (tree / "demo" / "__init__.py").write_text("")
    (tree / ".gitignore").write_text("/build/\n*.dat\n/demo/_rocm_init.py\n/demo/data.bin\n__pycache__/\n")
    for words in (["add", "."], ["commit", "-qm", "two"]):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tree), *words], check=True
        )
    (only,) = request.stack.projects

    def make(*, rocm: bool = False, fail: bool = False, **changes: object) -> BuildRequest:
        variables = {"FLAVOUR": "rocm" if rocm else "cpu"} | ({"FAIL": "1"} if fail else {})
        given = msgspec.structs.replace(only.environment, always=variables)
        project = msgspec.structs.replace(only, rocm_init=INIT, environment=given)
        stack = msgspec.structs.replace(request.stack, projects=(project,), sdk=StackSdk() if rocm else None)
        made = dataclasses.replace(
            request, stack=stack, targets=("gfx942",) if rocm else ("cpu",), sdk=sdk if rocm else None
        )
        return dataclasses.replace(made, **changes)  # type: ignore[arg-type]

    return make


def built(request: BuildRequest) -> BuiltWheel:
    (wheel,) = execution.run(plan.make(request))
    return wheel


def members(wheel: BuiltWheel) -> dict[str, str]:
    with zipfile.ZipFile(wheel.wheel) as archive:
        return {n: archive.read(n).decode() for n in archive.namelist() if n.startswith("demo/")}


def clone(request: BuildRequest, folder: Path) -> BuildRequest:
    (name,) = request.checkouts
    subprocess.run(["git", "clone", "-q", str(request.checkouts[name]), str(folder)], check=True)
    return dataclasses.replace(request, checkouts={name: folder})


def test_the_module_that_loads_rocm_is_in_the_wheel_and_not_left_in_the_tree(demo: Demo) -> None:
    tree = demo().checkouts["demo"]
    exclude = (tree / ".git/info/exclude").read_text()
    assert INIT in members(built(demo(rocm=True)))
    assert not (tree / INIT).exists()
    assert (tree / ".git/info/exclude").read_text() == exclude


def test_a_failed_build_leaves_no_module_behind(demo: Demo) -> None:
    with pytest.raises(BuildError):
        built(demo(rocm=True, fail=True))
    assert not (demo().checkouts["demo"] / INIT).exists()


def test_a_build_for_the_cpu_after_one_for_rocm_is_as_if_the_first_had_not_been(
    demo: Demo, tmp_path: Path
) -> None:
    alone = members(built(clone(demo(cache_dir=tmp_path / "other cache"), tmp_path / "clone")))
    built(demo(rocm=True))
    after = members(built(demo()))
    assert after == alone
    assert members(built(clone(demo(), tmp_path / "third"))) == alone


def test_going_back_to_earlier_settings_goes_on_with_their_build_folder(demo: Demo) -> None:
    built(demo(rocm=True))
    built(demo())
    tree = demo().checkouts["demo"]
    (tree / "demo" / "__init__.py").write_text("EDITED = 1\n")
    again = members(built(demo(rocm=True)))
    assert again["demo/version.txt"] == "rocm"
    assert again["demo/steps.txt"] == "xx"  # the build folder of the first build, not a new one


def test_what_a_killed_build_left_is_taken_out_by_the_next_which_says_where_to(
    demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = plan.make(demo(rocm=True))
    tree = demo().checkouts["demo"]
    script = tmp_path / "kill.py"
    script.write_text(
        "import os, signal, pathlib, sys\n"
        "from cairn.build.inputs import leftovers\n"
        "from cairn.sources.worktree import journal\n"
        "from cairn.sources.git.repository import root_at\n"
        f"root = root_at(pathlib.Path({str(tree)!r}))\n"
        f"flavour, init = {killed.steps[0].flavour!r}, {INIT!r}\n"
        "with leftovers.exchange(root, flavour, ('.',)), journal.lend(root, init, 'x = 1'):\n"
        f"    os.makedirs({str(tree / 'build')!r})\n"
        f"    pathlib.Path({str(tree / 'build/CMakeCache.txt')!r}).write_text('rocm')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, str(script)], check=False).returncode == -9
    assert (tree / INIT).exists()
    (tree / "build" / "since.txt").write_text("a person's, or not")
    found = members(built(demo()))
    aside = tree / ".git" / "cairn-aside" / killed.steps[0].flavour
    assert f"build/CMakeCache.txt, build/since.txt moved to {aside}" in capsys.readouterr().err
    assert (aside / "build" / "since.txt").read_text() == "a person's, or not"
    assert INIT not in found
    assert found["demo/version.txt"] == "cpu"


@pytest.mark.parametrize("rocm", [False, True])
def test_somebodys_own_module_of_that_name_is_refused_and_kept(demo: Demo, *, rocm: bool) -> None:
    tree = demo().checkouts["demo"]
    (tree / INIT).write_text("def initialize(): pass\n")
    with pytest.raises(SourceError, match=r"demo/_rocm_init\.py"):
        built(demo(rocm=rocm))
    assert (tree / INIT).read_text() == "def initialize(): pass\n"


def test_an_ignored_file_that_a_build_may_pack_is_in_the_key(demo: Demo, tmp_path: Path) -> None:
    clean = clone(demo(), tmp_path / "clean")
    tree = demo().checkouts["demo"]
    (tree / "demo" / "data.bin").write_text("mine")
    assert members(built(demo()))["demo/data.bin"] == "mine"
    assert "demo/data.bin" not in members(built(clean))
    assert built(demo()).cached
    (tree / "demo" / "data.bin").write_text("other")
    assert members(built(demo()))["demo/data.bin"] == "other"


def test_a_file_that_git_was_told_not_to_look_at_is_in_the_key(demo: Demo) -> None:
    tree = demo().checkouts["demo"]
    before = plan.make(demo()).steps[0].key
    subprocess.run(
        ["git", "-C", str(tree), "update-index", "--assume-unchanged", "demo/__init__.py"], check=True
    )
    (tree / "demo" / "__init__.py").write_text("HIDDEN = 1\n")
    assert plan.make(demo()).steps[0].key != before


def test_a_repository_inside_the_tree_is_in_the_key(demo: Demo) -> None:
    tree = demo().checkouts["demo"]
    subprocess.run(["git", "clone", "-q", str(tree), str(tree / "demo" / "inner")], check=True)
    before = plan.make(demo()).steps[0].key
    (tree / "demo" / "inner" / "demo" / "__init__.py").write_text("INNER = 1\n")
    assert plan.make(demo()).steps[0].key != before


@pytest.mark.parametrize("name", ["demo/__pycache__/x.pyc", ".venv/lib/x.py", ".idea/x"])
def test_what_tools_keep_in_a_tree_is_no_reason_to_build_again(demo: Demo, name: str) -> None:
    tree = demo().checkouts["demo"]
    (tree / ".git/info/exclude").write_text(".venv\n.idea\n")
    before = plan.make(demo()).steps[0].key
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("x")
    assert plan.make(demo()).steps[0].key == before


def test_a_wheel_of_an_edited_tree_with_leftovers_stays_with_that_tree(demo: Demo, tmp_path: Path) -> None:
    built(demo())
    tree = demo().checkouts["demo"]
    (tree / "demo" / "__init__.py").write_text("EDITED = 1\n")
    incremental = built(demo())
    assert members(incremental)["demo/steps.txt"] == "xx"
    assert built(demo()).cached
    for words in (["add", "."], ["commit", "-qm", "three"]):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tree), *words], check=True
        )
    assert members(built(clone(demo(), tmp_path / "clean")))["demo/steps.txt"] == "x"


def test_nothing_that_was_there_before_is_gone_after_builds_of_all_kinds(demo: Demo) -> None:
    tree = demo().checkouts["demo"]
    (tree / "build").mkdir()
    (tree / "build" / "notes.txt").write_text("mine")
    (tree / "demo" / "mine.dat").write_text("mine")
    for rocm in (True, False, True):
        built(demo(rocm=rocm))
        assert (tree / "build" / "notes.txt").read_text() == "mine"
        assert (tree / "demo" / "mine.dat").read_text() == "mine"


def test_a_tracked_folder_called_build_is_not_cleaned_away(demo: Demo) -> None:
    tree = demo().checkouts["demo"]
    (tree / "build" / "lib").mkdir(parents=True)
    (tree / "build" / "lib" / "source.py").write_text("")
    subprocess.run(["git", "-C", str(tree), "add", "-f", "build"], check=True)
    built(demo(clean=True))
    assert (tree / "build" / "lib" / "source.py").exists()


@pytest.mark.parametrize("name", ["build/lib/mine.py", "build/lib.linux-x86_64/deep/mine.py"])
def test_files_where_setuptools_would_pack_them_are_refused_and_not_removed(demo: Demo, name: str) -> None:
    tree = demo().checkouts["demo"]
    (tree / name).parent.mkdir(parents=True)
    (tree / name).write_text("mine")
    with pytest.raises(SourceError, match=rf"has {name}, which setuptools would pack"):
        built(demo())
    assert (tree / name).read_text() == "mine"
    built(demo(clean=True))
    assert not (tree / name).exists()


def test_what_a_build_left_where_setuptools_packs_it_is_removed_by_the_next(demo: Demo) -> None:
    tree = demo().checkouts["demo"]
    backend = (tree / "backend.py").read_text()
    line = "    os.makedirs('build/lib.x'); Path('build/lib.x/gone.py').touch()\n"
    (tree / "backend.py").write_text(
        backend.replace('    if os.environ.get("FAIL")', line + '    if os.environ.get("FAIL")')
    )
    built(demo())
    (tree / "demo" / "__init__.py").write_text("EDITED = 1\n")
    assert not built(demo()).cached  # making it would fail, were it still there
    (tree / "build/lib.x/gone.py").write_text("mine by now")
    (tree / "demo" / "__init__.py").write_text("EDITED = 2\n")
    with pytest.raises(SourceError, match=r"build/lib\.x/gone\.py"):
        built(demo())


def test_a_tree_edited_after_it_was_planned_gives_no_wheel_to_the_cache(demo: Demo, tmp_path: Path) -> None:
    tree = demo().checkouts["demo"]
    made = plan.make(demo())
    (tree / "demo" / "__init__.py").write_text("EDITED = 1\n")
    (wheel,) = execution.run(made)
    assert members(wheel)["demo/__init__.py"] == "EDITED = 1\n"
    assert not built(clone(demo(), tmp_path / "clean")).cached


def test_a_tree_edited_while_it_is_built_gives_no_wheel_to_the_cache(demo: Demo) -> None:
    tree = demo().checkouts["demo"]
    backend = (tree / "backend.py").read_text()
    edit = "    Path('demo/__init__.py').write_text('EDITED = 1')\n    if os.environ.get(\"FAIL\")"
    (tree / "backend.py").write_text(backend.replace('    if os.environ.get("FAIL")', edit))
    wheel = built(demo())
    (tree / "demo" / "__init__.py").write_text("")
    assert members(wheel)["demo/__init__.py"] == "EDITED = 1"
    assert not built(demo()).cached


def test_clean_begins_anew_and_says_so_where_the_settings_of_a_build_folder_are_not_known(
    demo: Demo, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tree = demo().checkouts["demo"]
    (tree / "build").mkdir()
    (tree / "build" / "CMakeCache.txt").write_text("by hand")
    assert members(built(demo()))["demo/version.txt"] == "by hand"
    assert "pass --clean" in capsys.readouterr().err
    assert members(built(clone(demo(), tmp_path / "other")))["demo/version.txt"] == "cpu"
    assert members(built(demo(clean=True)))["demo/version.txt"] == "cpu"


def test_what_a_project_hipifies_for_one_variant_is_not_there_for_the_next(demo: Demo) -> None:
    # Not packed, not in `build`, no compiler's product, and ignored: as torchvision's csrc/ops/hip.
    request = demo()
    tree = request.checkouts["demo"]
    backend = (tree / "backend.py").read_text()
    writes = 'Path("demo/hip").mkdir(exist_ok=True)\n    Path("demo/hip/a.hip").touch()\n    '
    backend = backend.replace("    members =", f"    {writes}members =").replace(
        "if p.is_file()}", 'if p.is_file() and "hip" not in p.parts}'
    )
    (tree / "backend.py").write_text(backend)
    ignored = (tree / ".gitignore").read_text()
    (tree / ".gitignore").write_text(f"{ignored}/demo/hip/\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tree)]
    subprocess.run([*git, "commit", "-qam", "three"], check=True)

    def at_build(request: BuildRequest) -> BuildRequest:
        (project,) = request.stack.projects
        changed = msgspec.structs.replace(project, hipify="at-build")
        return dataclasses.replace(request, stack=msgspec.structs.replace(request.stack, projects=(changed,)))

    cpu, rocm = at_build(demo()), at_build(demo(rocm=True))
    before = plan.make(cpu).steps[0].key
    execution.run(plan.make(rocm))
    assert (tree / "demo/hip/a.hip").exists()
    assert plan.make(cpu).steps[0].key == before
    (built,) = execution.run(plan.make(cpu))
    assert not built.cached
    assert built.identity == before
    (again,) = execution.run(plan.make(rocm))
    assert again.cached
