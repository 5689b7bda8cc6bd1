"""From upstream repositories to `pip install`, on the sample stack, as a newcomer runs it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.parse
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
from installer.sources import WheelFile

from cairn.build.engine import events
from cairn.release.index import keys
from cairn.release.index.snapshot import Index
from cairn.release.serve import serving
from cairn.store import folder as store_folder
from helpers import tiny_stack
from helpers.release import audit
from helpers.trail import SAMPLE, Trail, cairn, cairn_watched, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trail")]

STAGES = [
    "check out release/2.9",
    "make the ROCm SDK",
    "build torch",
    "stage the set",
    "smoke-test the installed wheels",
    "install from the release index",
]
IMPORTS = "import torch, torchvision, torchaudio; assert torch.version.hip; print(torch.cuda.is_available())"


def test_every_stage_is_shown_and_the_record_is_untested_without_a_gpu(trail: Trail) -> None:
    for stage in STAGES:
        assert f"✓ {stage}" in trail.progress
    assert trail.answer["record"]["verdict"] == "untested"
    assert trail.answer["record"]["counts"]["passed"] > 0
    assert trail.answer["record"]["counts"]["failed"] == 0
    tested = {w["sha256"] for w in trail.answer["record"]["wheels"]}
    assert {w["sha256"] for w in trail.answer["wheels"]} <= tested
    assert trail.answer["record"]["set_id"] == trail.answer["set"]["set_id"]


def test_stages_are_counted_to_the_last(trail: Trail) -> None:
    begun = [line for line in trail.progress.splitlines() if re.match(r"\[ ?\d+/12\] → ", line)]
    assert [int(line[1:3]) for line in begun] == list(range(1, 13))


def test_a_bypassed_gate_looks_like_one_and_untested_is_said_everywhere(trail: Trail) -> None:
    untested = "untested on hardware: gfx942, gfx1100"
    (gate,) = [line for line in trail.progress.splitlines() if line.startswith("[11/12] ! ")]
    assert re.fullmatch(rf"\[11/12\] ! pass the gate and promote [\d.]+ s  bypassed: {untested}", gate)
    assert trail.answer["untested"] == ["gfx942", "gfx1100"]
    outcomes = {demand["number"]: demand["outcome"] for demand in trail.answer["demands"]}
    assert outcomes == {0: "met", 1: "met", 2: "bypassed", 3: "met", 4: "met", 5: "met", 6: "met"}
    report = (trail.work / "report.html").read_text()
    page = (trail.work / "index" / "release" / "simple" / "torch" / "index.html").read_text()
    for shown in (report, page):
        assert untested in shown
        assert "bypassed by cairn ci run: no GPU was used" in shown
    for demand in trail.answer["demands"]:
        assert demand["name"] in report


def test_whoever_has_the_key_follows_each_wheel_to_its_commits(trail: Trail) -> None:
    words = ("index", "verify", *trail.wheels, "--store", trail.work / "index", "--json")
    done = cairn(*words, "--trust", trail.public_key, env=trail.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((trail.work / "wheels" / "manifest.json").read_text("utf-8"))
    commits = {project["name"]: project["commit"] for project in manifest["projects"]}
    for report in json.loads(done.stdout):
        assert {source["name"]: source["commit"] for source in report["sources"]} == commits
        untested, unsigned = report["warnings"]
        assert untested.startswith("untested on hardware: gfx942, gfx1100")
        assert unsigned.startswith("nobody has signed which state is current")


def test_wheels_hold_exactly_the_targets_and_pins(trail: Trail) -> None:
    wheels = {w["distribution"]: w for w in trail.answer["set"]["wheels"]}
    assert wheels["torch"]["version"] == "2.9.0+rocm7.10.0"
    assert sorted(wheels["torch"]["targets"]) == ["gfx1100", "gfx942"]
    assert sorted(wheels["torchvision"]["targets"]) == ["gfx1100", "gfx942"]
    assert wheels["triton"]["targets"] == []
    requires = {path.name.split("-")[0]: requirements_of(path) for path in trail.wheels}
    assert {"triton==3.5.0+rocm7.10.0", "rocm[libraries]==7.10.0"} <= requires["torch"]
    assert requires["torchvision"] == requires["torchaudio"] == {"torch==2.9.0+rocm7.10.0"}


def test_no_temporary_file_is_left(trail: Trail) -> None:
    assert [path.name for path in trail.temporary.iterdir()] == []


def requirements_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return {line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist")}


def test_the_printed_line_works_in_a_new_environment(trail: Trail, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    env = trail.environment() | {"PIP_CONFIG_FILE": os.devnull, "PATH": f"{venv}/bin:{os.environ['PATH']}"}
    env = {k: v for k, v in env.items() if k == "PIP_CONFIG_FILE" or not k.startswith("PIP_")}
    line = trail.answer["pip"]
    assert "--extra-index-url" not in line
    assert line.endswith("torch torchvision torchaudio")
    subprocess.run(line, shell=True, check=True, env=env)  # noqa: S602 - just what a person would type
    out = subprocess.run(
        [venv / "bin" / "python", "-c", IMPORTS], env=env, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "False"


def test_uv_installs_over_http_with_the_index_alone(trail: Trail, tmp_path: Path) -> None:
    uv = [sys.executable, "-m", "uv", "--no-config"]
    env = {k: v for k, v in trail.environment().items() if not k.startswith("UV_")}
    env["UV_CACHE_DIR"] = str(tmp_path / "cache")
    subprocess.run([*uv, "venv", tmp_path / "venv", "--python", sys.executable], check=True, env=env)
    python = tmp_path / "venv" / "bin" / "python"
    with serving(store_folder.LocalStore(trail.work / "index")) as server:
        url = keys.index_url(server.url, "release")
        names = ["torch", "torchvision", "torchaudio"]
        subprocess.run(
            [*uv, "pip", "install", "--python", python, "--index-url", url, *names], check=True, env=env
        )
    subprocess.run([python, "-c", IMPORTS], check=True)


def test_peers_accept_the_wheels(trail: Trail) -> None:
    for wheel in trail.wheels:
        with WheelFile.open(wheel) as source:
            source.validate_record(validate_contents=True)
        with zipfile.ZipFile(wheel) as archive:
            assert archive.testzip() is None
        shown = subprocess.run(
            [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=False
        )
        assert shown.returncode == 0, shown.stderr
    check = Path(sys.executable).with_name("check-wheel-contents")
    subprocess.run([check, *trail.wheels], check=True)


def test_checkouts_and_wheels_are_at_the_commits_of_upstream(trail: Trail) -> None:
    manifest = json.loads((trail.work / "wheels" / "manifest.json").read_text("utf-8"))
    commits = {project["name"]: project["commit"] for project in manifest["projects"]}
    torch = trail.work / "src" / "pytorch"
    for folder in (torch, torch / "third_party" / "cudakit"):
        command = ["git", "log", "-1", "--format=%H %D"]
        log = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
        assert "tag: THEROCK_UPSTREAM_DIFFBASE" in log
        assert commits["torch"] in log or folder != torch
    named = set()
    for wheel in trail.wheels:
        with zipfile.ZipFile(wheel) as archive:
            modules = [name for name in archive.namelist() if re.fullmatch("[^/]+/version.py", name)]
            named |= {
                commit for m in modules for commit in re.findall("[0-9a-f]{40}", archive.read(m).decode())
            }
    assert named == {commit for name, commit in commits.items() if name != "triton"}


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.followed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = {"script": "src", "img": "src", "link": "href", "iframe": "src"}.get(tag)
        self.loaded += [value or "" for name, value in attrs if name == wanted]
        self.followed += [value or "" for name, value in attrs if (tag, name) == ("a", "href")]


def test_the_report_is_one_file_that_loads_nothing(trail: Trail) -> None:
    text = (trail.work / "report.html").read_text()
    links = _Links()
    links.feed(text)
    assert links.loaded == []
    for needed in (
        "2.9.0+rocm7.10.0",
        trail.answer["set"]["set_id"],
        "pip install",
        "uv pip install",
        "no device",
    ):
        assert needed in text
    assert {"manifest.json", "set.json", "record.json", "index.html"} <= {
        link.rpartition("/")[2] for link in links.followed
    }
    assert any("/judgements/" in link for link in links.followed)
    for link in links.followed:
        assert (trail.work / urllib.parse.unquote(link)).exists(), link


def test_a_second_run_builds_nothing_and_changes_nothing(trail: Trail, tmp_path: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in trail.wheels}
    done, programs = cairn_watched(
        *("ci", "run", "--stack", SAMPLE, "--work-dir", trail.work, "--json"),
        env=trail.same_environment(),
        log=tmp_path / "programs",
    )
    assert done.returncode == 0, done.stderr
    assert "git" in programs
    # No Python of an environment, with pip or without, and no compiler.
    assert programs <= {"git", "uv", "uname", "guard", "namespaces", "true"}
    answer = json.loads(done.stdout)
    assert all(w["cached"] for w in answer["wheels"])
    assert answer["set"] == trail.answer["set"]
    assert {p: p.stat().st_mtime_ns for p in trail.wheels} == before
    assert "✓ build" not in done.stderr
    assert {"smoke-test the installed wheels", "install from the release index"} <= set(answer["kept"])
    log = events.last_run(trail.work / "wheels" / "events.jsonl")
    assert {event.ending for event in log if isinstance(event, events.StepEnded)} == {"kept"}
    assert not [event for event in log if isinstance(event, events.ProgramStarted)]
    assert answer["record"] == trail.answer["record"]
    assert answer["demands"] == trail.answer["demands"]
    assert "[11/12] ! pass the gate and promote" in done.stderr


def test_what_was_changed_since_is_not_kept(trail: Trail, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("index", "wheels", "kept", "smoke", "src"):
        shutil.copytree(trail.work / name, work / name, symlinks=True)
    for name in ("sdk", "envs"):  # 17,000 files, which nothing writes into
        shutil.copytree(trail.work / name, work / name, symlinks=True, copy_function=os.link)
    with (work / "smoke" / "record.json").open("a") as record:
        record.write("\n")
    shutil.rmtree(work / "index" / "release" / "simple" / "torch")
    done = cairn("ci", "run", "--stack", SAMPLE, "--work-dir", work, env=trail.same_environment())
    assert done.returncode == 9, done.stderr
    assert "✓ smoke-test the installed wheels" in done.stderr
    assert "✗ install from the release index" in done.stderr


def test_another_build_of_a_version_begins_a_new_index_and_keeps_the_last_one(tmp_path: Path) -> None:
    stack, env = tiny_stack.write(tmp_path / "stack"), clean_environment(tmp_path / "cache")
    run = ("ci", "run", "--stack", stack, "--work-dir", tmp_path / "work", "--json")
    done = cairn(*run, env=env)
    assert done.returncode == 0, done.stderr
    kept: set[Path] = set()
    for change in ("sources", "stack"):
        before = done
        if change == "sources":
            (stack / "origin" / "tiny" / "more.py").touch()
            tiny_stack.commit(stack, "More of the same version")
        else:
            with (stack / "stack.toml").open("a", encoding="utf-8") as file:
                file.write("# The same wheels, of another manifest.\n")
        done = cairn(*run, env=env)
        assert done.returncode == 0, done.stderr
        assert "starting a new index" in done.stderr, change
        (last,) = {*(tmp_path / "work").glob("index-until-*")} - kept
        kept.add(last)
        for folder, its in ((last, before), (tmp_path / "work" / "index", done)):
            store = store_folder.LocalStore(folder)
            assert audit(store, "release", hashes=True) == ()
            names = {one.set_id for one in Index(store, "release").load().sets()}
            assert names == {json.loads(its.stdout)["set"]["set_id"]}


@pytest.mark.by_hand
def test_other_targets_begin_a_new_index_and_keep_the_last_one(trail: Trail, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(trail.work / "index", work / "index")
    # Those of a page that is run, too: their SDK is made once.
    done = cairn(
        *("ci", "run", "--stack", SAMPLE, "--work-dir", work, "--targets", "gfx1151", "--json"),
        env=trail.environment(),
    )
    assert done.returncode == 0, done.stderr
    assert "starting a new index" in done.stderr
    (kept,) = work.glob("index-until-*")
    assert audit(store_folder.LocalStore(kept), "release", hashes=True) == ()
    assert audit(store_folder.LocalStore(work / "index"), "release", hashes=True) == ()
    answer = json.loads(done.stdout)
    assert answer["set"]["targets"] == ["gfx1151"]
    assert answer["set"]["set_id"] != trail.answer["set"]["set_id"]


def test_an_edit_rebuilds_what_it_touches_and_what_depends_on_it(trail: Trail, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(trail.work / "src", source, symlinks=True)
    ops = source / "pytorch" / "torch" / "functional.py"
    ops = ops if ops.exists() else source / "pytorch" / "torch" / "__init__.py"
    ops.write_text(ops.read_text() + "\n# an edit\n")
    done = cairn(
        *(
            "build",
            "--dry-run",
            "--json",
            "--stack",
            SAMPLE,
            "--root-checkout-dir",
            source,
            "--output-dir",
            tmp_path / "out",
        ),
        *("--targets", "gfx942,gfx1100", "--env-dir", trail.work / "envs"),
        env=trail.environment(),
    )
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    actions = {step["project"]: step["action"] for step in steps if step["kind"] == "build"}
    assert actions == {"triton": "cached", "torch": "build", "audio": "build", "vision": "build"}


def test_one_file_of_vision_rebuilds_vision_and_nothing_else(trail: Trail, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(trail.work / "src", source, symlinks=True)
    with (source / "pytorch_vision" / "torchvision" / "csrc" / "vision.cpp").open("a") as file:
        file.write("// an edit\n")
    places = ("--stack", SAMPLE, "--root-checkout-dir", source, "--env-dir", trail.work / "envs")
    command = ("build", *places, "--output-dir", tmp_path / "out", "--targets", "gfx942,gfx1100")
    done = cairn(*command, env=trail.same_environment())
    assert done.returncode == 0, done.stderr
    log = events.last_run(tmp_path / "out" / "events.jsonl")
    endings = {event.step: event.ending for event in log if isinstance(event, events.StepEnded)}
    assert endings == {
        "build triton": "kept",
        "build torch": "kept",
        "build audio": "kept",
        "build vision": "done",
    }
    assert {event.step for event in log if isinstance(event, events.ProgramStarted)} == {"build vision"}
    # And with nothing changed, there is nothing to start: no compiler, no pip.
    again = cairn(*command, env=trail.same_environment())
    assert again.returncode == 0, again.stderr
    log = events.last_run(tmp_path / "out" / "events.jsonl")
    assert {event.ending for event in log if isinstance(event, events.StepEnded)} == {"kept"}
    assert not [event for event in log if isinstance(event, events.ProgramStarted)]


def test_the_quoted_pip_line_is_one_shell_command(trail: Trail) -> None:
    words = shlex.split(trail.answer["pip"])
    assert words[:2] == ["pip", "install"]
    assert words[3].startswith("file:///")


def test_upstreams_script_makes_a_fat_wheel_with_the_sdk_of_the_sample(trail: Trail, tmp_path: Path) -> None:
    """Without one library that torch opens by name: the sample's runtime has no compiler to open."""
    (torch,) = (wheel for wheel in trail.wheels if wheel.name.startswith("torch-"))
    sdk = next(trail.work.glob("**/site-packages/_rocm_sdk_core"))
    script = SAMPLE.with_name("pytorch") / "patch_fat_wheel.py"
    command = [sys.executable, script, torch, sdk, "--output-path", tmp_path / "fat"]
    made = subprocess.run(command, env=trail.environment(), capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "lib/libamdhip64.so.6" in made.stdout
    (fat,) = (tmp_path / "fat").iterdir()
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        fat,
    ]
    subprocess.run(install, check=True)
    code = "import torch, importlib.util as u; print(torch.version.hip, u.find_spec('rocm_sdk'))"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"[0-9.]+ None", done.stdout.strip())
