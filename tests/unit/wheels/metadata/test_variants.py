"""Wheel variants: their names, what they say of themselves, and what an index says of them together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cairn import datafile
from cairn.errors import WheelError
from cairn.wheels.contents.summary import summarise
from cairn.wheels.metadata import variants, wheel_info
from cairn.wheels.metadata.variants import SCHEMA, Variants
from cairn.wheels.split.device_wheel import Terms
from cairn.wheels.split.join import write_variant
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.wheels import LINUX, MakeWheel, cairn_wheel, members_of

TAGS = "cp311-cp311-manylinux_2_28_x86_64"


@pytest.mark.parametrize(
    ("rest", "label"),
    [
        (f"{TAGS}-gfx942.whl", "gfx942"),
        (f"1_cu-{TAGS}-x86_64_v3.whl", "x86_64_v3"),
        (f"{TAGS}-null.whl", "null"),
        (f"{TAGS}.whl", None),
        (f"1-{TAGS}.whl", None),
        (f"{TAGS}-GFX942.whl", None),
        (f"1-{TAGS}-gfx942-more.whl", None),
        (f"{TAGS}-gfx942.zip", None),
    ],
)
def test_the_label_of_a_file_name(rest: str, label: str | None) -> None:
    name = f"torch-2.9.0-{rest}"
    plain, found = wheel_info.split_label(name)
    assert found == label
    if label is None:
        assert plain == name
        return
    assert variants.with_label(plain, label) == name
    parsed = wheel_info.parse_file_name(name, variants_too=True)
    assert (parsed.variant, parsed.version, parsed.tags) == (label, "2.9.0", (TAGS,))
    with pytest.raises(WheelError, match=f"wheel variant {label}, where only a plain"):
        wheel_info.parse_file_name(name)


def test_what_an_index_calls_the_file_of_a_version() -> None:
    name = variants.index_file_name(f"Torch_Audio.x-2.09.0+rocm7.14.0A2-{TAGS}-gfx942.whl")
    assert name == "torch_audio_x-2.9.0+rocm7.14.0a2-variants.json"


def said(**changes: Any) -> dict[str, Any]:
    whole = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": ["amd"]},
        "providers": {"amd": {"requires": ["rocm-bootstrap"], "plugin-api": "a.b:C"}},
        "variants": {"gfx942": {"amd": {"gfx_arch": ["gfx942"]}}},
    }
    return whole | changes


def test_what_is_read_is_written_again_and_fits_the_schema() -> None:
    found = variants.loads(json.dumps(said()).encode(), name="variant.json")
    written = json.loads(datafile.dumps(found))
    assert written == said()
    jsonschema.validate(written, datafile.json_schema(Variants))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"$schema": "https://example.org/peps/825/v1.0.0.json"}, "only .*850.* is known"),
        ({"default-priorities": {"namespace": []}}, "namespace"),
        ({"default-priorities": {"namespace": ["amd", "x"]}}, "each provider once"),
        ({"providers": {"amd": {}}}, "one of requires, static-properties and builtin"),
        ({"providers": {"amd": {"requires": ["a"], "builtin": "b"}}}, "one of requires"),
        ({"variants": {"null": {"amd": {"gfx_arch": ["gfx942"]}}}}, "variant null has properties"),
        ({"variants": {"gfx942": {}}}, "variant gfx942 has no properties"),
        ({"variants": {"gfx942": {"nvidia": {"sm": ["90"]}}}}, "properties of nvidia"),
        ({"variants": {"gfx942": {"amd": {"gfx_arch": ["b", "a"]}}}}, "in order, each once"),
        ({"variants": {"gfx942": {"amd": {"gfx_arch": []}}}}, "gfx_arch"),
        ({"variants": {"GFX": {"amd": {"gfx_arch": ["a"]}}}}, "variants"),
        ({"more": 1}, "more"),
    ],
)
def test_what_the_drafts_do_not_allow_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(WheelError, match=reason):
        variants.loads(json.dumps(said(**changes)).encode(), name="variant.json")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xff", b"null", b"[" * 100_000, b"9" * 9_999),
        *(b'{"$schema": 1}', b'{"variants": {"\\ud800": {}}}'),
    ],
)
def test_whatever_is_in_a_file_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(WheelError):
        variants.loads(data, name="variant.json")


def test_variants_of_one_version_are_said_together_or_refused() -> None:
    def read(**changes: Any) -> Variants:
        return variants.loads(json.dumps(said(**changes)).encode(), name="variant.json")

    other = {"gfx1100": {"amd": {"gfx_arch": ["gfx1100"]}}}
    both = variants.merged(read(), read(variants=other))
    assert list(both.variants) == ["gfx1100", "gfx942"]
    assert variants.merged(both, read()) == both
    with pytest.raises(WheelError, match="different things of the label gfx942"):
        variants.merged(read(), read(variants={"gfx942": {"amd": {"gfx_arch": ["gfx90a"]}}}))
    with pytest.raises(WheelError, match="different things of the provider amd"):
        variants.merged(read(), read(providers={"amd": {"builtin": "amd"}}))
    two = {"amd": {"requires": ["rocm-bootstrap"], "plugin-api": "a.b:C"}, "x86_64": {"builtin": "x86_64"}}
    longer = read(providers=two, **{"default-priorities": {"namespace": ["amd", "x86_64"]}})
    assert variants.merged(read(), longer).default_priorities.namespace == ("amd", "x86_64")
    turned = read(providers=two, **{"default-priorities": {"namespace": ["x86_64", "amd"]}})
    with pytest.raises(WheelError, match="order"):
        variants.merged(longer, turned)


def parts_of(make_wheel: MakeWheel, folder: Path, *processors: str) -> list[Path]:
    codes = {processor: make_code_object(processor, processor.encode() * 99) for processor in processors}
    files = {"demo/x.so": make_hip_library([make_bundle(codes)])}
    files |= {"demo-1.0.data/data/gfx942.hsaco": make_code_object("gfx942", b"own" * 99)}
    wheel = make_wheel(tags=LINUX, files=files)
    return list(split(wheel, folder, Terms(sdk="7.14.0")))


def test_a_variant_is_the_host_wheel_with_the_code_of_one_processor(
    make_wheel: MakeWheel, tmp_path: Path
) -> None:
    host, device, other = parts_of(make_wheel, tmp_path, "gfx942", "gfx1100")
    made = write_variant(host, device, tmp_path)
    assert made.name == "demo-1.0-cp311-cp311-manylinux_2_28_x86_64-gfx942.whl"
    assert verify(made, Expectation(targets=("gfx942",), require_device_code=True)) == ()
    summary = summarise(made)
    assert (summary.variant, summary.targets) == ("gfx942", ("gfx942",))
    assert summary.requires_dist == ("triton==3.5.0", "filelock", "rocm-sdk-device-gfx942==7.14.0")
    assert summary.extras == ("fast",)
    mine, hosts, theirs = members_of(made), members_of(host), members_of(device)
    about = "demo-1.0.dist-info"
    same = hosts.keys() - {f"{about}/METADATA", f"{about}/RECORD"}
    assert {name: mine[name] for name in same} == {name: hosts[name] for name in same}
    assert mine["demo/.kpack/demo_gfx942.kpack"] == theirs["demo/.kpack/demo_gfx942.kpack"]
    assert mine.keys() - hosts.keys() == {
        f"{about}/variant.json",
        "demo/.kpack/demo_gfx942.kpack",
        "demo-1.0.data/data/gfx942.hsaco",
    }
    assert json.loads(mine[f"{about}/variant.json"])["variants"] == {
        "gfx942": {"amd": {"gfx_arch": ["gfx942"]}}
    }
    assert write_variant(host, other, tmp_path).name.endswith("-gfx1100.whl")
    with pytest.raises(WheelError, match="not a device wheel of"):
        write_variant(host, host, tmp_path)


def test_a_variant_that_is_not_what_its_name_says_is_found(make_wheel: MakeWheel, tmp_path: Path) -> None:
    host, device, _ = parts_of(make_wheel, tmp_path, "gfx942", "gfx1100")
    made = write_variant(host, device, tmp_path)

    def said(path: Path) -> str:
        (found,) = verify(path, Expectation())
        assert found.code == "variant"
        return found.reason

    wrong = made.rename(host.parent / variants.with_label(host.name, "gfx1100"))
    assert "is of gfx942, and its name has the label gfx1100" in said(wrong)
    plain = wrong.rename(tmp_path / "demo-1.0-cp311-cp311-manylinux_2_28_x86_64.whl")
    assert "is of gfx942, and its name has no label" in said(plain)
    bare = parts_of(make_wheel, tmp_path / "again", "gfx942", "gfx1100")[0]
    bare = bare.rename(bare.parent / variants.with_label(bare.name, "gfx942"))
    assert "has no variant.json" in said(bare)


def test_no_variant_is_made_that_no_provider_would_name(make_wheel: MakeWheel, tmp_path: Path) -> None:
    host, generic, _ = parts_of(make_wheel, tmp_path, "gfx942", "gfx9-4-generic")
    with pytest.raises(WheelError, match="no wheel variant for gfx9-4-generic: rocm-bootstrap names"):
        write_variant(host, generic, tmp_path)
    whole, out = next((tmp_path / "wheels").glob("*.whl")), tmp_path / "out"
    assert cairn_wheel("split", whole, "--output-dir", out, "--variants") != 0
    assert not out.exists()


def test_the_command_writes_variants_where_it_is_asked(
    make_wheel: MakeWheel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"demo/x.so": make_hip_library([make_bundle({"gfx942": make_code_object("gfx942", b"a" * 99)})])}
    wheel = make_wheel(tags=LINUX, files=files)
    assert cairn_wheel("split", wheel, "--output-dir", tmp_path / "plain", "--json") == 0
    assert json.loads(capsys.readouterr().out)["variants"] == []
    assert cairn_wheel("split", wheel, "--output-dir", tmp_path / "out", "--variants") == 0
    host, device, made = map(Path, capsys.readouterr().out.split())
    assert made.name == variants.with_label(host.name, "gfx942")
    for path in (host, device):  # which are what they are without variants
        assert path.read_bytes() == (tmp_path / "plain" / path.name).read_bytes()
    # The folder that they are all in may be named to `verify`, and each is judged there.
    assert cairn_wheel("verify", made, "--find-links", tmp_path / "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)[str(made)]["findings"] == []
    assert cairn_wheel("show", made) == 0
    assert "variant" in capsys.readouterr().out
    assert cairn_wheel("join", made, device, "--output-dir", tmp_path) != 0
    assert "give the wheel that the variants were made of" in capsys.readouterr().err
