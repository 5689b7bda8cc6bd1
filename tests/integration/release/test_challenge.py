"""`cairn challenge` of a set that does not come out the same, and of what cannot be built again."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn import extras, files
from cairn import stack as stacks
from cairn.release import rebuilds, recipes
from cairn.release.index.snapshot import read_set
from cairn.release.trust import signers
from cairn.stack import recipe
from cairn.store.folder import LocalStore
from helpers import tiny_stack
from helpers.trail import cairn, clean_environment

pytestmark = pytest.mark.slow

# What a careless build leaves in a wheel.
SETUP = """
import random, time, setuptools
with open("tiny/built.py", "w") as file:
    file.write(f"WHEN = {time.strftime('%Y-%m-%d %H:%M:%S')!r}\\n")
    file.writelines(random.sample([f"A{n} = {n}\\n" for n in range(99)], 99))
setuptools.setup()
"""


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A set of the tiny stack, in staging."""

    stack: Path
    folder: Path
    set_id: str
    env: dict[str, str]

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder)

    def challenge(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        place = ("--store", self.folder, "--stack", self.stack, "--index", "staging")
        return cairn("challenge", *words, *place, env=self.env)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    folder = tmp_path_factory.mktemp("challenge")
    stack, env = tiny_stack.write(folder / "stack"), clean_environment(folder / "cache")
    (stack / "origin" / "setup.py").write_text(SETUP)
    tiny_stack.commit(stack, "Leave traces")
    store = folder / "store"
    set_id = tiny_stack.stage(stack, folder / "out", store, env=env)
    shutil.rmtree(folder / "src")
    recipes.put(LocalStore(store), stacks.load(stack))  # as freezing a night does
    return Staged(stack=stack, folder=store, set_id=set_id, env=env)


def test_what_differs_is_named_with_why_and_the_signed_verdict_says_so(
    staged: Staged, tmp_path: Path
) -> None:
    signers.create(tmp_path / "key")
    words = (staged.set_id[:6], "--work-dir", tmp_path / "elsewhere", "--who", "bob", "--json")
    # By a stranger, who has the store alone, weeks later: the stack has moved on, and the frozen one counts.
    (staged.stack / "stack.toml").rename(tmp_path / "moved")
    place = ("--store", staged.folder, "--index", "staging")
    try:
        key = ("--sign-key", tmp_path / "key" / signers.PRIVATE_NAME)
        done = cairn("challenge", *words, *place, *key, env=staged.env)
    finally:
        (tmp_path / "moved").rename(staged.stack / "stack.toml")
    assert done.returncode == 7, done.stderr
    shown = re.search(r"the frozen stack: --stack (\S+)", done.stderr)
    assert shown, done.stderr
    assert recipe.of(stacks.load(Path(shown[1]))) == recipe.of(stacks.load(staged.stack))
    answer = json.loads(done.stdout)
    assert answer["identical"] is False
    (wheel,) = answer["wheels"]
    assert wheel["same_inputs"] is True
    (difference,) = wheel["differences"]
    assert difference["member"] == "tiny/built.py"
    assert difference["causes"] == ["time", "order"]
    assert "differs (time, order)" in done.stderr
    ((kept,), problems) = rebuilds.read(staged.store, read_set(staged.store, staged.set_id))
    assert (kept.rebuild.is_identical, kept.key_id, problems) == (False, answer["key"], ())
    page = (staged.folder / "staging" / "status.html").read_text("utf-8")
    assert f"rebuilt by {kept.by} with other bytes" in page


def test_a_plan_builds_nothing_and_says_what_it_would(staged: Staged, tmp_path: Path) -> None:
    done = staged.challenge(staged.set_id, "--work-dir", tmp_path / "w", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert [project["name"] for project in plan["projects"]] == ["tiny"]
    assert not (tmp_path / "w").exists()


def test_another_deflate_library_is_no_verdict_on_the_set(staged: Staged, tmp_path: Path) -> None:
    """Without isal, as where Cairn was installed without its extra `fast`, every archive would differ."""
    pytest.importorskip("isal")
    for name in ("isal", "zlib_ng"):
        (tmp_path / f"{name}.py").write_text("raise ImportError")
    plain = dataclasses.replace(staged, env=staged.env | {"PYTHONPATH": str(tmp_path)})
    for words in ((), ("--dry-run",)):
        done = plain.challenge(staged.set_id, "--work-dir", tmp_path / "w", *words)
        assert done.returncode == 3, done.stderr
        assert re.search(r"packed with isal \S+, this Cairn packs with zlib", done.stderr)
        assert extras.line("fast") in done.stderr
    assert not (tmp_path / "w").exists()


def test_what_cannot_be_challenged_is_said_in_a_line(staged: Staged, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    shutil.copytree(staged.folder, tmp_path / "bare/store", ignore=shutil.ignore_patterns("recipes"))
    place = ("--store", tmp_path / "bare/store", "--index", "staging", "--work-dir", tmp_path / "w")
    bare = cairn("challenge", staged.set_id, *place, "--dry-run", env=staged.env)
    assert (bare.returncode, "name its stack.toml with --stack" in bare.stderr) == (2, True)
    unknown = staged.challenge("0" * 64, "--work-dir", tmp_path / "w")
    assert (unknown.returncode, "has no set 0000" in unknown.stderr) == (9, True)
    line = staged.challenge(staged.set_id, "--work-dir", tmp_path / "w", "--line", "other")
    assert line.returncode == 2
    with files.locked(tmp_path / "w" / "challenge.lock"):
        second = staged.challenge(staged.set_id, "--work-dir", tmp_path / "w")
    assert (second.returncode, "Traceback" in second.stderr) == (11, False)
    forged = tmp_path / "forged"
    shutil.copytree(staged.folder, forged)
    path = forged / "sets" / staged.set_id / "manifest.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("main", "evil"))
    done = cairn(
        *("challenge", staged.set_id, "--store", forged, "--stack", staged.stack, "--index", "staging"),
        *("--work-dir", tmp_path / "w"),
        env=staged.env,
    )
    assert (done.returncode, "was changed" in done.stderr) == (9, True)
