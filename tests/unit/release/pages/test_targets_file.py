"""Which sets are offered to whom, and in which words."""

from collections.abc import Sequence

import msgspec
import pytest

from cairn import datafile
from cairn.release.index.generation import IndexSet
from cairn.release.pages import targets_file
from cairn.release.pages.targets_file import Offer
from cairn.release.pages.view import IndexView
from helpers.pages import channel, family, one_set


def view(*sets: IndexSet, name: str = "release") -> IndexView:
    return IndexView(name=name, generation=1, when="2026-11-20T00:00:00Z", sets=sets)


def offers(target: str, *views: IndexView, folder: str = "release") -> Sequence[Offer]:
    return targets_file.make(folder, views).entry(target).offers


def test_the_index_of_a_family_comes_before_the_channel_and_the_smaller_family_first() -> None:
    gfx1151 = ("gfx1151",)
    views = (
        view(one_set(1, "2.9.0", gfx1151)),
        view(one_set(2, "2.9.0", gfx1151), name="release/gfx115X-all"),
        view(one_set(3, "2.9.0", gfx1151), name="release/gfx1151"),
    )
    found = offers("gfx1151", *views)
    assert [offer.index for offer in found] == ["release/gfx1151", "release/gfx115X-all", "release"]
    assert [offer.index_url for offer in found] == ["gfx1151/simple/", "gfx115X-all/simple/", "simple/"]


def test_the_newest_set_of_each_line_python_and_platform_is_offered() -> None:
    found = offers(
        "gfx942",
        view(
            one_set(1, "2.9.0", ("gfx942",)),
            one_set(2, "2.9.1", ("gfx942",)),
            one_set(3, "2.9.2", ("gfx942",), yanked="broken"),
            one_set(4, "2.9.0", ("gfx942",), python="3.8"),
            one_set(5, "2.10.0", ("gfx942",), line="release/2.10", platform="win_amd64"),
        ),
    )
    assert [(o.line, o.python == "3.8", o.platform == "win_amd64", o.set_id[:2]) for o in found] == [
        ("release/2.10", False, True, "05"),
        ("release/2.9", False, False, "02"),
        ("release/2.9", True, False, "04"),
    ]


@pytest.mark.parametrize(
    ("others", "torch"),
    [
        ((), "torch"),
        (("2.8.0",), "torch"),  # an older set for different GPUs is not what an installer takes
        (("2.10.0",), "torch==2.9.0"),
        (("2.10.0rc1",), "torch"),  # nor is a pre-release, beside what is final
    ],
)
def test_versions_are_named_only_where_an_installer_would_take_a_set_for_other_gpus(
    others: Sequence[str], torch: str
) -> None:
    sets = (one_set(9, version, ("gfx942",), line="other") for version in others)
    (found,) = offers("gfx1201", view(one_set(1, "2.9.0", ("gfx1201",)), *sets))
    version, vision = ("==2.9.0", "==0.24.0") if "==" in torch else ("", "")
    assert found.packages == (torch, f"torchvision{vision}", f"torchaudio{version}")


def test_a_pre_release_is_named_beside_a_final_version() -> None:
    nightly = one_set(1, "2.10.0a1+rocm7.11.0", ("gfx942",), line="nightly")
    (alone,) = offers("gfx942", view(nightly))
    assert alone.packages[0] == "torch"
    both = offers("gfx942", view(nightly, one_set(2, "2.9.0", ("gfx942",))))
    assert {o.line: o.packages[0] for o in both} == {
        "nightly": "torch==2.10.0a1+rocm7.11.0",
        "release/2.9": "torch",
    }


def test_the_code_of_a_split_wheel_is_asked_for_by_its_extra() -> None:
    split = one_set(1, "2.9.0", ("gfx942", "gfx1100"))
    split = msgspec.structs.replace(split, projects={**split.projects, "torch-device-gfx1100": "2.9.0"})
    (found,) = offers("gfx1100", view(split))
    assert found.packages == ("torch[device-gfx1100]", "torchvision", "torchaudio")
    # A wheel of torch without the code would install, and fail at its first kernel.
    assert not offers("gfx942", view(split))
    # In double quotes, which every shell takes; a bracket alone is a pattern in some.
    line = targets_file.install_line("uv", "https://host/simple/", found.packages)
    assert line == (
        'uv pip install --index-url https://host/simple/ "torch[device-gfx1100]" torchvision torchaudio'
    )


@pytest.mark.parametrize(
    ("devices", "target", "packages"),
    [
        (("torch-device-gfx9-4-generic",), "gfx942", ("torch[device-gfx9-4-generic]", "torchvision")),
        (
            ("torch-device-gfx942", "torch-device-gfx9-4-generic"),
            "gfx942",
            ("torch[device-gfx942]", "torchvision"),
        ),
        (("amd-torch-device-gfx942",), "gfx942", ("torch[device-gfx942]", "torchvision")),
        (("torchvision-device-gfx942",), "gfx942", ("torch", "torchvision[device-gfx942]")),
        (("torch-device-gfx942", "torchvision-device-gfx1100"), "gfx942", None),
        (("torch-device-gfx942",), "cpu", None),
        (("mytorch-device-gfx942",), "gfx1100", ("torch", "torchvision")),
    ],
)
def test_the_extra_is_that_of_the_wheel_with_the_code(
    devices: Sequence[str], target: str, packages: tuple[str, ...] | None
) -> None:
    one = one_set(1, "2.9.0", ("gfx942", "gfx1100", "gfx9-4-generic"))
    projects = {"torch": "2.9.0", "torchvision": "0.24.0"} | dict.fromkeys(devices, "2.9.0")
    found = offers(target, view(msgspec.structs.replace(one, projects=projects)))
    assert [offer.packages for offer in found] == ([] if packages is None else [packages])


def test_code_for_a_generic_target_or_with_features_serves_its_processors() -> None:
    shown = view(one_set(1, "2.9.0", ("gfx11-generic", "gfx90a:xnack+")))
    for target in ("gfx1100", "gfx1151", "gfx90a"):
        assert offers(target, shown), target
    assert not offers("gfx1201", shown)
    assert not targets_file.make("release", (shown,)).entry("gfx11-generic").products
    # A set without torch names all that it has.
    projects = {"torch-scatter": "2.1.2", "torch-cluster": "1.6.3"}
    scatter = msgspec.structs.replace(one_set(1, "2.9.0", ("gfx942",)), projects=projects)
    assert offers("gfx942", view(scatter))[0].packages == ("torch-cluster", "torch-scatter")


def test_what_is_untested_is_said_of_the_targets_it_is_true_of() -> None:
    found = targets_file.make("release", (family(),))
    assert found.entry("gfx1100").offers[0].untested is None
    assert "bypassed by ann" in (found.entry("gfx1101").offers[0].untested or "")
    whole = one_set(1, "2.9.0", ("gfx942",), untested="no test at all")
    assert offers("gfx942", view(whole))[0].untested == "no test at all"
    unsaid = one_set(1, "2.9.0", ("gfx942",), untested_targets=("gfx942",))
    assert offers("gfx942", view(unsaid))[0].untested == "untested on hardware: gfx942"


def test_the_file_is_read_as_it_was_written_and_names_every_target_once() -> None:
    found = targets_file.make("release", (channel(), family()))
    assert datafile.loads(datafile.dumps(found), targets_file.TargetsFile, name="targets.json") == found
    names = [entry.target for entry in found.targets]
    assert names[0] == "cpu"
    assert len(names) == len(set(names))
    assert {"gfx803", "gfx1250"} <= set(names)


@pytest.mark.parametrize(
    ("url", "quoted"),
    [
        ("https://wheels.example/release/simple/", "https://wheels.example/release/simple/"),
        ("https://wheels.example/a;rm -rf ~/simple/", "'https://wheels.example/a;rm -rf ~/simple/'"),
        ("file:///tmp/$(id)/simple/", "'file:///tmp/$(id)/simple/'"),
    ],
)
def test_an_address_is_one_word_of_a_shell(url: str, quoted: str) -> None:
    assert targets_file.install_line("pip", url, ("torch",)) == f"pip install --index-url {quoted} torch"
