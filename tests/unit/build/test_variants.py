"""Several lines, families and Pythons of one job."""

import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from cairn import interpreters
from cairn.build import execution, job, plan, rocm_sdk, variants
from cairn.build.build_options import RunOptions
from cairn.build.engine import events
from cairn.build.engine.schedule import Durations
from cairn.build.model import BuiltWheel, Job, SdkRequest
from cairn.build.variants import Axes
from cairn.errors import BuildError, UsageError
from cairn.interpreters import Interpreter
from cairn.sources.manifest import manifest
from cairn.stack import Line, Sdk, Stack
from cairn.venv import PackageSource
from cairn.wheels import wheelset
from helpers import build, pythons
from helpers.build import stand_in_compiler
from helpers.packing import backend

LINES = {"nightly": Line(), "release/2.9": Line()}
# A wheel that says for which Python it was built and what it found of other variants in its tree.
BACKEND = backend("""
import sys
TAG = "cp%d%d" % sys.version_info[:2]
def build_wheel(folder, settings=None, metadata=None):
    tree = Path(__file__).parent
    here = {p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file() and ".git" not in p.parts}
    left = here - {"pyproject.toml", "backend.py", ".gitignore"}
    left = {name for name in left if "__pycache__" not in name}
    for name in (f"build/lib.{TAG}/a.py", f"build/{TAG}.o", f"demo/_C.{TAG}.so", f"demo.egg-info/{TAG}"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(TAG)
    text = f"TAG = {TAG!r}\\nLEFT = {sorted(left)!r}\\n"
    return write_wheel(folder, "demo", "1.0", {"demo.py": text}, tag=f"{TAG}-{TAG}-linux_x86_64").name
""")


def fake(version: str) -> Interpreter:
    return Interpreter(path=Path(sys.executable), version=version, release=version, platform="linux_x86_64")


@pytest.fixture
def wanted(tmp_path: Path) -> Job:
    project = structs.replace(build.project("demo"), lines=LINES)
    stack = Stack(name="s", line="nightly", targets=("gfx942",), projects=(project,), folder=str(tmp_path))
    return Job(
        stack=structs.replace(stack, sdk=Sdk()),
        checkouts={"demo": tmp_path / "demo"},
        output_dir=tmp_path / "out",
        env_dir=tmp_path / "envs",
    )


def test_one_variant_is_laid_out_as_ever(wanted: Job, tmp_path: Path) -> None:
    other = fake("3.99")
    (only,) = variants.expand(
        wanted,
        Axes(lines=("release/2.9",), families=("gfx110X-all",), pythons=(other,)),
        root=tmp_path,
    )
    assert (only.output_dir, only.env_dir, only.checkouts) == (
        wanted.output_dir,
        wanted.env_dir,
        wanted.checkouts,
    )
    assert (only.line, only.targets, only.python, only.variant) == ("release/2.9", "gfx110X-all", other, None)
    assert variants.expand(wanted, Axes(), root=tmp_path) == (wanted,)
    assert variants.labels([only]) == ("",)


def test_each_variant_has_a_folder_and_each_family_an_sdk(wanted: Job, tmp_path: Path) -> None:
    asked = Axes(
        lines=("nightly", "release/2.9"),
        families=("gfx94X-dcgpu", "gfx1100"),
        pythons=(fake("3.11"), fake("3.12")),
    )
    jobs = variants.expand(wanted, asked, root=tmp_path)
    assert len(jobs) == 8
    assert len({one.output_dir for one in jobs}) == 8
    assert len({one.trees for one in jobs}) == 8
    last = jobs[-1]
    assert last.output_dir == tmp_path / "out/release-2.9/gfx1100/3.12"
    assert last.checkouts == {"demo": tmp_path / "release-2.9/demo"}
    assert last.env_dir == tmp_path / "envs/gfx1100"
    assert {one.env_dir for one in jobs} == {tmp_path / "envs/gfx1100", tmp_path / "envs/gfx94X-dcgpu"}
    assert [one.sdk.family for one in jobs[:4]] == ["gfx94X-dcgpu"] * 2 + ["gfx110X-all"] * 2
    assert variants.labels(jobs)[-1] == "release/2.9 gfx1100 3.12"
    assert variants.labels(jobs[:2]) == ("3.11", "3.12")


def test_the_index_of_a_family_is_named_by_a_placeholder(wanted: Job, tmp_path: Path) -> None:
    source = PackageSource(index_url="https://example.org/v2/{family}/", find_links=("/wheels/{family}",))
    given = structs.replace(wanted, sdk=SdkRequest(source=source))
    jobs = variants.expand(given, Axes(families=("gfx110X-all", "gfx1151")), root=tmp_path)
    assert [one.sdk.source.index_url for one in jobs] == [
        "https://example.org/v2/gfx110X-all/",
        "https://example.org/v2/gfx1151/",
    ]
    assert jobs[1].sdk.source.find_links == ("/wheels/gfx1151",)
    with pytest.raises(UsageError, match="none is named"):
        variants.expand(given, Axes(), root=tmp_path)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"lines": ("release/2.10", "nightly")}, "no line 'release/2.10'"),
        ({"families": ("gfx9420",)}, "gfx9420"),
        ({"families": ("gfx942", "gfx942")}, "twice"),
        ({"lines": ("nightly", "nightly")}, "twice"),
    ],
)
def test_what_does_not_exist_is_refused(
    wanted: Job, tmp_path: Path, asked: dict[str, tuple[str, ...]], said: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        variants.expand(wanted, Axes(**asked), root=tmp_path)  # type: ignore[arg-type]


def test_targets_and_families_exclude_each_other(wanted: Job, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        variants.expand(structs.replace(wanted, targets="gfx942"), Axes(families=("gfx1100",)), root=tmp_path)


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose wheels are built by real Pythons."""
    stand_in_compiler(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cäche dir"))
    tree = build.repository(
        tmp_path / "demo tree", {"pyproject.toml": build.PYPROJECT, "backend.py": BACKEND}
    )
    # Only `build` and products of compilers are ignored: what git sees is in the tree's digest.
    (tree / ".git/info/exclude").write_text("build/\n*.so\n*.egg-info/\n__pycache__/\n")
    return Job(
        stack=Stack(name="s", line="l", targets=("cpu",), projects=(build.project("demo"),)),
        checkouts={"demo": tree},
        output_dir=tmp_path / "out",
        jobs=2,
    )


def test_real_pythons_build_side_by_side_and_nothing_of_one_is_in_the_wheel_of_another(
    several: Job, tmp_path: Path
) -> None:
    own, other = pythons.several(2)
    tree = several.checkouts["demo"]
    jobs = variants.expand(several, Axes(pythons=(own, other)), root=tmp_path)
    before = [plan[0].key for plan in job.plans_of(jobs)]
    first = job.run(jobs)
    manifests, sets = [], []
    for one, (wheel,) in zip(jobs, first, strict=True):
        assert not wheel.cached
        assert wheel.wheel.parent == tmp_path / "out/l/cpu" / one.python.version
        assert f"-{one.python.tag}-" in wheel.wheel.name
        code = (
            f"import sys; sys.path.insert(0, {str(wheel.wheel)!r}); import demo; print(demo.TAG, demo.LEFT)"
        )
        said = subprocess.run(
            [one.python.path, "-I", "-c", code], capture_output=True, text=True, check=True
        ).stdout
        assert said.strip() == f"{one.python.tag} []"
        manifests.append(manifest.read(wheel.wheel.parent / "manifest.json"))
        sets.append(wheelset.read(wheel.wheel.parent / "set.json"))
    assert manifests[0] == manifests[1]
    assert manifests[0].pythons == (own.version, other.version)
    assert [one.python for one in sets] == [own.version, other.version]
    assert {one.manifest_sha256 for one in sets} == {manifests[0].digest()}
    # The keys planned in the untouched tree are those that the wheels have: another machine finds them.
    assert [wheel.first_key for (wheel,) in first] == before
    log = events.last_run(tmp_path / "out/events.jsonl")
    steps = [type(e) for e in log if isinstance(e, events.StepStarted | events.StepEnded)]
    assert steps == [events.StepStarted] * 2 + [events.StepEnded] * 2
    # The checkout, in which the user works, was only read.
    assert sorted(path.name for path in tree.iterdir()) == [".git", "backend.py", "pyproject.toml"]
    assert not kept_again(jobs, first, tmp_path)
    # After an edit, each goes on with what it left itself.
    (tree / "pyproject.toml").write_text(f"{build.PYPROJECT}\n# edited\n")
    edited = job.run(jobs)
    for one, (wheel,) in zip(jobs, edited, strict=True):
        assert not wheel.cached
        with zipfile.ZipFile(wheel.wheel) as archive:
            left = ast.literal_eval(archive.read("demo.py").decode().partition("LEFT = ")[2])
        tag = one.python.tag
        assert left == [f"build/{tag}.o", f"demo.egg-info/{tag}", f"demo/_C.{tag}.so"]
    assert not kept_again(jobs, edited, tmp_path)


def kept_again(
    jobs: Sequence[Job], before: Sequence[tuple[BuiltWheel, ...]], folder: Path
) -> list[events.ProgramStarted]:
    """Build again with nothing changed; the programs that this has started."""
    again = job.run(jobs)
    log = events.last_run(folder / "out/events.jsonl")
    assert log
    assert all(wheel.cached for (wheel,) in again)
    assert [wheel.sha256 for (wheel,) in again] == [wheel.sha256 for (wheel,) in before]
    return [event for event in log if isinstance(event, events.ProgramStarted)]


def test_a_variant_that_fails_does_not_hold_the_others_back(several: Job, tmp_path: Path) -> None:
    own, other = pythons.several(2)
    (several.checkouts["demo"] / "backend.py").write_text(
        f"import sys\nif sys.version.startswith({own.version!r}): raise SystemExit('no')\n{BACKEND}"
    )
    going_on = structs.replace(several, run=RunOptions(keep_going=True))
    with pytest.raises(BuildError):
        job.run(variants.expand(going_on, Axes(pythons=(own, other)), root=tmp_path))
    good, bad = (tmp_path / "out/l/cpu" / python.version for python in (other, own))
    assert [wheel.file_name for wheel in wheelset.read(good / "set.json").wheels]
    assert (good / "manifest.json").exists()
    assert not (bad / "set.json").exists()


def test_an_sdk_for_any_python_is_shared_and_another_is_not(tmp_path: Path) -> None:
    own = interpreters.current()
    info = {"root": str(tmp_path), "bin": str(tmp_path), "cmake": str(tmp_path), "targets": ["gfx942"]}
    for only, place in (("", tmp_path / "any"), ("3.99", tmp_path / "one")):
        marker = {
            "schema": "cairn.sdk-environment/1",
            "request": "r",
            "digest": "d",
            "version": "7.0",
            **info,
        }
        place.mkdir()
        (place / "cairn-sdk.json").write_text(json.dumps({**marker, "python": only}))
    assert rocm_sdk.existing(tmp_path / "any", own).environment == tmp_path / "any"
    assert rocm_sdk.existing(tmp_path / "one", fake("3.99")).environment == tmp_path / "one"
    (tmp_path / "one").rename(tmp_path / "two")
    (tmp_path / f"two-{own.tag}").symlink_to(tmp_path / "any")
    assert rocm_sdk.existing(tmp_path / "two", own).environment == tmp_path / f"two-{own.tag}"


def test_the_room_for_a_copy_that_is_still_to_be_made_is_looked_for_before_anything_starts(
    wanted: Job, tmp_path: Path
) -> None:
    tree = build.repository(tmp_path / "demo", {"setup.py": "", "large.txt": "x" * 100_000})
    plain = structs.replace(wanted, stack=structs.replace(wanted.stack, sdk=None), line="nightly")
    plain = structs.replace(plain, targets="cpu", checkouts={"demo": tree})
    jobs = variants.expand(plain, Axes(pythons=(fake("3.98"), fake("3.99"))), root=tmp_path)
    plans = plan.make_all([job.resolve(one, None) for one in jobs])
    plans[1][0].request.tree_of(plans[1][0].project).mkdir(parents=True)
    steps = [step for plan in execution.labelled(plans, variants.labels(jobs)) for step in plan]
    disk = [step.disk for step in execution.graph_of(steps, Durations()).steps]
    assert disk[0] > 100_000
    assert disk[1] == 0
