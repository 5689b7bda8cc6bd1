import platform
import re
from pathlib import Path

import pytest
from msgspec import structs

from cairn import interpreters
from cairn.build import cache, plan
from cairn.build.inputs import machine, source_tree
from cairn.build.model import BuildRequest, InstalledSdk
from cairn.formats.zip import deflate
from cairn.rocm.install import SdkInfo
from cairn.stack import Environment, Feature
from cairn.stack import Sdk as StackSdk
from helpers.build import MakeRequest, with_project, with_stack
from helpers.sources import git


def key(request: BuildRequest) -> str:
    return plan.make(request)[0].key


def test_what_the_stack_says_of_a_project_is_in_the_key(request_for: MakeRequest) -> None:
    request = request_for(a="1.0")
    changes: list[dict[str, object]] = [
        {},
        {"source_dirs": (".", "python")},
        {"version_edit": True},
        {"version_file": "backend.py"},
        {"device_code": True},
        {"build_requires": ("cmake",)},
        {"build_requires_file": "requirements.txt"},
        {"config_settings": {"a": "b"}},
        {"requires": ("numpy==2.0",)},
        {"requires_rocm": ("numpy==2.0",)},  # which is not the same as for all
    ]
    keys = [key(with_project(request, **each)) for each in changes]
    assert [keys.count(each) for each in keys] == [1] * len(changes), "two have one key"


def test_of_the_shells_variables_only_those_that_a_build_sees_are_in_the_key(
    request_for: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(a="")
    before = key(request)
    for name in ("CXX", "CXXFLAGS", "CPLUS_INCLUDE_PATH", "HIPCC_COMPILE_FLAGS_APPEND", "DEBUG"):
        monkeypatch.setenv(name, "cat")
        assert key(request) == before, name
        assert key(structs.replace(request, build_env={name: "cat"})) != before, name
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")  # the time of what is added to wheels
    assert key(request) != before


def test_the_preloaded_libraries_and_the_sdk_are_in_the_key(request_for: MakeRequest, tmp_path: Path) -> None:
    info = SdkInfo(version="7.0", targets=(), root=tmp_path, bin=tmp_path, cmake=tmp_path)
    sdk = InstalledSdk(environment=tmp_path, info=info, digest="d")
    request = structs.replace(request_for(a=""), targets=("gfx942",), sdk=sdk)

    def preloading(*names: str) -> BuildRequest:
        return with_stack(request, sdk=StackSdk(preload=names))

    other = structs.replace(preloading("a"), sdk=structs.replace(sdk, digest="e"))
    assert len({key(preloading("a")), key(preloading("b")), key(other)}) == 3


def test_an_unused_feature_of_the_stack_is_not_in_the_key(request_for: MakeRequest) -> None:
    request = request_for(a="")
    assert key(with_stack(request, features={"f": Feature()})) == key(request)


def test_what_packs_wheels_is_named_in_manifests_and_is_no_reason_to_build_again() -> None:
    keyed, frozen = (
        name(interpreters.current(), host_compiler=False)
        for name in (machine.toolchain, machine.toolchain_of_manifest)
    )
    assert {**keyed, "deflate": deflate.engine()} == frozen
    assert "deflate" not in keyed
    assert re.fullmatch(r"(isal|zlib_ng|zlib) \d+\.\d+.*", frozen["deflate"])


def test_a_new_way_of_finishing_wheels_makes_them_again_from_what_was_compiled(
    request_for: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(a="")
    (before,) = plan.make(request)
    monkeypatch.setattr(plan, "POSTPROCESS_VERSION", plan.POSTPROCESS_VERSION + 1)
    (after,) = plan.make(request)
    assert after.key != before.key
    assert after.settings_digest == before.settings_digest  # it goes on with the build folder that is there


def test_where_the_sources_come_from_is_in_the_key_unless_it_is_a_folder_of_this_machine(
    request_for: MakeRequest,
) -> None:
    request = request_for(a="")
    tree = request.checkouts["a"]

    def from_origin(origin: str) -> str:
        git(tree, "remote", "set-url", "origin", origin)
        return key(request)

    git(tree, "remote", "add", "origin", "/srv/a")
    at_home = key(request)
    assert from_origin("/other/folder") == at_home
    fork = from_origin("https://example.org/fork.git")
    assert len({at_home, fork, from_origin("https://example.org/a.git")}) == 3
    assert from_origin("https://ann:secret@example.org/fork.git") == fork


def test_a_wheel_built_with_one_c_library_is_not_taken_where_there_is_a_different_one(
    request_for: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A container and its host may share the cache.
    request = request_for(a="")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.28"))
    before = key(request)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.39"))
    assert key(request) != before


def test_a_helper_file_beside_the_stack_is_in_the_key_of_who_names_it(
    request_for: MakeRequest, tmp_path: Path
) -> None:
    helper = tmp_path / "stack" / "shim" / "sitecustomize.py"
    helper.parent.mkdir(parents=True)
    helper.write_text("1")
    request = request_for(a="", b="")
    own, other = request.stack.projects
    own = structs.replace(own, environment=Environment(always={"PYTHONPATH": "{stack_dir}/shim"}))
    request = with_stack(request, folder=str(tmp_path / "stack"), projects=(own, other))
    before = [step.key for step in plan.make(request)]
    helper.write_text("2")
    after = [step.key for step in plan.make(request)]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True]


def test_the_same_inputs_have_the_key_that_they_always_had(request_for: MakeRequest) -> None:
    """Where this key changes, everybody builds everything again."""
    (step,) = plan.make(request_for(a="x = 1"))
    inputs = {name: value for name, value in step.inputs.items() if name != source_tree.SOURCES}
    assert step.key == cache.key_of(inputs)
    of_this_machine = {
        "toolchain": {"python": "3.12.3", "libc": "glibc 2.39", "c++": "g++ 13"},
        "outside": {"packages": "0" * 64},
        "platform": "linux_x86_64",
        "python": "cp312",
        "upstream": ["1" * 40, None],
    }
    assert of_this_machine.keys() <= inputs.keys()
    assert (
        cache.key_of({**inputs, **of_this_machine})
        == "0b3f0dba64754c365f5fa7049780c2ddc527493595da65b7dbdda8772c005b0c"
    )
