"""What becomes of a build whose tree is moved after it was compared with the manifest."""

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from cairn import interpreters, stack
from cairn.pipeline.night import plan
from cairn.sources.checkout.describe import describe
from cairn.sources.manifest import manifest
from cairn.stack import recipe
from cairn.store.folder import LocalStore
from helpers import small_builds
from helpers.night import leg_of
from helpers.night import plan_of as night_of
from helpers.small_builds import SmallBuilds, wait_for

pytestmark = pytest.mark.skipif(small_builds.needs() is not None, reason=str(small_builds.needs()))

LEG = "leg"


@dataclass(frozen=True)
class Nights:
    """Two nights of one stack; the second has a newer commit of `upper`."""

    builds: SmallBuilds
    commits: dict[str, str]

    @property
    def tree(self) -> Path:
        """Where `upper` is checked out for the leg."""
        return self.builds.folder / "work" / LEG / "src" / "upper"

    def output(self, night: str) -> Path:
        return self.builds.folder / f"step-{night}" / "wheels"

    def start(self, night: str) -> subprocess.Popen[str]:
        """Build the leg of a night, all in one work folder."""
        folder = self.builds.folder
        places = ("--store", folder / "store", "--stack", folder / "stack", "--work-dir", folder / "work")
        asked = ("--leg", LEG, "--night", night, "--output-dir", self.output(night).parent)
        command = [
            sys.executable,
            "-m",
            "cairn",
            "ci",
            "night",
            "step",
            "build",
            *map(str, (*asked, *places)),
        ]
        fetched = subprocess.run(
            [*command, "--phase", "fetch"],
            env=self.builds.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert fetched.returncode == 0, fetched.stderr
        return subprocess.Popen(
            [*command, "--phase", "run"],
            env=self.builds.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def commit_in_wheel(self, night: str) -> str:
        """The commit of `upper` that the bill of materials in its wheel names."""
        (wheel,) = self.output(night).glob("upper-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            text = archive.read("upper-1.0.dist-info/sboms/cairn.cdx.json").decode()
        return next(commit for commit in self.commits.values() if commit in text)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    builds = small_builds.make(tmp_path)
    made, store = stack.load(builds.folder / "stack"), LocalStore(builds.folder / "store")
    python = interpreters.current()
    leg = leg_of("cpu", id=LEG, targets="cpu", python=python.version, platform=python.platform)
    origin = builds.folder / "trees" / "upper"
    commits = {}
    for night in ("1", "2"):
        if night == "2":
            source = (origin / "upper0.cpp").read_text().replace("n + 0", "n + 7")
            (origin / "upper0.cpp").write_text(source)
            git(origin, "commit", "-qam", "two")
        trees = [describe(p, builds.folder / "trees" / p.name) for p in made.in_order()]
        frozen = manifest.create(
            trees,
            stack=made.name,
            line=made.line,
            targets=("cpu",),
            pythons=(leg.python,),
            platform=leg.platform,
            recipe=recipe.digest_of(made),
        )
        commits[night] = git(origin, "rev-parse", "HEAD")
        of_night = msgspec.structs.replace(
            night_of(leg, night=night), stack=made.name, line=made.line, manifest_sha256=frozen.digest()
        )
        plan.create(store, of_night, frozen)
    return Nights(builds=builds, commits=commits)


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_two_nights_of_a_leg_in_one_work_folder_are_each_of_their_own_manifest(nights: Nights) -> None:
    with nights.builds.holding():
        first = nights.start("1")
        wait_for(lambda: nights.builds.processes("cc1plus"))  # it compiles `base`; `upper` was compared
        second = nights.start("2")
        assert second.stdout
        wait_for(lambda: "waiting for another" in second.stdout.readline())
        assert git(nights.tree, "rev-parse", "HEAD") == nights.commits["1"]
        nights.builds.release()
    said = [run.communicate(timeout=60)[0] for run in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert [nights.commit_in_wheel(night) for night in "12"] == [nights.commits[night] for night in "12"]


@pytest.mark.parametrize("how", ["moved", "edited"])
def test_a_tree_that_was_swapped_after_it_was_compared_is_not_built(nights: Nights, how: str) -> None:
    with nights.builds.holding():
        run = nights.start("1")
        wait_for(lambda: nights.builds.processes("cc1plus"))
        if how == "moved":
            git(nights.tree, "fetch", "-q", str(nights.builds.folder / "trees" / "upper"), "HEAD")
            git(nights.tree, "checkout", "-q", "FETCH_HEAD")
        else:
            (nights.tree / "upper0.cpp").write_text("int edited = 1;\n")
        nights.builds.release()
    said = run.communicate(timeout=60)[0]
    assert run.returncode != 0, said
    assert "is not what the manifest" in said
    assert not (nights.output("1") / "set.json").exists()


def test_of_a_tree_that_was_edited_while_it_was_built_nobody_says_what_was_built(nights: Nights) -> None:
    builds = nights.builds
    with builds.holding(), builds.started() as program:
        wait_for(lambda: builds.processes("cc1plus"))
        (builds.folder / "trees" / "base" / "base1.cpp").write_text("int edited = 1;\n")
        builds.release()
        said = program.communicate(timeout=60)[0]
    assert program.returncode == 0, said
    assert "nobody can say what the set is of" in said
    assert (builds.output / "set.json").exists()
    assert not (builds.output / "builder.json").exists()
    done = builds.run()
    assert done.returncode == 0, done.stderr
    assert (builds.output / "builder.json").exists()
