"""What a build leaves in a tree, and what lies there that the cache key does not cover."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from cairn import venv
from cairn.build import execution, plan
from cairn.build.inputs import leftovers
from cairn.build.model import BuildRequest, BuiltWheel, InstalledSdk
from cairn.errors import BuildError, SourceError
from cairn.rocm.install import SdkInfo
from cairn.sources.git.repository import root_at
from cairn.stack import Sdk as StackSdk
from helpers.build import MakeRequest, repository, with_project, with_stack
from helpers.packing import backend
from helpers.sources import git

# Packs the folder `demo` as it lies there, as setuptools does with what package_data names, and keeps a build
# folder whose settings win over later ones, as torch's setup.py does with a CMakeCache.txt.
PACKING = backend("""
import os
def build_wheel(folder, settings=None, metadata=None):
    # first
    if os.environ.get("FAIL"):
        raise SystemExit("it failed")
    cached = Path("build/CMakeCache.txt")
    if not cached.exists():
        cached.parent.mkdir(exist_ok=True)
        cached.write_text(os.environ.get("FLAVOUR", ""))
    Path("build/steps").open("a").write("x")
    Path("demo/made.dat").write_text(cached.read_text())
    sources = (p for p in sorted(Path("demo").rglob("*")) if p.is_file() and "hip" not in p.parts)
    members = {str(p): p.read_bytes() for p in sources}
    members["demo/version.txt"] = cached.read_bytes()
    members["demo/steps.txt"] = Path("build/steps").read_bytes()
    return write_wheel(folder, "demo", "1.0", members).name
""")
INIT = "demo/_rocm_init.py"
IGNORED = ("/build/", "*.dat", "/demo/_rocm_init.py", "/demo/data.bin", "/demo/hip/", "__pycache__/")

Demo = Callable[..., BuildRequest]


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> InstalledSdk:
    folder = tmp_path_factory.mktemp("sdk")
    env = venv.create(folder / "env")
    (env.site_packages / "rocm_sdk.py").write_text("def find_libraries(name):\n    return []\n")
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
    (tree / ".gitignore").write_text("\n".join(IGNORED))
    commit(tree)
    (only,) = request.stack.projects

    def make(*, rocm: bool = False, fail: bool = False, **changes: object) -> BuildRequest:
        variables = {"FLAVOUR": "rocm" if rocm else "cpu"} | ({"FAIL": "1"} if fail else {})
        given = structs.replace(only.environment, always=variables)
        made = with_project(request, rocm_init=INIT, environment=given)
        if rocm:
            made = structs.replace(with_stack(made, sdk=StackSdk()), targets=("gfx942",), sdk=sdk)
        return structs.replace(made, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture
def tree(demo: Demo) -> Path:
    """The checkout that `demo` builds."""
    return demo().checkouts["demo"]


def commit(tree: Path) -> None:
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "more")


def edit(tree: Path, text: str) -> None:
    (tree / "demo" / "__init__.py").write_text(text)


def have_it_first(tree: Path, line: str) -> None:
    """Have the backend begin with a line."""
    path = tree / "backend.py"
    path.write_text(path.read_text().replace("# first", line))


def key(request: BuildRequest) -> str:
    return plan.make(request)[0].key


def built(request: BuildRequest) -> BuiltWheel:
    (wheel,) = execution.run(plan.make(request))
    return wheel


def members(wheel: BuiltWheel) -> dict[str, str]:
    with zipfile.ZipFile(wheel.wheel) as archive:
        return {n: archive.read(n).decode() for n in archive.namelist() if n.startswith("demo/")}


def clone(request: BuildRequest, folder: Path) -> BuildRequest:
    git(folder.parent, "clone", "-q", str(request.checkouts["demo"]), str(folder))
    return structs.replace(request, checkouts={"demo": folder})


def test_the_module_that_loads_rocm_is_in_the_wheel_and_never_left_in_the_tree(
    demo: Demo, tree: Path
) -> None:
    exclude = (tree / ".git/info/exclude").read_text()
    with pytest.raises(BuildError):
        built(demo(rocm=True, fail=True))
    assert not (tree / INIT).exists()
    assert INIT in members(built(demo(rocm=True)))
    assert not (tree / INIT).exists()
    assert (tree / ".git/info/exclude").read_text() == exclude


def test_builds_with_different_settings_are_as_if_the_other_had_not_been(
    demo: Demo, tree: Path, tmp_path: Path
) -> None:
    alone = members(built(clone(demo(cache_dir=tmp_path / "other cache"), tmp_path / "clone")))
    built(demo(rocm=True))
    assert members(built(demo())) == alone
    assert members(built(clone(demo(), tmp_path / "third"))) == alone
    edit(tree, "EDITED = 1\n")
    again = members(built(demo(rocm=True)))
    assert again["demo/version.txt"] == "rocm"
    assert again["demo/steps.txt"] == "xx", "the build folder of the first build, not a new one"


KILLED = """
import os, signal, pathlib, sys
from cairn.build.inputs import leftovers
from cairn.sources.worktree import journal
from cairn.sources.git.repository import root_at
tree, settings, init = sys.argv[1:]
root = root_at(pathlib.Path(tree))
with leftovers.exchange(root, settings, ('.',)), journal.lend(root, init, 'x = 1'):
    os.makedirs(f"{tree}/build")
    pathlib.Path(tree, "build/CMakeCache.txt").write_text('rocm')
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_build_left_is_taken_out_by_the_next_which_says_where_to(
    demo: Demo, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = plan.make(demo(rocm=True))[0].settings_digest
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tree), settings, INIT], check=False)
    assert killed.returncode == -9
    assert (tree / INIT).exists()
    (tree / "build" / "since.txt").write_text("a person's, or not")
    found = members(built(demo()))
    aside = tree / ".git" / "cairn-aside" / settings
    assert f"build/CMakeCache.txt, build/since.txt moved to {aside}" in capsys.readouterr().err
    assert (aside / "build" / "since.txt").read_text() == "a person's, or not"
    assert INIT not in found
    assert found["demo/version.txt"] == "cpu"


@pytest.mark.parametrize("rocm", [False, True])
def test_somebodys_own_module_of_that_name_is_refused_and_kept(demo: Demo, tree: Path, *, rocm: bool) -> None:
    (tree / INIT).write_text("def initialize(): pass\n")
    with pytest.raises(SourceError, match=r"demo/_rocm_init\.py"):
        built(demo(rocm=rocm))
    assert (tree / INIT).read_text() == "def initialize(): pass\n"


def test_an_ignored_file_that_a_build_may_pack_is_in_the_key(demo: Demo, tree: Path, tmp_path: Path) -> None:
    clean = clone(demo(), tmp_path / "clean")
    (tree / "demo" / "data.bin").write_text("mine")
    assert members(built(demo()))["demo/data.bin"] == "mine"
    assert "demo/data.bin" not in members(built(clean))
    assert built(demo()).cached
    (tree / "demo" / "data.bin").write_text("other")
    assert members(built(demo()))["demo/data.bin"] == "other"


def test_what_git_is_told_not_to_look_at_and_a_repository_inside_are_in_the_key(
    demo: Demo, tree: Path
) -> None:
    git(tree, "clone", "-q", ".", "demo/inner")
    git(tree, "update-index", "--assume-unchanged", "demo/__init__.py")
    keys = {key(demo())}
    edit(tree, "HIDDEN = 1\n")
    keys.add(key(demo()))
    edit(tree / "demo" / "inner", "INNER = 1\n")
    keys.add(key(demo()))
    assert len(keys) == 3


def test_what_tools_keep_in_a_tree_is_no_reason_to_build_again(demo: Demo, tree: Path) -> None:
    (tree / ".git/info/exclude").write_text(".venv\n.idea\n")
    before = key(demo())
    for name in ("demo/__pycache__/x.pyc", ".venv/lib/x.py", ".idea/x"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text("x")
        assert key(demo()) == before, name


def test_a_wheel_of_an_edited_tree_with_leftovers_stays_with_that_tree(
    demo: Demo, tree: Path, tmp_path: Path
) -> None:
    built(demo())
    edit(tree, "EDITED = 1\n")
    assert members(built(demo()))["demo/steps.txt"] == "xx"
    assert built(demo()).cached
    commit(tree)
    assert members(built(clone(demo(), tmp_path / "clean")))["demo/steps.txt"] == "x"


def test_nothing_that_was_there_before_is_gone_after_builds_of_all_kinds(demo: Demo, tree: Path) -> None:
    (tree / "build").mkdir()
    (tree / "build" / "notes.txt").write_text("mine")
    (tree / "demo" / "mine.dat").write_text("mine")
    for rocm in (True, False, True):
        built(demo(rocm=rocm))
        assert (tree / "build" / "notes.txt").read_text() == "mine"
        assert (tree / "demo" / "mine.dat").read_text() == "mine"


def test_a_tracked_folder_called_build_is_not_cleaned_away(demo: Demo, tree: Path) -> None:
    (tree / "build" / "lib").mkdir(parents=True)
    (tree / "build" / "lib" / "source.py").write_text("")
    git(tree, "add", "-f", "build")
    built(demo(clean=True))
    assert (tree / "build" / "lib" / "source.py").exists()


@pytest.mark.parametrize("name", ["build/lib/mine.py", "build/lib.linux-x86_64/deep/mine.py"])
def test_files_where_setuptools_would_pack_them_are_refused_and_not_removed(
    demo: Demo, tree: Path, name: str
) -> None:
    (tree / name).parent.mkdir(parents=True)
    (tree / name).write_text("mine")
    with pytest.raises(SourceError, match=rf"has {name}, which setuptools would pack"):
        built(demo())
    assert (tree / name).read_text() == "mine"
    built(demo(clean=True))
    assert not (tree / name).exists()


def test_what_a_build_left_where_setuptools_packs_it_is_removed_by_the_next(demo: Demo, tree: Path) -> None:
    have_it_first(tree, "os.makedirs('build/lib.x'); Path('build/lib.x/gone.py').touch()")
    built(demo())
    edit(tree, "EDITED = 1\n")
    assert not built(demo()).cached  # making it would fail, were it still there
    (tree / "build/lib.x/gone.py").write_text("mine by now")
    edit(tree, "EDITED = 2\n")
    with pytest.raises(SourceError, match=r"build/lib\.x/gone\.py"):
        built(demo())


def test_a_tree_edited_after_it_was_planned_gives_no_wheel_to_the_cache(
    demo: Demo, tree: Path, tmp_path: Path
) -> None:
    made = plan.make(demo())
    edit(tree, "EDITED = 1\n")
    (wheel,) = execution.run(made)
    assert members(wheel)["demo/__init__.py"] == "EDITED = 1\n"
    assert not built(clone(demo(), tmp_path / "clean")).cached


def test_a_tree_edited_while_it_is_built_gives_no_wheel_to_the_cache(demo: Demo, tree: Path) -> None:
    have_it_first(tree, "Path('demo/__init__.py').write_text('EDITED = 1')")
    assert members(built(demo()))["demo/__init__.py"] == "EDITED = 1"
    edit(tree, "")
    assert not built(demo()).cached


def test_clean_begins_anew_and_says_so_where_the_settings_of_a_build_folder_are_not_known(
    demo: Demo, tree: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tree / "build").mkdir()
    (tree / "build" / "CMakeCache.txt").write_text("by hand")
    assert members(built(demo()))["demo/version.txt"] == "by hand"
    assert "pass --clean" in capsys.readouterr().err
    assert members(built(clone(demo(), tmp_path / "other")))["demo/version.txt"] == "cpu"
    assert members(built(demo(clean=True)))["demo/version.txt"] == "cpu"


def test_what_a_project_hipifies_for_one_variant_is_not_there_for_the_next(demo: Demo, tree: Path) -> None:
    # Not packed, not in `build`, no compiler's product, and ignored: as torchvision's csrc/ops/hip.
    have_it_first(tree, 'os.makedirs("demo/hip", exist_ok=True); Path("demo/hip/a.hip").touch()')
    commit(tree)
    cpu, rocm = (with_project(demo(rocm=rocm), hipify="at-build") for rocm in (False, True))
    before = key(cpu)
    built(rocm)
    assert (tree / "demo/hip/a.hip").exists()
    assert key(cpu) == before
    first = built(cpu)
    assert (first.cached, first.first_key) == (False, before)
    assert built(rocm).cached


def test_what_a_build_leaves_is_no_local_work_where_no_gitignore_names_it(demo: Demo, tree: Path) -> None:
    (tree / ".gitignore").write_text("")
    have_it_first(tree, 'Path("a b!.so").touch(); Path("mine.txt").touch(); Path("demo.egg-info").mkdir(); '
                        'Path("demo.egg-info/PKG-INFO").touch()')  # fmt: skip
    commit(tree)
    before = (tree / ".git" / "info" / "exclude").read_text()
    for _ in "once", "and again":
        built(demo(clean=True))
        # What it cannot be shown to have made may be the user's.
        assert git(tree, "status", "--porcelain").split() == ["??", "mine.txt"]
    lines = (tree / ".git" / "info" / "exclude").read_text().removeprefix(before).split("\n")
    assert {"/a\\ b\\!.so", "/build/", "/demo.egg-info/", "/demo/made.dat"} <= set(lines)
    assert len(lines) == len(set(lines))


def test_the_users_own_list_of_ignored_files_may_be_in_any_encoding(tmp_path: Path) -> None:
    tree = repository(tmp_path / "tree", {"a.py": ""})
    own_list = tree / ".git" / "info" / "exclude"
    own_list.parent.mkdir(exist_ok=True)
    own_list.write_bytes(b"# f\xfcr mich\n*.log\n")
    with leftovers.exchange(root_at(tree), "d" * 64, ["."]):
        (tree / "build").mkdir()
        (tree / "build" / "a.o").touch()
    assert own_list.read_bytes() == b"# f\xfcr mich\n*.log\n/build/\n"
