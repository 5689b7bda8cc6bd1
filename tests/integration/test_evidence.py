"""A good verdict is made of what was read: what makes a command say good is taken away, command by command.

A row is a command and the files that it judges by. Each file is removed, hidden, emptied, cut off and made
unreadable in turn, and the command must not end with 0 then; two of these are tried without CAIRN_TEST_ALL.
A new command gets a row, or its reason why it gives no verdict.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from cairn import datafile, venv
from cairn import stack as stacks
from cairn.cli.commands import PROGRAM, Group
from cairn.cli.main import main
from cairn.pipeline.doctor.model import Device, Disk, DoctorReport, GpuFacts, Machine, PythonFacts
from cairn.pipeline.night import plan
from cairn.release import recipes
from cairn.release.history.rollback import rollback
from cairn.release.index import keys
from cairn.release.index.keys import index_url
from cairn.release.pages import targets_file
from cairn.release.publish.files import publish
from cairn.sources.manifest.manifest import Manifest
from cairn.stack import recipe
from cairn.store.folder import LocalStore
from cairn.wheels import wheelset
from cairn.wheels.wheelset import WheelSet
from helpers import artifacts, gate, tiny_stack
from helpers.gate import data_of, record_of, write_stack
from helpers.hardware import TORCH
from helpers.night import leg_of, plan_of
from helpers.pages import PLATFORM, PYTHON, channel, family
from helpers.provenance import RELEASER, TESTER, released
from helpers.release import in_folder, make_set, make_wheel, move, stage_set
from helpers.suites import commit_all, write_tests
from helpers.trail import clean_environment
from helpers.wheels import build_wheel

ALL = bool(os.environ.get("CAIRN_TEST_ALL"))
FAULTS = ("removed", "emptied", "hidden", "cut", "unreadable")
Words = Sequence[object]
NEW_FOLDER = "a folder that is new for each call"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A command that gives a verdict.

    Attributes:
        make: writes what it judges into a folder; the words of the command, whose paths are below it.
        evidence: globs below the folder, each of a file that it judges by: the first match is spoilt, or,
            with `all:`, every one at once. A pattern that ends in `/` is of a folder.
        exempt: a pattern and a fault of it that may be good, with the reason.
        dear: a run takes seconds: without CAIRN_TEST_ALL, files are only emptied.
    """

    make: Callable[[Path], Words]
    evidence: tuple[str, ...]
    exempt: Mapping[str, str] = field(default_factory=dict)
    dear: bool = False


def _wheel_verify(folder: Path) -> Words:
    return "wheel", "verify", make_wheel(folder, "alpha", "1.0"), make_wheel(folder, "beta", "1.0")


def _wheel_verify_url(folder: Path) -> Words:
    wheel = make_wheel(folder, "alpha", "1.0")
    return "wheel", "verify", f"{wheel.as_uri()}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}"


def _wheel_verify_index(folder: Path) -> Words:
    publish(LocalStore(folder / "store"), "dev", [make_wheel(folder / "made", "alpha", "1.0")])
    return "wheel", "verify", f"{index_url((folder / 'store').as_uri(), 'dev')}#alpha==1.0"


def _set_version(folder: Path) -> Words:
    wheel = make_wheel(folder / "made", "alpha", "1.0")
    return "wheel", "set-version", wheel, "--version", "1.1", "--output-dir", NEW_FOLDER


def _diff(folder: Path) -> Words:
    return "diff", make_wheel(folder / "old", "alpha", "1.0"), make_wheel(folder / "new", "alpha", "1.1")


def _diff_sets(folder: Path) -> Words:
    for name in ("old", "new"):
        wheel = make_wheel(folder / name, "alpha", "1.0", content=f"NAME = {name!r}\n")
        wheelset.write(folder / name / "set.json", make_set([wheel]))
    return "diff", folder / "old" / "set.json", folder / "new" / "set.json"


def _set_of_wheels(folder: Path) -> Words:
    build_wheel(folder / "old")
    build_wheel(folder / "users", name="user", requires=("demo<2",))
    return "diff", "--consumers", folder / "old", folder / "old", "--consumer", folder / "users"


def _store(folder: Path) -> Path:
    """A store with a signed set in release, and the keys of who vouched for it."""
    in_folder(released(folder / "made").store, folder / "store")
    (folder / "releaser.pub").write_bytes(RELEASER.public.pem())
    (folder / "tester.pub").write_bytes(TESTER.public.pem())
    return folder / "store"


def _index_check(folder: Path) -> Words:
    return "index", "check", "--store", _store(folder), "--hashes"


def _index_gc(folder: Path) -> Words:
    return "index", "gc", "--store", _store(folder), "--dry-run"


def _index_repair(folder: Path) -> Words:
    return "index", "repair", "--store", _store(folder)


def _index_verify(folder: Path) -> Words:
    store = _store(folder)
    (torch,) = (folder / "made").glob("torch-*.whl")
    trust = ("--trust", folder / "releaser.pub", "--trust-tester", folder / "tester.pub")
    return "index", "verify", torch, "--store", store, *trust


def _staged(folder: Path) -> tuple[LocalStore, WheelSet, Path]:
    """A store with a set in staging, the set, and the record of a test that passed."""
    store, wheel = LocalStore(folder / "store"), make_wheel(folder, "torch", "2.9.0")
    stack = stacks.load(write_stack(folder / "stack", make_set([wheel], **gate.AWAY)))
    recipes.put(store, stack)
    digest = recipe.digest_of(stack)
    made = stage_set(store, "staging", make_set([wheel], **gate.AWAY, recipe=digest), [wheel], recipe=digest)
    record = folder / "record.json"
    record.write_bytes(data_of(record_of(made)))
    return store, made, record


def _promote(folder: Path) -> Words:
    store, made, record = _staged(folder)
    words = ("--stack", folder / "stack", "--store", store.path, "--record", record, "--dry-run")
    return "release", "promote", made.id, *words


def _rollback(folder: Path) -> Words:
    """What goes back to the state that a rollback has left."""
    store, made, _ = _staged(folder)
    move(store, made)
    rollback(store, "release", "0")
    return "release", "rollback", "--store", store.path, "--index", "release", "--to", "1", "--dry-run"


def _yank(folder: Path) -> Words:
    store, made, _ = _staged(folder)
    move(store, made)
    return "release", "yank", made.id, "--store", store.path, "--reason", "wrong results", "--dry-run"


def _retain(folder: Path) -> Words:
    """A staged set that is not the last one, and that release has: it stays."""
    store, made, _ = _staged(folder)
    move(store, made)
    wheel = make_wheel(folder, "torch", "2.9.1")
    stage_set(store, "staging", make_set([wheel], **gate.AWAY), [wheel])
    words = ("--store", store.path, "--index", "staging", "--keep-last", 1, "--dry-run")
    return "release", "retain", *words


def _record_add(folder: Path) -> Words:
    store, _, record = _staged(folder)
    return "release", "record", "add", record, "--store", store.path, "--dry-run"


def _test_report(folder: Path) -> Words:
    text = '<testsuite tests="2"><testcase name="a"/><testcase name="b"/></testsuite>'
    (folder / "junit.xml").write_text(text)
    return "test", "report", folder / "junit.xml"


def _suite(folder: Path) -> Words:
    checkout = write_tests(
        folder / "checkout", {"test_a.py": "def test_a(): pass\n", "test_b.py": "def test_b(): pass\n"}
    )
    # Not a shipped suite: its two modules are of pytest, which is installed.
    (folder / "suite.toml").write_text(
        'schema = "cairn.suite/1"\nproject = "pytest"\ntests = "test"\n'
        'version_module = "_pytest/_version.py"\n'
        'version_file = "version.txt"\n\n[[configs.default.groups]]\nmodules = ["test_a", "test_b"]\n'
    )
    commit_all(checkout)
    words = ("--suite", folder / "suite.toml", "--sources-dir", checkout, "--output-dir", folder / "results")
    return "test", "suite", *words, "--python", sys.executable, "--allow-version-mismatch", "--retries", 0


def _merge(folder: Path) -> Words:
    assert main([str(word) for word in _suite(folder)]) == 0
    return "test", "merge", folder / "results", "--output-dir", folder / "merged"


def _whole_index(folder: Path) -> Words:
    trust = ("--trust", folder / "releaser.pub")
    return "index", "verify", "--store", _store(folder), *trust


def _manifest_verify(folder: Path) -> Words:
    stack = tiny_stack.write(folder / "stack")
    place = ("--stack", stack, "--root-checkout-dir", folder / "src")
    assert main([str(word) for word in ("checkout", "all", *place)]) == 0
    create = ("manifest", "create", *place, "--output", folder / "manifest.json")
    assert main([str(word) for word in create]) == 0
    return "manifest", "verify", folder / "manifest.json", *place


def _patches_audit(folder: Path) -> Words:
    _manifest_verify(folder)
    (folder / "allowlist.toml").write_text('schema = "cairn.patches/1"\n')
    words = ("--stack", folder / "stack", "--allowlist", folder / "allowlist.toml")
    return "patches", "audit", folder / "src" / "tiny", *words


def _smoke(folder: Path) -> Words:
    stack = tiny_stack.write(folder / "stack")
    wheel = make_wheel(folder / "wheels", "tiny", "1.0", content="ANSWER = 42\n")
    wheelset.write(folder / "set.json", make_set([wheel], python=PYTHON, platform=PLATFORM))
    words = (
        "--set",
        folder / "set.json",
        "--find-links",
        folder / "wheels",
        "--output-dir",
        folder / "smoke",
    )
    return "test", "smoke", "--stack", stack, *words


def _night(folder: Path) -> Words:
    """A store with a night of one leg, whose set was tested and promoted; what names it to a command."""
    store, made, record = _staged(folder)
    stack = ("--stack", folder / "stack", "--store", store.path)
    words = ("release", "promote", made.id, *stack, "--record", record, "--to", "release")
    assert main([str(word) for word in words]) == 0
    place = {"python": made.python, "platform": made.platform, "os": "windows", "line": made.line}
    leg = leg_of("cpu", **place, targets="cpu", stack=str(folder / "stack"), test_runs_on=())
    manifest = store.read(keys.set_key(made.id, "manifest.json")).data
    frozen = datafile.loads(manifest, Manifest, name="manifest.json")
    night = msgspec.structs.replace(
        plan_of(leg), line=made.line, manifest_sha256=frozen.digest(), frozen=gate.at(-60 * 20)
    )
    plan.create(store, night, frozen)
    return stack


def _night_report(folder: Path) -> Words:
    return "ci", "night", "report", "--night", "7", *_night(folder), "--dry-run"


def _night_promote(folder: Path) -> Words:
    return "ci", "night", "promote", "--night", "7", *_night(folder), "--whole", "--dry-run"


def _release_night(folder: Path) -> Words:
    return "release", "night", "7", *_night(folder), "--to", "prerelease", "--dry-run"


def _night_overdue(folder: Path) -> Words:
    *_, store = _night(folder)
    # A night of last week, so that without the good one the leg would be overdue.
    night, frozen = plan.read(store := LocalStore(store), "7"), plan.manifest_of(store, plan.read(store, "7"))
    plan.create(store, structs.replace(night, night="6", frozen=gate.at(-60 * 24 * 6)), frozen)
    assert main(["ci", "night", "report", "--night", "7", *map(str, _night_words(folder))]) == 0
    return "ci", "night", "list", "--overdue", "--store", store.path


def _night_words(folder: Path) -> Words:
    return "--stack", folder / "stack", "--store", folder / "store"


def _manifest_checkout(folder: Path) -> Words:
    _, _, manifest, *place = _manifest_verify(folder)
    return "manifest", "checkout", manifest, *place[:2], "--root-checkout-dir", NEW_FOLDER


def _doctor(folder: Path) -> Words:
    gigabytes = 1_000_000_000
    places = ("work folder", "temporary files", "cache")
    node = Device(path="/dev/kfd")
    gpu = ("gfx1100",)
    machine = Machine(
        name="Ubuntu 24.04.3 LTS",
        packages="apt",
        libc="glibc 2.39",
        cores=16,
        memory=64 * gigabytes,
        memory_free=60 * gigabytes,
        open_files=(65536, 1048576),
        python=PythonFacts(path="python3", version=f"{PYTHON}.1"),
        disks=tuple(Disk(role=role, path="/", free=500 * gigabytes, filesystem="ext4") for role in places),
        gpu=GpuFacts(targets=gpu, visible=gpu, cards=1, driver="6.12.12", kfd=node, render=(node,)),
        groups=("render", "video"),
    )
    datafile.write(folder / "machine.json", DoctorReport(purpose="install", machine=machine, findings=()))
    shown = targets_file.make("release", (channel(), family()))
    datafile.write(folder / "store" / "release" / "targets.json", shown)
    url = index_url((folder / "store").as_uri(), "release")
    return "doctor", "--for", "install", "--machine", folder / "machine.json", "--index-url", url


def _doctor_wheel(folder: Path) -> Words:
    words = _doctor(folder)[:-2]
    return *words, "--wheel", make_wheel(folder, "alpha", "1.0")


def _rocm_fetch(folder: Path) -> Words:
    artifacts.write(folder / "run", "base_lib_generic.tar.xz", {"lib/x.so": b"x"})
    return "rocm", "fetch", "--store", folder / "run", "--platform", "linux", "--output-dir", NEW_FOLDER


def _compat(folder: Path) -> Words:
    environment = venv.create(folder / "environment")
    site = next(environment.path.glob("lib/python*/site-packages"))
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text(COMPUTING_TORCH)
    words = ("--python", environment.python, "--only", "^projects/torch$", "--output-dir", NEW_FOLDER)
    return "test", "compat", *words


def _bisect(folder: Path) -> Words:
    store, ids = LocalStore(folder / "store"), []
    for number in range(2):
        wheel = make_wheel(folder / f"night{number}", "torch", f"2.9.{number}")
        made = make_set([wheel], python=PYTHON, platform=PLATFORM)
        ids.append(stage_set(store, "staging", made, [wheel]).id)
    check = "import sys, torch; sys.exit(torch.VERSION == '2.9.1')"
    ends = ("--good", ids[0], "--bad", ids[1], "--no-commits", "--output-dir", NEW_FOLDER)
    return "bisect", "--store", store.path, *ends, "--", "python", "-c", check


def _challenge(folder: Path) -> Words:
    stack, store = tiny_stack.write(folder / "stack"), folder / "store"
    made = tiny_stack.stage(stack, folder / "out", store, env=clean_environment(folder / "cache"))
    words = ("--stack", stack, "--store", store, "--index", "staging", "--work-dir", folder / "challenge")
    return "challenge", made, *words


def _mirror_check(folder: Path) -> Words:
    stack, store = tiny_stack.write(folder / "stack"), LocalStore(folder / "store")
    publish(LocalStore(folder / "upstream"), "dev", [make_wheel(folder, "deep", "1.1")])
    publish(store, "staging", [make_wheel(folder, "ours", "1.0")])
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", index_url((folder / "upstream").as_uri(), "dev"))
        for words in (("lock", "--require", "deep"), ("sync", "--store", store.path)):
            assert main([str(word) for word in ("index", "mirror", *words, "--stack", stack)]) == 0
    return "index", "mirror", "sync", "--check", "--stack", stack, "--store", store.path


def _install(folder: Path) -> Words:
    store = LocalStore(folder / "store")
    wheel = make_wheel(folder, "torch", "2.9.0", content=TORCH.replace("{version}", "2.9.0"))
    made = make_set([wheel], python=PYTHON, platform=PLATFORM)
    move(store, stage_set(store, "staging", made, [wheel]), untested="bypassed by ann: none here")
    environment = venv.create(folder / "environment")
    words = ("--gpu", "cpu", "--python", environment.python, "--installer", "uv")
    return "install", "--store", store.path, *words


def _skips_lint(folder: Path) -> Words:
    (folder / "skips").mkdir()
    (folder / "skips" / "generic.toml").write_text(
        'schema = "cairn.skips/1"\n\n[[skips]]\ntests = ["test_a.py::A::test_a"]\nreason = "it hangs"\n'
        'owner = "ann"\nissue = "https://example.org/1"\nexpires = 2099-01-01\n'
    )
    (folder / "collection.txt").write_text("test_a.py::A::test_a\n\n1 test collected in 0.1s\n")
    return "test", "skips", "lint", folder / "skips", "--collection", folder / "collection.txt"


# Not a shipped torch: what one row of the compatibility tables asks of it.
COMPUTING_TORCH = """
__version__ = "2.9.1"
class version:
    git_version, hip, cuda = "c" * 40, None, None
class Product:
    def __eq__(self, _other): return self
    def all(self): return True
class Matrix:
    def __matmul__(self, _other): return Product()
def ones(*_size): return Matrix()
class cuda:
    is_available = is_initialized = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 0)
def device(name): return name
"""

WHOLE_STORE = (
    "store/release/state.json",
    "all:store/release/generations/*.json",
    "store/ledger/",
    "store/release/",
)

ROWS = {
    "wheel verify": Row(make=_wheel_verify, evidence=("alpha-*.whl",)),
    "wheel verify URL": Row(make=_wheel_verify_url, evidence=("alpha-*.whl",)),
    "wheel verify INDEX": Row(
        make=_wheel_verify_index,
        evidence=("store/dev/simple/alpha/index.html", "store/files/*/*/alpha-*.whl"),
    ),
    "wheel set-version": Row(make=_set_version, evidence=("made/alpha-*.whl",)),
    "diff": Row(make=_diff, evidence=("old/*.whl", "new/*.whl")),
    "diff, sets": Row(make=_diff_sets, evidence=("old/set.json", "old/*.whl", "new/*.whl", "new/")),
    "diff --consumers": Row(make=_set_of_wheels, evidence=("old/*.whl", "users/*.whl", "users/")),
    "index check": Row(
        make=_index_check,
        evidence=(
            "store/release/state.json",
            "store/release/generations/*.json",
            "store/release/parts/*.json",
            "store/release/simple/torch/index.html",
            "store/release/simple/torch/index.json",
            "store/release/targets.json",
            "store/files/*/*/torch-*.whl",
            "store/files/*/*/torch-*.metadata",
            "store/files/*/*/torch-*.provenance",
            "store/sets/*/set.json",
            "store/sets/*/set.dsse.json",
            "store/sets/*/manifest.json",
            "store/sets/*/builder.json",
            "store/sets/*/builder.dsse.json",
            "store/sets/*/records/*.json",
            "store/sets/*/judgements/*.json",
            "store/ledger/entries/*.json",
            "store/ledger/",
            "store/release/",
            "store/sets/",
        ),
    ),
    "index verify": Row(
        make=_index_verify,
        evidence=(
            "made/torch-*.whl",
            "releaser.pub",
            "tester.pub",
            "store/release/state.json",
            "store/release/generations/*.json",
            "all:store/files/*/*/torch-*.provenance",  # staging has one of its own
            "store/sets/*/set.json",
            "store/sets/*/manifest.json",
            "store/sets/*/builder.json",
            "store/sets/*/records/*.json",  # not its signature: the releaser's statement names its digest
            "store/sets/*/judgements/*.json",
        ),
    ),
    "release promote": Row(
        make=_promote,
        evidence=(
            "record.json",
            "stack/stack.toml",
            "store/staging/state.json",
            "store/sets/*/set.json",
            "store/sets/*/manifest.json",
            "store/sets/*/builder.json",
            "store/files/*/*/torch-*.whl",
            "store/files/*/*/torch-*.metadata",
        ),
    ),
    "index gc": Row(make=_index_gc, evidence=WHOLE_STORE),
    "index repair": Row(make=_index_repair, evidence=(*WHOLE_STORE, "all:store/release/parts/*.json")),
    "release rollback": Row(
        make=_rollback,
        evidence=(
            "store/release/state.json",
            "store/release/generations/*.json",
            "all:store/release/parts/*.json",
            "store/sets/*/set.json",
            "store/files/*/*/torch-*.whl",
            "store/files/*/*/torch-*.metadata",
        ),
    ),
    "release retain": Row(
        make=_retain,
        evidence=(
            "store/release/state.json",
            "all:store/release/generations/*.json",
            "all:store/staging/generations/*.json",
            "all:store/sets/*/set.json",
        ),
    ),
    "release yank": Row(
        make=_yank,
        evidence=(
            "store/release/state.json",
            "all:store/release/generations/*.json",
            "all:store/staging/parts/*.json",
            "store/sets/*/set.json",
        ),
    ),
    "release record add": Row(make=_record_add, evidence=("record.json", "store/sets/*/set.json")),
    "test report": Row(make=_test_report, evidence=("junit.xml",)),
    "test suite": Row(
        make=_suite,
        dear=True,
        evidence=("suite.toml", "checkout/test/test_b.py", "checkout/test/"),
        exempt={"checkout/test/test_b.py emptied": "a module may have no tests, and edits are refused"},
    ),
    "test merge": Row(make=_merge, evidence=("results/shard.json", "results/outcomes.jsonl", "results/")),
    "index verify, whole": Row(
        make=_whole_index,
        evidence=(
            "releaser.pub",
            "store/release/state.json",
            "store/release/generations/*.json",
            "all:store/release/parts/*.json",
            "store/files/*/*/torch-*.whl",
            "store/sets/*/set.json",
            "store/release/",
        ),
    ),
    "manifest verify": Row(
        make=_manifest_verify,
        evidence=("manifest.json", "src/tiny/version.txt", "src/tiny/.git/HEAD", "src/tiny/"),
    ),
    "patches audit": Row(
        make=_patches_audit,
        evidence=("allowlist.toml", "src/tiny/version.txt", "src/tiny/.git/HEAD", "src/tiny/"),
    ),
    "index mirror sync --check": Row(
        make=_mirror_check,
        evidence=(
            "stack/mirror.lock.toml",
            "stack/stack.toml",
            "store/staging/state.json",
            "all:store/staging/generations/*.json",
            "all:store/staging/parts/*.json",
        ),
    ),
    "manifest checkout": Row(make=_manifest_checkout, evidence=("manifest.json", "stack/stack.toml")),
    "ci night report": Row(
        make=_night_report,
        evidence=(
            "store/nights/7/night.json",
            "store/release/state.json",
            "store/release/generations/*.json",
            "store/release/",
        ),
    ),
    "ci night promote": Row(
        make=_night_promote,
        evidence=("store/nights/7/night.json", "store/nights/7/manifest.json", "store/release/state.json"),
    ),
    "release night": Row(
        make=_release_night,
        evidence=(
            "store/nights/7/night.json",
            "store/nights/7/manifest.json",
            "store/release/state.json",
            "all:store/sets/*/records/*.json",
            "store/files/*/*/torch-*.whl",
        ),
    ),
    "ci night list --overdue": Row(
        make=_night_overdue,
        evidence=("store/nights/7/night.json", "store/nights/", "store/release/status/*.json"),
    ),
    "doctor --index-url": Row(make=_doctor, evidence=("machine.json", "store/release/targets.json")),
    "doctor --wheel": Row(make=_doctor_wheel, evidence=("machine.json", "alpha-*.whl")),
    "rocm fetch": Row(make=_rocm_fetch, evidence=("run/*.tar.xz", "run/*.sha256sum")),
    "test compat": Row(make=_compat, evidence=("environment/lib/*/site-packages/torch/__init__.py",)),
    "bisect": Row(
        make=_bisect,
        dear=True,
        evidence=("store/staging/state.json", "store/sets/*/set.json", "all:store/files/*/*/torch-*.whl"),
    ),
    "test smoke": Row(
        make=_smoke, dear=True, evidence=("set.json", "wheels/tiny-*.whl", "stack/smoke-tests/test_tiny.py")
    ),
    "challenge": Row(
        make=_challenge,
        dear=True,
        evidence=(
            "stack/stack.toml",
            "store/staging/state.json",
            "store/sets/*/set.json",
            "store/sets/*/manifest.json",  # not the wheel: what is built is compared with the set's sha256
        ),
    ),
    "install": Row(
        make=_install,
        evidence=(
            "store/release/targets.json",
            "store/release/simple/torch/index.html",
            "store/files/*/*/torch-*.whl",
            "environment/lib/*/site-packages/torch-*/RECORD",
            "environment/lib/*/site-packages/torch/__init__.py",
            "environment/lib/*/site-packages/torch/",
        ),
    ),
    "test skips lint": Row(make=_skips_lint, evidence=("skips/generic.toml", "collection.txt", "skips/")),
}


NO_VERDICT = {
    "says what there is": (
        "patches report", "build cache", "build log", "wheel show", "test shards", "test skips list",
        "matrix", "release record list", "release log", "trust show", "config list", "config get",
    ),
    "makes something, which others judge": (
        "checkout", "manifest create", "patches export", "patches apply", "build run", "index publish",
        "index mirror lock", "image build", "release key create", "trust init", "trust change",
        "trust refresh", "config set", "ci init", "ci night freeze", "ci night stage",
        "release record answer",
    ),
    "verifies the wheel that it writes: tests/unit/wheels/verify": (
        "wheel repair", "wheel fat", "wheel split", "wheel join",
    ),
    "has a table of its own: tests/integration/rocm, tests/integration/ci/test_check.py": (
        "rocm package", "rocm install", "ci check",
    ),
    "is made of commands of this table": (
        "ci run", "ci night run", "ci night step", "test skips retry",
    ),
    "goes on until it is ended": ("index serve", "image run"),
}  # fmt: skip


def test_every_command_has_a_row_or_a_reason() -> None:
    def names(group: Group, before: str = "") -> Iterator[str]:
        for name, command in group.commands.items():
            if isinstance(command, Group):
                yield from names(command, f"{before}{name} ")
            else:
                yield f"{before}{name}"

    every = set(names(PROGRAM))
    rows = {name for name in every if any(f"{row} ".startswith((f"{name} ", f"{name},")) for row in ROWS)}
    without = [name for listed in NO_VERDICT.values() for name in listed]
    assert sorted((*rows, *without)) == sorted(every)


@contextlib.contextmanager
def spoilt(path: Path, fault: str, aside: Path) -> Iterator[None]:
    """Have a file or folder be as after such a fault, until the block ends."""
    path.rename(aside)
    hidden = path.with_name(f".{path.name}")
    try:
        if fault == "hidden":
            (shutil.copytree if aside.is_dir() else shutil.copy2)(aside, hidden)
        elif fault == "emptied" and aside.is_dir():
            path.mkdir()
        elif fault in ("emptied", "cut"):
            data = aside.read_bytes()
            path.write_bytes(data[: len(data) // 2 if fault == "cut" else 0])
        elif fault == "unreadable" and aside.is_dir():
            path.write_bytes(b"")
        elif fault == "unreadable":
            path.mkdir()
        yield
    finally:
        for made in (path, hidden):
            if made.is_dir():
                shutil.rmtree(made)
            else:
                made.unlink(missing_ok=True)
        aside.rename(path)


@pytest.fixture(scope="module")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Words]]:
    """What each command judges, made once."""
    there: dict[str, tuple[Path, Words]] = {}

    def material(name: str) -> tuple[Path, Words]:
        if name not in there:
            folder = tmp_path_factory.mktemp("evidence")
            there[name] = folder, ROWS[name].make(folder)
        return there[name]

    return material


@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_good_that_was_not_read(
    name: str, materials: Callable[[str], tuple[Path, Words]], tmp_path: Path
) -> None:
    folder, words = materials(name)
    assert _code(words) == 0
    good = []
    for number, pattern in enumerate(ROWS[name].evidence):
        # A record's name is shorter than that of its signature.
        glob = pattern.removeprefix("all:").rstrip("/")
        paths = sorted(folder.glob(glob), key=lambda path: (len(path.name), path))
        paths = paths if pattern.startswith("all:") else paths[:1]
        assert paths
        sample = ("emptied",) if ROWS[name].dear else (FAULTS[number % 5], FAULTS[(number + 2) % 5])
        for fault in FAULTS if ALL else sample:
            if pattern.endswith("/") and fault == "cut":
                continue
            with contextlib.ExitStack() as stack:
                for place, path in enumerate(paths):
                    stack.enter_context(spoilt(path, fault, tmp_path / f"aside-{place}"))
                code = _code(words)
            if code not in range(2, 13) and f"{pattern} {fault}" not in ROWS[name].exempt:
                good.append(f"{pattern} {fault}: {code}")
    assert "\n".join(good) == ""


@pytest.mark.parametrize(
    "words",
    [
        ("install", "--dry-run", "--gpu", "cpu", "--index-url", "URL/release/simple/"),
        pytest.param(
            ("wheel", "verify", "URL/torch-2.9.0-py3-none-any.whl"), marks=pytest.mark.by_hand
        ),  # a minute
        ("index", "verify", "WHEEL", "--index-url", "URL/release/simple/", "--allow-unsigned"),
        pytest.param(("doctor", "--index-url", "URL/release/simple/"), marks=pytest.mark.by_hand),
        pytest.param(("diff", "WHEEL", "URL/torch-2.9.0-py3-none-any.whl"), marks=pytest.mark.by_hand),
        pytest.param(
            ("rocm", "fetch", "--release", "latest", "--store", "URL/", "--output-dir", NEW_FOLDER),
            marks=pytest.mark.by_hand,
        ),
    ],
    ids=["install", "wheel verify", "index verify", "doctor", "diff", "rocm fetch"],
)
def test_what_never_comes_is_not_good(
    words: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server takes the connection and answers nothing: the wait takes half a minute, and no processor."""
    wheel = str(make_wheel(tmp_path, "torch", "2.9.0"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert _code([str(word).replace("URL", url).replace("WHEEL", wheel) for word in words]) == 5
    assert "cannot read" in (message := capsys.readouterr().err)
    assert url in message


def _code(words: Words) -> object:
    """The exit code of a command, or what it raised."""
    with tempfile.TemporaryDirectory() as folder:
        return _code_of([str(word).replace(NEW_FOLDER, f"{folder}/new") for word in words])


def _code_of(words: list[str]) -> object:
    try:
        return main(words)
    except SystemExit as end:
        return end.code
    except Exception as error:  # noqa: BLE001 - a traceback is no answer
        return repr(error)
