"""A stack's recipe: every file that the stack names or a command reads, the same digest on every machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cairn import datafile, shipped
from cairn.errors import CairnError, SourceError, StoreError, UsageError
from cairn.matrix import matrix_toml
from cairn.release import recipes
from cairn.release.audit.audit import audit
from cairn.release.index import keys
from cairn.release.publish import mirror_lock
from cairn.stack import FILE, Stack, load, recipe
from cairn.stack.recipe import Recipe
from cairn.store.memory import MemoryStore
from cairn.testing.suite import suite_toml
from helpers.night import FROZEN
from helpers.trail import ROOT

# Not a shipped stack: one with a file of each kind that a recipe has. The shipped ones are read too.
STACK = """schema = "cairn.stack/1"
name = "mine"
line = "main"
targets = ["gfx942"]
smoke_tests = ["smoke"]
gate = { allow = "allow.toml", notify = ["python3", "tell.py", "heard.json"] }
sdk = { build = ["{python}", "{stack_dir}/sdk/make.py"], packages = "sdk/packages.toml" }

[[projects]]
name = "a"
distribution = "a"
checkout_dir = "checkout"
hashtag = "main"
origin = { tree = "repos/a" }
config_settings."cmake" = "{stack_dir}/cmake/one.cmake;{stack_dir}/top.cmake;{stack_dir}/a part/b, c.cmake"
lines = { old = { origin = { tree = "repos/b" } } }
"""
NAMED = (
    *("stack.toml", "hooks.py", "matrix.toml", "suite.toml", "mirror.lock.toml", "allow.toml"),
    *("skip-tests/all.toml", "smoke/test_a.py", "smoke/data/known.bin", "top.cmake"),
    *("sdk/make.py", "sdk/packages.toml", "sdk/include/deep/a.h", "cmake/one.cmake", "cmake/beside.cmake"),
    "a part/b, c.cmake",
    *("repos/a/history.toml", "repos/a/tree/a.py", "repos/b/history.toml", "repos/b/tree/b.py"),
)
OTHERS = (
    *(
        "README.md",
        "build.py",
        "tell.py",
        "heard.json",
        "checkout/a.py",
        ".cairn/log",
        "smoke/__pycache__/a.pyc",
        "smoke/.cache/x",
    ),
    *("repos/README.md", "repos/a/tree/__pycache__/a.pyc", "repos/a/tree/tests/test_a.py", "dist/a.whl"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "stack é")


def write(folder: Path) -> Path:
    for name in (*NAMED, *OTHERS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\x00\xff\r\n" if name.endswith(".bin") else f"# {name}\n2\n".encode())
    (folder / "stack.toml").write_text(STACK, encoding="utf-8")
    return folder


def digest(folder: Path) -> str:
    return recipe.digest_of(load(folder))


def test_what_the_stack_names_or_a_command_reads_is_in_it_and_nothing_else(folder: Path) -> None:
    before = digest(folder)
    assert sorted(recipe.of(load(folder)).contents()) == sorted(NAMED)
    for name in OTHERS:
        (folder / name).write_bytes(b"edited")
    assert digest(folder) == before
    for name in NAMED:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data + b"\n")
        assert digest(folder) != before, name
        (folder / name).write_bytes(data)
    assert digest(folder) == before


def test_every_file_that_a_command_finds_beside_a_stack_is_in_it() -> None:
    assert {matrix_toml.FILE, suite_toml.FILE, mirror_lock.FILE, "hooks.py", "skip-tests"} == {*recipe.READ}


def edit_bits(folder: Path) -> None:
    (folder / "sdk" / "make.py").chmod(0o755)


def check_out_on_windows(folder: Path) -> None:
    for name in NAMED:
        if not name.endswith(".bin"):
            path = folder / name
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def look_through_a_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"), target_is_directory=True)


@pytest.mark.parametrize("change", [edit_bits, check_out_on_windows, look_through_a_link])
def test_a_stack_has_one_digest_on_every_machine(
    folder: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    before = digest(folder)
    assert digest(write(tmp_path / "other")) == before
    change(folder)
    assert digest(folder) == before


def test_line_ends_that_git_did_not_write_count(folder: Path) -> None:
    before = digest(folder)
    (folder / "hooks.py").write_bytes(b"# hooks.py\r\n2\n")
    assert digest(folder) != before


def test_a_lone_carriage_return_counts_and_survives_the_store(folder: Path, tmp_path: Path) -> None:
    (folder / "hooks.py").write_bytes(b"a = 1\r\r\n")
    before = recipe.of(load(folder))
    assert recipe.of(load(recipe.write(before, tmp_path / "again"))) == before
    (folder / "hooks.py").write_bytes(b"a = 1\r\n")
    assert digest(folder) != before.digest


@pytest.mark.parametrize("name", NAMED[1:])
def test_what_a_command_reads_counts_though_the_repository_ignores_it(folder: Path, name: str) -> None:
    subprocess.run(["git", "init", "--quiet", folder.parent], check=True)
    before, place = digest(folder), name.partition("/")[0]
    (folder / ".gitignore").write_text(f"/{place}\n", encoding="utf-8")
    assert digest(folder) == before
    (folder / name).write_bytes(b"edited\n")
    assert digest(folder) != before


def test_what_the_repository_ignores_is_left_out_and_a_users_own_lists_do_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", folder.parent], check=True)
    before = digest(folder)
    (folder / "sdk" / "made.log").write_text("", encoding="utf-8")
    with_log = digest(folder)
    assert with_log != before
    (folder.parent / ".git" / "info" / "exclude").write_text("*.log\n", encoding="utf-8")
    assert digest(folder) == with_log
    (folder.parent / ".gitignore").write_text("*.log\n", encoding="utf-8")
    assert digest(folder) == before
    (folder.parent / ".gitignore").write_text("/stack*/\n", encoding="utf-8")  # it is in a work folder
    assert digest(folder) == with_log
    monkeypatch.setenv("PATH", os.devnull)  # no git
    assert digest(folder) == with_log


@pytest.mark.parametrize("name", ["smoke/conftest.py", "skip-tests/mine.toml"])
def test_an_ignored_file_in_a_folder_that_is_copied_whole_counts(folder: Path, name: str) -> None:
    subprocess.run(["git", "init", "--quiet", folder.parent], check=True)
    before = digest(folder)
    (folder / ".gitignore").write_text(f"/{name}\n", encoding="utf-8")
    (folder / name).write_text("", encoding="utf-8")
    assert digest(folder) != before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda at: (at / "smoke" / "a.py").symlink_to("test_a.py"), "a.py is a link"),
        (lambda at: (at / "smoke" / "a.py").symlink_to("nowhere"), "a.py is a link"),
        (lambda at: (at / "smoke" / "more").symlink_to("data", target_is_directory=True), "more is a link"),
        (lambda at: (at / "smoke" / "a:b.py").write_text(""), "cannot be a file"),
        (lambda at: (at / "smoke" / "a.").write_text(""), "cannot be a file"),
        (lambda at: (at / "smoke" / "a\nb").write_text(""), "cannot be a file"),
        (lambda at: (at / "smoke" / "aux.py").write_text(""), "cannot be a file"),
        (lambda at: (at / "smoke" / "TEST_a.py").write_text(""), "one file on Windows"),
        (
            lambda at: [(at / "smoke" / name).write_text("") for name in ("\u00e9.py", "e\u0301.py")],
            "one file on Windows and macOS",
        ),
        (lambda at: at.joinpath("stack.toml").write_text(STACK.replace('"smoke"', '"../x"')), "outside"),
        (lambda at: at.joinpath("stack.toml").write_text(STACK.replace('"smoke"', '"/etc"')), "outside"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="Windows has none of these names")
def test_what_another_machine_could_not_have_is_refused(
    folder: Path, change: Callable[[Path], object], said: str
) -> None:
    change(folder)
    with pytest.raises(UsageError, match=said) as error:
        digest(folder)
    assert error.value.tip


def test_a_linked_folder_of_tests_is_refused(folder: Path) -> None:
    shutil.move(folder / "smoke", folder / "tests")
    (folder / "smoke").symlink_to("tests", target_is_directory=True)
    with pytest.raises(UsageError, match="smoke is a link"):
        digest(folder)


def test_it_is_written_again_as_it_was(folder: Path, tmp_path: Path) -> None:
    before = recipe.of(load(folder))
    made = recipe.write(before, tmp_path / "again")
    assert recipe.of(load(made)) == before
    with pytest.raises(UsageError, match="is not empty"):
        recipe.write(before, tmp_path / "again")
    (folder / "hooks.py").unlink()
    (folder / "smoke" / "new.py").write_text("", encoding="utf-8")
    (folder / "suite.toml").write_text("", encoding="utf-8")
    now = recipe.of(load(folder))
    assert recipe.differences(before, before) == ()
    assert recipe.differences(before, now) == (
        "hooks.py (gone)",
        "smoke/new.py (new)",
        "suite.toml (changed)",
    )


@pytest.mark.parametrize("name", ["../a", "/a", "a/../b", "a\\b", "C:a", "a//b", "", ".", "a/", "nul\0"])
def test_no_recipe_of_a_store_leaves_its_folder(name: str) -> None:
    plain = {"schema": "cairn.recipe/1", "stack": "stack.toml", "text": {"stack.toml": "", name: ""}}
    with pytest.raises(UsageError):
        datafile.from_plain(plain, Recipe, name="recipe")
    with pytest.raises(UsageError, match="no base64"):
        Recipe(stack="s", text={"s": ""}, binary={"a": "?"})
    with pytest.raises(UsageError, match="lacks its s"):
        Recipe(stack="s", text={})


def test_a_store_has_it_by_its_digest_and_says_what_differs(folder: Path) -> None:
    store, stack = MemoryStore(), load(folder)
    recipes.put(store, stack)
    frozen = digest(folder)
    assert keys.kind_of(keys.recipe_key(frozen)) == "recipe"
    assert recipes.read(store, frozen) == recipe.of(stack)
    recipes.require(store, frozen, stack)
    for number in range(12):
        (folder / "smoke" / f"test_{number:02}.py").write_text("", encoding="utf-8")
    with pytest.raises(SourceError, match=r"not the frozen one: smoke/test_00.py \(new\), .* and 4 more$"):
        recipes.require(store, frozen, stack)
    with pytest.raises(SourceError, match="names no recipe"):
        recipes.require(store, "", stack)
    with pytest.raises(SourceError, match=r"not the frozen one: recipe [0-9a-f]{12}, not 0{12}"):
        recipes.require(store, "0" * 64, stack)
    store.write(keys.recipe_key(frozen), recipe.of(stack).canonical())
    with pytest.raises(StoreError, match="was changed"):
        recipes.read(store, frozen)


def test_an_audit_names_the_recipe_of_a_night_that_is_missing_or_was_changed(folder: Path) -> None:
    store, frozen = MemoryStore(), digest(folder)
    recipes.put(store, load(folder))
    manifest = msgspec.structs.replace(FROZEN, recipe=frozen)
    store.write(keys.night_key("7", "manifest.json"), manifest.canonical())

    def problems() -> list[str]:
        return [one.said for one in audit(store).problems if "recipes/" in one.said]

    assert problems() == []
    original = store.read(keys.recipe_key(frozen)).data
    store.write(keys.recipe_key(frozen), original.replace(b"mine", b"his!"))
    assert [text.partition(" ")[2] for text in problems()] == ["was changed"]
    store.delete(keys.recipe_key(frozen))
    (problem,) = problems()
    assert problem.startswith(f"recipes/{frozen}.json is missing, which nights/7/manifest.json names: ")


@pytest.mark.parametrize("name", shipped.STACKS)
def test_the_stack_of_an_installed_cairn_is_that_of_its_checkout(name: str, tmp_path: Path) -> None:
    prefix = f"stacks/{name}/"
    for inner, path in shipped.of_checkout(ROOT):
        if inner.startswith(prefix):
            (tmp_path / inner).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, tmp_path / inner)
    assert (tmp_path / prefix / FILE).is_file()
    assert digest(tmp_path / prefix) == digest(ROOT / "external-builds" / name)


def test_a_stack_of_no_file_has_none() -> None:
    stack = Stack(name="a", line="main", targets=(), projects=())
    assert recipe.digest_of(stack) == ""
    store = MemoryStore()
    recipes.put(store, stack)
    assert not store.objects
    assert issubclass(SourceError, CairnError)
