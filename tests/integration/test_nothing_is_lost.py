"""After a command that failed, was killed or refused, all that Cairn did not make is still there.

One table of commands and moments, and one test that drives them all. Everything takes place in a copy of one
small world: upstream repositories, a checkout in which a person has worked, wheels, an index, an output
folder with a person's files. What is theirs is noted, and compared byte for byte afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn import interpreters
from cairn.sources.manifest import manifest
from cairn.stack import load, recipe
from cairn.wheels import build_statement, wheels_to_set, wheelset
from helpers import stacks
from helpers.gate import data_of, record_of
from helpers.packing import backend
from helpers.release import commit_of, make_wheel
from helpers.sources import Saved, git

SCRIPTS = Path(__file__).resolve().parents[2] / "external-builds" / "pytorch"

# Runs a program of ours, and ends it by a signal at the N-th step that changes the disk or starts a program.
RUN = """
import os, runpy, signal, sys
step, number, program, *words = sys.argv[1:]
events = {"subprocess.Popen", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate"}
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
count = 0
def hook(event, args):
    global count
    if event in events or (event == "open" and isinstance(args[2], int) and args[2] & writing):
        count += 1
        if count == int(step):
            os.kill(os.getpid(), int(number))
if program == "cairn":
    from cairn.cli.main import main
    sys.addaudithook(hook)
    sys.exit(main(words))
sys.argv = [program, *words]
sys.addaudithook(hook)
runpy.run_path(program, run_name="__main__")
"""

HIPIFY = """\
import pathlib
path = pathlib.Path("src/device.cpp")
path.write_text(path.read_text().replace("driver_types.h", "hip/driver_types.h"))
pathlib.Path("third_party/kit/fill.cu").write_text("hip")
pathlib.Path("out.ignored").write_text("x")
{end}
"""

BACKEND = """
def build_wheel(folder, config_settings=None, metadata_directory=None):
    Path("build").mkdir(exist_ok=True)
    Path("build/log").write_text("x")
    {end}
    version = Path("version.txt").read_text().strip()
    return write_wheel(folder, "torch", version, {{"torch/__init__.py": ""}}).name
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def put(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@dataclass
class World:
    """A copy of the world, and what in it is a person's."""

    folder: Path
    files: dict[Path, bytes] = field(default_factory=dict)
    commits: dict[Path, dict[str, str]] = field(default_factory=dict)

    @property
    def src(self) -> Path:
        return self.folder / "src" / "pytorch"

    def plant(self, name: str, text: str = "a person's\n") -> None:
        """A file of a person's, new or edited."""
        put(self.folder, {name: text})
        self.files[self.folder / name] = text.encode()

    def own(self, where: str, *refs: str) -> None:
        """Refs of a person's in a repository."""
        found = git(self.folder / where, "rev-parse", *refs).splitlines()
        self.commits.setdefault(self.folder / where, {}).update(zip(refs, found, strict=True))

    def assert_whole(self) -> None:
        lost = [
            str(path) for path, data in self.files.items() if not path.is_file() or path.read_bytes() != data
        ]
        assert lost == []
        for folder, refs in self.commits.items():
            assert git(folder, "rev-parse", *refs).splitlines() == list(refs.values())
            git(folder, "rev-list", "--objects", *refs.values())

    def run(self, *words: str, step: int = 0, number: int = 0) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PIP_", "XDG_"))}
        env |= {"CAIRN_CACHE_DIR": str(self.folder / "cache"), "HOME": str(self.folder / "home")}
        env |= {"PIP_CONFIG_FILE": os.devnull, "PYTHONWARNINGS": "ignore", "CXX": "git"}
        command = [sys.executable, "-c", RUN, str(step), str(number), *words]
        return subprocess.run(
            command, cwd=self.folder, env=env, check=False, capture_output=True, text=True, timeout=120
        )


def make_world(folder: Path) -> None:
    """Upstream with two commits; a checkout of the first, in which a person has worked since."""
    for name in ("kit", "torch"):
        git(folder, "init", "--quiet", "--initial-branch=main", f"up/{name}")
        git(folder / "up" / name, "config", "receive.denyCurrentBranch", "ignore")
    put(folder / "up/kit", {"fill.cu": "cuda\n", ".gitignore": "*.ignored\n"})
    _commit(folder / "up/kit", "Kit")
    put(
        folder / "up/torch",
        {
            "version.txt": "2.9.0\n",
            ".gitignore": "*.ignored\nbuild/\n",
            "src/device.cpp": '#include "driver_types.h"\n',
            "tools/amd_build/build_amd.py": HIPIFY.format(end=""),
            "pyproject.toml": PYPROJECT,
            "backend.py": backend(BACKEND.format(end="")),
        },
    )
    git(folder / "up/torch", "submodule", "--quiet", "add", "../kit", "third_party/kit")
    _commit(folder / "up/torch", "One")
    torch = stacks.torch(folder / "up/torch", 'version_edit = true\nsmoke_imports = ["torch"]')
    text = stacks.stack(torch, line="nightly", more='version_suffix = "+cpu"')
    put(folder, {"stack/stack.toml": text, "home/x": ""})
    make_wheel(folder / "wheels", "alpha", "1.0")
    put(folder, {BROKEN: "no wheel"})
    world = World(folder)
    for words in (
        ("checkout", "torch", "--stack", "stack", "--root-checkout-dir", "src", "--jobs", "1"),
        ("manifest", "create", "--stack", "stack", "--root-checkout-dir", "src", "--output", "m.json"),
        ("index", "publish", "--store", "store", "--index", "staging", WHEEL),
    ):
        done = world.run("cairn", *words)
        assert done.returncode == 0, done.stderr
    # A person works in the checkout, and upstream goes on.
    git(world.src, "switch", "--quiet", "-c", "mine")
    put(world.src, {"mine.txt": "mine\n"})
    _commit(world.src, "Mine")
    put(world.src, {"mine.txt": "stashed\n"})
    git(world.src, "stash", "--quiet")
    git(world.src, "tag", "of-a-person")
    git(world.src / "third_party/kit", "switch", "--quiet", "-c", "mine")
    put(world.src / "third_party/kit", {"mine.txt": "mine\n"})
    _commit(world.src / "third_party/kit", "Mine in the kit")
    git(world.src / "third_party/kit", "switch", "--quiet", "--detach", "THEROCK_HIPIFY_DIFFBASE")
    git(world.src, "switch", "--quiet", "--detach", "THEROCK_HIPIFY_DIFFBASE")
    put(folder / "up/kit", {"fill.cu": "cuda 2\n"})
    _commit(folder / "up/kit", "Newer kit")
    git(folder / "up/torch/third_party/kit", "pull", "--quiet", "origin", "main")
    put(folder / "up/torch", {"version.txt": "2.9.1\n", "src/new.cpp": "new\n"})
    _commit(folder / "up/torch", "Two")


def _commit(folder: Path, message: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", message)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("world"), tmp_path_factory.mktemp("saved"))


THEIRS = """
out/thesis.txt out/sub/data.bin out/torch-0.1-py3-none-any.whl out/alpha-0.1-py3-none-any.whl
src/beside.txt src/pytorch/notes.ignored src/pytorch/build/mine.o src/pytorch/third_party/kit/a.ignored
store/thesis.txt store/staging/notes.txt store/files/notes.txt wheels/notes.txt
"""


@pytest.fixture
def world(saved: Saved) -> World:
    """A fresh copy of the world."""
    saved.bring("world", lambda: make_world(saved.place))
    made = World(saved.place)
    for name in THEIRS.split():
        made.plant(name)
    made.own("src/pytorch", "refs/heads/mine", "refs/stash", "refs/tags/of-a-person")
    made.own("src/pytorch/third_party/kit", "refs/heads/mine")
    made.own("up/torch", "refs/heads/main")
    return made


Prepare = Callable[[World], None]


def typed(line: str, *more: str) -> tuple[str, ...]:
    """A command as it is typed, and arguments that may have blanks in them."""
    return (*line.split(), *more)


OTHER = "other/alpha-1.0-py3-none-any.whl"
BROKEN = "broken/alpha-1.0-py3-none-any.whl"
WHEEL = "wheels/alpha-1.0-py3-none-any.whl"
SAMPLE = str(SCRIPTS.with_name("sample"))
SCRIPT = str(SCRIPTS / "pytorch_torch_repo.py")
PLACE = "--stack stack --root-checkout-dir src"
CHECKOUT = (SCRIPT, *typed("checkout --gitrepo-origin up/torch --checkout-dir src/pytorch"),
            *typed("--repo-hashtag main --jobs 1"))  # fmt: skip
ALL = typed(f"cairn checkout all {PLACE}")
HIPIFY_AGAIN = (SCRIPT, *typed("hipify --checkout-dir src/pytorch"))
CREATE = typed(f"cairn manifest create {PLACE} --output n.json")
REMAKE = typed(f"cairn manifest checkout m.json {PLACE}")
APPLY = typed("cairn patches apply src/pytorch patches")
EXPORT = typed("cairn patches export src/pytorch --output-dir patches")
BUILD = typed(f"cairn build {PLACE} --output-dir out --env-dir envs")
BUILD_SCRIPT = str(SCRIPTS / "build_prod_wheels.py")
SET_VERSION = typed(f"cairn wheel set-version {WHEEL} --version 2.0 --output-dir out")
PUBLISH = typed("cairn index publish --store store --index staging")
SMOKE = typed("cairn test smoke --set set.json --find-links wheels --output-dir out")
PROMOTE = typed("cairn release promote --store store set.json --stack", SAMPLE)
CI = typed("cairn ci run --stack stack --work-dir work")


def edit(name: str) -> Prepare:
    return lambda world: world.plant(name)


def stage(world: World) -> None:
    world.plant("src/pytorch/version.txt", "2.9.7\n")
    git(world.src, "add", "version.txt")


def commit(where: str) -> Prepare:
    def prepare(world: World) -> None:
        put(world.folder / where, {"committed.txt": "x\n"})
        _commit(world.folder / where, "Not on a branch")
        world.own(where, "HEAD")

    return prepare


def track_ignored(world: World) -> None:
    put(world.folder / "up/torch", {"notes.ignored": "upstream's now\n"})
    git(world.folder / "up/torch", "add", "--force", "notes.ignored")
    _commit(world.folder / "up/torch", "Track")
    world.own("up/torch", "refs/heads/main")


def upstream(files: Mapping[str, str]) -> Prepare:
    """Upstream gets these files, and a person's checkout has an edit on a branch."""

    def prepare(world: World) -> None:
        put(world.folder / "up/torch", files)
        _commit(world.folder / "up/torch", "Change")
        world.own("up/torch", "refs/heads/main")

    return prepare


def without(name: str) -> Prepare:
    def prepare(world: World) -> None:
        if name == "up/torch":
            del world.commits[world.folder / name]
        shutil.move(world.folder / name, world.folder / "away")

    return prepare


def no_checkout(world: World) -> None:
    world.commits = {at: refs for at, refs in world.commits.items() if not at.is_relative_to(world.src)}
    shutil.rmtree(world.src)
    world.files = {path: data for path, data in world.files.items() if path.exists()}
    world.plant("src/pytorch/thesis.txt")


def fresh(world: World) -> None:
    """No checkout at all."""
    no_checkout(world)
    (world.src / "thesis.txt").unlink()
    world.files.pop(world.src / "thesis.txt")
    world.src.rmdir()


def unhipified(world: World) -> None:
    git(world.src, "checkout", "--quiet", "--detach", "THEROCK_UPSTREAM_DIFFBASE")
    git(world.src, "tag", "-d", "THEROCK_HIPIFY_DIFFBASE")
    (world.src / ".git/cairn.json").unlink()


def patch(world: World) -> None:
    git(world.src, "switch", "--quiet", "-c", "patched")
    world.plant("src/pytorch/more.txt", "more\n")
    _commit(world.src, "More")
    git(world.src, "format-patch", "-1", "--quiet", "--output-directory", str(world.folder / "patches"))
    git(world.src, "switch", "--quiet", "--detach", "THEROCK_HIPIFY_DIFFBASE")
    world.files.pop(world.src / "more.txt")
    world.own("src/pytorch", "refs/heads/patched")
    for path in (world.folder / "patches").iterdir():
        world.files[path] = path.read_bytes()


def patch_in_conflict(world: World) -> None:
    patch(world)
    put(world.src, {"more.txt": "another\n"})
    _commit(world.src, "Another")
    world.own("src/pytorch", "HEAD")


def patch_and_edit(world: World) -> None:
    patch(world)
    world.plant("src/pytorch/version.txt", "2.9.7\n")


def commit_and_patches(name: str) -> Prepare:
    def prepare(world: World) -> None:
        commit("src/pytorch")(world)
        world.plant(f"patches/{name}")

    return prepare


def failing_build(world: World) -> None:
    world.plant("src/pytorch/backend.py", backend(BACKEND.format(end="raise SystemExit('no compiler')")))


def foreign_environment(world: World) -> None:
    world.plant("envs/torch/env/mine.py")


def with_set(world: World) -> None:
    """A set.json of the wheel, as a build writes it."""
    folder, here, wheels = world.folder, interpreters.current(), [world.folder / WHEEL]
    about: Any = {"stack": "small", "line": "main", "platform": here.platform, "targets": ("cpu",)}
    commit = commit_of("alpha")
    names = {"name": "alpha", "distribution": "alpha", "origin": "https://git.example/alpha.git"}
    alpha = manifest.ProjectSource(**names, hashtag="main", commit=commit, tree=commit)
    frozen = manifest.create((), pythons=(here.version,), sdk_version=None, **about)
    frozen = msgspec.structs.replace(frozen, projects=(alpha,), recipe=recipe.digest_of(load(Path(SAMPLE))))
    manifest.write(folder / "manifest.json", frozen)
    made = wheels_to_set.make(
        wheels, manifest_sha256=frozen.digest(), python=here.version, family="cpu", **about
    )
    wheelset.write(folder / "set.json", made)
    said = build_statement.of_set(made, wheels, manifest=frozen.canonical(), inputs={})
    (folder / "builder.json").write_bytes(build_statement.encode(said))


def staged_set(world: World) -> None:
    with_set(world)
    done = world.run("cairn", *PUBLISH[1:], "--set", "set.json", WHEEL)
    assert done.returncode == 0, done.stderr


def tested_set(world: World) -> None:
    staged_set(world)
    made = wheelset.read(world.folder / "set.json")
    (world.folder / "record.json").write_bytes(data_of(record_of(made)))


def foreign_smoke(world: World) -> None:
    with_set(world)
    world.plant("out/venv/mine.py")
    world.plant("out/record.json")


def with_conflicting_wheel(world: World) -> None:
    make_wheel(world.folder / "other", "alpha", "1.0")
    with zipfile.ZipFile(world.folder / OTHER, "a") as archive:
        archive.comment = b"other bytes"


def bad_backend(world: World) -> None:
    upstream({"backend.py": backend(BACKEND.format(end="raise SystemExit('no compiler')"))})(world)
    world.plant("work/thesis.txt")
    world.plant("work/smoke/thesis.txt")
    world.plant("work/wheels/thesis.txt")


def work_folder(world: World) -> None:
    for name in ("thesis.txt", "smoke/thesis.txt", "wheels/thesis.txt", "src/thesis.txt", "index/thesis.txt"):
        world.plant(f"work/{name}")


@dataclass(frozen=True)
class Row:
    """A command, and the moment at which it ends.

    Attributes:
        words: the program and its arguments.
        prepare: what stands in its way.
        kill: the step at which it is killed; none where it ends by itself.
        interrupt: likewise, by Ctrl-C.
        fails: it ends with an error where it ends by itself.
    """

    words: tuple[str, ...]
    prepare: Prepare = lambda _world: None
    kill: int = 0
    interrupt: int = 0
    fails: bool = True


EDITS: dict[str, Prepare] = {
    "an edit": edit("src/pytorch/version.txt"),
    "a new file": edit("src/pytorch/new of a person.txt"),
    "a staged edit": stage,
    "a commit": commit("src/pytorch"),
    "an edit in a submodule": edit("src/pytorch/third_party/kit/fill.cu"),
    "a commit in a submodule": commit("src/pytorch/third_party/kit"),
    "an ignored file that is tracked now": track_ignored,
    "a file where upstream has a new one": edit("src/pytorch/src/new.cpp"),
}
FAILING = upstream({"tools/amd_build/build_amd.py": HIPIFY.format(end="raise SystemExit('dangling.cu')")})

TABLE: dict[str, Row] = {
    **{f"checkout refused: {what}": Row(CHECKOUT, prepare) for what, prepare in EDITS.items()},
    "checkout refused: a folder of files": Row(CHECKOUT, no_checkout),
    "checkout failed: hipify": Row(CHECKOUT, FAILING),
    "checkout failed: no origin": Row(CHECKOUT, without("up/torch")),
    "checkout failed: no submodule": Row(CHECKOUT, without("up/kit")),
    **{f"checkout killed at {n}": Row(CHECKOUT, kill=n) for n in (2, 15, 30, 45, 60, 70, 80)},
    **{f"checkout interrupted at {n}": Row(CHECKOUT, interrupt=n) for n in (20, 50, 75)},
    "first checkout killed": Row(CHECKOUT, fresh, kill=40),
    "checkout all refused": Row(ALL, edit("src/pytorch/version.txt")),
    "checkout all killed": Row(ALL, kill=55),
    "hipify refused": Row(HIPIFY_AGAIN, lambda w: (unhipified(w), edit("src/pytorch/version.txt")(w))[0]),
    "hipify killed": Row(HIPIFY_AGAIN, unhipified, kill=35),
    "manifest create refused": Row(CREATE, edit("src/pytorch/version.txt")),
    "manifest create killed": Row(CREATE, kill=6),
    "manifest checkout refused": Row(REMAKE, commit("src/pytorch")),
    "manifest checkout killed": Row(REMAKE, fresh, kill=30),
    "patches apply failed: a conflict": Row(APPLY, patch_in_conflict),
    "patches apply refused: an edit": Row(APPLY, patch_and_edit),
    "patches apply killed": Row(APPLY, patch, kill=25),
    "patches export refused: other files": Row(EXPORT, commit_and_patches("thesis.txt")),
    "patches export refused: another patch": Row(EXPORT, commit_and_patches("0001-Not-on-a-branch.patch")),
    "patches export killed": Row(EXPORT, commit_and_patches("by-hand.patch"), kill=12),
    "build failed": Row(BUILD, failing_build),
    "build beside another environment": Row(BUILD, foreign_environment, fails=False),
    "build killed early": Row(BUILD, kill=8),
    "build killed late": Row(BUILD, kill=30),
    "build interrupted": Row(BUILD, interrupt=20),
    "build_prod_wheels build failed": Row(
        (BUILD_SCRIPT, *typed(f"build {PLACE} --output-dir out")), failing_build
    ),
    "install-rocm failed": Row((BUILD_SCRIPT, *typed("install-rocm --find-links wheels"))),
    "rocm install failed": Row(
        typed("cairn rocm install --python envs --find-links wheels"), edit("envs/mine.py")
    ),
    "rocm package failed": Row(
        typed("cairn rocm package --prefix src --rocm-version 7.10.0 --output-dir out")
    ),
    "set-version refused": Row(
        typed(f"cairn wheel set-version {WHEEL} --output-dir out --version", "no version")
    ),
    "set-version failed": Row(typed(f"cairn wheel set-version {BROKEN} --version 2.0 --output-dir out")),
    "set-version killed": Row(SET_VERSION, kill=2),
    "repair failed": Row(typed(f"cairn wheel repair {BROKEN} --output-dir out")),
    "fat refused": Row(typed(f"cairn wheel fat {WHEEL} src --output-dir out")),
    "split refused": Row(typed(f"cairn wheel split {WHEEL} --output-dir out")),
    "join refused": Row(typed(f"cairn wheel join {WHEEL} {WHEEL} --output-dir out")),
    "smoke refused: another environment": Row(SMOKE, foreign_smoke),
    "smoke failed: nothing to install": Row((*SMOKE[:6], "sub", *SMOKE[7:]), with_set),
    "smoke killed": Row(SMOKE, with_set, kill=9),
    "smoke interrupted": Row(SMOKE, with_set, interrupt=9),
    "publish refused: other bytes": Row((*PUBLISH, OTHER), with_conflicting_wheel),
    "publish failed": Row((*PUBLISH, BROKEN)),
    "publish killed": Row(typed("cairn index publish --store store --index dev", WHEEL), kill=6),
    "mirror failed": Row(typed("cairn index mirror --store store --index staging", BROKEN)),
    "promote refused": Row(PROMOTE, staged_set),
    # A missing record is refused before anything is written.
    "promote killed": Row((*PROMOTE, "--record", "record.json"), tested_set, kill=5),
    "ci run failed": Row(CI, bad_backend),
    "ci run killed early": Row(CI, work_folder, kill=12),
    "ci run killed late": Row(CI, work_folder, kill=70),
}  # fmt: skip


def test_the_table_is_long_enough() -> None:
    assert len(TABLE) >= 40


@pytest.mark.parametrize("name", TABLE)
def test_what_cairn_did_not_make_is_still_there(world: World, name: str) -> None:
    row = TABLE[name]
    row.prepare(world)
    if row.kill:
        done = world.run(*row.words, step=row.kill, number=signal.SIGKILL)
        assert done.returncode == -signal.SIGKILL, done.stderr
    elif row.interrupt:
        done = world.run(*row.words, step=row.interrupt, number=signal.SIGINT)
        assert done.returncode == 130, done.stderr
    else:
        done = world.run(*row.words)
        assert (done.returncode > 0) == row.fails, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    world.assert_whole()
