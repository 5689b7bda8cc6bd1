from pathlib import Path

import pytest

from cairn.build import postprocess
from cairn.wheels.verify import Expectation, verify
from helpers.wheels import build_wheel


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        (b"see https://github.com/pytorch/pytorch and /pytorch", []),
        (b"compiled\0/pytorch/c10/core/Device.cpp\0", ["forbidden-text"]),
        (b'#define SOURCE "/pytorch/c10"', ["forbidden-text"]),
        (b"cmake -DPREFIX=/pytorch/torch", ["forbidden-text"]),
    ],
)
def test_a_tree_in_the_root_of_a_container_is_told_from_an_address(
    tmp_path: Path, content: bytes, codes: list[str]
) -> None:
    wheel = build_wheel(tmp_path, name="demo", requires=(), files={"demo/text": content})
    texts = postprocess.texts_of([Path("/pytorch")])
    assert [each.code for each in verify(wheel, Expectation(forbidden_strings=texts))] == codes


def test_a_tree_behind_a_link_is_known_by_both_paths(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "link").symlink_to("tree")
    assert postprocess.texts_of([tmp_path / "link"]) == (str(tmp_path / "link"), str(tmp_path / "tree"))
