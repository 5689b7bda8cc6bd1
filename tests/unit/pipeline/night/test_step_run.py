"""A step in phases: what its `run` sees, and what of it is kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from cairn import datafile, platforms
from cairn.errors import UsageError
from cairn.pipeline.night import plan, step_run
from cairn.pipeline.night.step_run import StepEnd
from cairn.pipeline.night.steps import LegStep, Settings
from cairn.release import recipes
from cairn.stack import load, recipe
from cairn.store.folder import LocalStore
from helpers.night import FROZEN, leg_of, plan_of
from helpers.trail import SAMPLE

LEG = leg_of("gfx94X-dcgpu")
# Stands for a build: it notes all it sees of its caller, and how it ended.
RUN = """
import json, os, pathlib, sys
words = sys.argv[1:]
left = pathlib.Path(words[words.index("--output-dir") + 1], "wheels")
left.mkdir()
def text(path):
    try:
        return pathlib.Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""
seen = [" ".join(words), json.dumps(dict(os.environ)), text(os.environ["THE_KEY"])]
seen += [text(f"/proc/{os.getppid()}/environ")]
(left / "seen.json").write_text(json.dumps(seen))
note = json.loads(os.environ["THE_NOTE"])
if note:
    (left / "step.json").write_text(json.dumps(note))
links, login = os.environ.get("THE_LINKS"), os.environ.get("THE_LOGIN", "")
if links == "wheels":
    left.rename(left.with_name("gone"))
    left.symlink_to(login)
elif links == "step":
    left.parent.rename(left.parent.with_name("gone"))
    left.parent.symlink_to(pathlib.Path(login).parent)
elif links == "file":
    (left / "login").symlink_to(login + "/login")
elif links == "folder":
    (left / "more").symlink_to(login)
sys.exit(6 if links is None else 0)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store of a night, and what stands for `cairn` in the phase `run`."""
    store, stack = LocalStore(tmp_path / "store"), load(SAMPLE)
    frozen = msgspec.structs.replace(FROZEN, recipe=recipe.digest_of(stack))
    recipes.put(store, stack)
    line = next(iter(stack.lines))
    leg = msgspec.structs.replace(LEG, line=line)
    frozen = msgspec.structs.replace(frozen, line=line)
    night = msgspec.structs.replace(plan_of(leg), line=line, manifest_sha256=frozen.digest())
    plan.create(store, night, frozen)
    (tmp_path / "cairn").mkdir()
    (tmp_path / "cairn/__init__.py").touch()
    (tmp_path / "cairn/__main__.py").write_text(RUN)
    return tmp_path


def ended(place: Path, note: object, **variables: str) -> StepEnd:
    settings = Settings(
        stack=SAMPLE, store=str(place / "store"), sign_key=None, work_dir=place / "work", cores=1
    )
    step = LegStep(kind="build", night="7", leg=LEG.id, folder=place / "step", settings=settings)
    more = {"PYTHONPATH": str(place), "THE_NOTE": json.dumps(note), "GITHUB_RUN_ID": "77", **variables}
    return step_run.run_step(step_run.job_of(step, cores=1, variables=more))


def note_of(place: Path, **changes: object) -> object:
    run = plan.open_run(LocalStore(place / "store"), "7", SAMPLE)
    note = plan.step_note(run, run.plan.builds[0], "build", run.plan.frozen, good=False, reason="no GCC")
    return datafile.to_plain(msgspec.structs.replace(note, **changes))


def test_what_runs_foreign_code_sees_no_store_key_or_token_and_what_failed_is_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "f4ke-aws",
        "GITHUB_TOKEN": "f4ke-token",
        "CAIRN_SIGN_PRIVATE_KEY": "",
        "CAIRN_STORE": "https://me:f4ke-login@example.invalid/store",
        "CAIRN_ROOT_KEY": str(place / "f4ke-root.pem"),
    }
    (place / "f4ke-root.pem").write_text("f4ke-key")
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    end = ended(place, note_of(place), THE_KEY=str(place / "f4ke-root.pem"))
    assert end.code == 6
    assert [item.key for item in LocalStore(place / "store").list("nights/7/built/")] == [
        f"nights/7/built/{LEG.id}/77.1/step.json"
    ]
    words, variables, key, above = json.loads((place / "step/wheels/seen.json").read_text())
    assert "f4ke" not in words.replace(str(place), "")
    assert str(place / "store") not in words + variables
    assert "f4ke" not in variables.replace(str(place / "f4ke-root.pem"), "")
    if sys.platform == "linux" and not platforms.here.exposed():
        assert "f4ke" not in above
        assert not key or Path("/tmp") in place.parents  # noqa: S108 - which Landlock does not cover


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a link that is put there later is followed")
@pytest.mark.parametrize("links", ["wheels", "step", "file", "folder"])
def test_what_is_linked_from_elsewhere_by_foreign_code_is_not_kept(place: Path, links: str) -> None:
    login = place / "home/wheels"
    login.mkdir(parents=True)
    (login / "login").write_text("f4ke-login")
    note = note_of(place, good=True)
    datafile.write(login / "step.json", datafile.loads(json.dumps(note), plan.StepNote, name="note"))
    end = ended(place, note, THE_KEY="none", THE_LINKS=links, THE_LOGIN=str(login))
    assert end.code == (2 if links == "wheels" else 0), end.tail
    store = LocalStore(place / "store")
    kept_names = {item.key.rpartition("/")[2] for item in store.list("nights/7/built/")}
    assert kept_names == (set() if links == "wheels" else {"seen.json", "step.json"})


def test_no_results_are_kept_through_a_link_to_their_folder(place: Path) -> None:
    settings = Settings(
        stack=SAMPLE, store=str(place / "store"), sign_key=None, work_dir=place / "work", cores=1
    )
    step = LegStep(kind="test", night="7", leg=LEG.id, folder=place / "step", settings=settings)
    (place / "home").mkdir()
    step.left.mkdir(parents=True)
    (step.left / "compat").symlink_to(place / "home")
    with pytest.raises(UsageError, match="is a link"):
        step_run.keep(step, plan.open_run(LocalStore(place / "store"), "7", SAMPLE), None)


@pytest.mark.parametrize(
    ("note", "code"),
    [
        pytest.param(None, 6, id="nothing is left"),
        pytest.param({"schema": "cairn.night-step/1", "attempt": "x"}, 6, id="no note"),
    ],
)
def test_what_a_run_leaves_ends_its_step_and_no_other(place: Path, note: object, code: int) -> None:
    end = ended(place, note, THE_KEY="none")
    assert end.code == code
    assert not list(LocalStore(place / "store").list("nights/7/built/"))
    if note is not None:
        assert any("step.json" in line for line in end.tail), end.tail


def test_a_step_that_cannot_fetch_runs_nothing(place: Path) -> None:
    for path in (place / "store/nights").rglob("manifest.json"):
        path.unlink()
    end = ended(place, None, THE_KEY="none")
    assert end.code == 9
    assert any("manifest.json" in line for line in end.tail), end.tail
    assert not (place / "step/wheels").exists()
