"""The ROCm SDK of a night is the newest that every family has, as their indexes say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from packaging.version import Version

from cairn import stack as stacks
from cairn.errors import NetworkError, UsageError
from cairn.pipeline.night import needs
from cairn.pipeline.night.needs import FreezeRequest
from cairn.stack import Sdk
from helpers.night import leg_of
from helpers.serving import serving

SAMPLE = Path(__file__).parents[3] / "external-builds" / "sample"
Offer = Callable[..., FreezeRequest]


@pytest.fixture
def offer(tmp_path: Path) -> Iterator[Offer]:
    """Makes an index for each family, with these versions of ROCm, and a night of these families."""
    with serving(tmp_path) as url:

        def make(**versions: list[str]) -> FreezeRequest:
            for family, names in (pair for pair in versions.items() if pair[1]):
                for part in ("", "-sdk-core", "-sdk-devel", f"-sdk-libraries-{family}"):
                    page = tmp_path / family / f"rocm{part}" / "index.html"
                    page.parent.mkdir(parents=True)
                    files = (f"rocm{part.replace('-', '_')}-{name}.tar.gz" for name in names)
                    links = (f'<a href="{file}">{file}</a>' for file in files)
                    page.write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
            return FreezeRequest(
                night="8",
                stack=msgspec.structs.replace(stacks.load(SAMPLE), sdk=Sdk()),
                legs=tuple(map(leg_of, versions)),
                work_dir=tmp_path,
                rocm_index_url=f"{url}/{{family}}/",
            )

        yield make


def test_the_newest_that_every_family_has(offer: Offer) -> None:
    """One family's packages come later than the others': the newest of the first was frozen for both."""
    request = offer(
        gfx906=["7.10.0a20261120", "7.10.0a20261121", "7.10.0a20261122"],
        gfx1151=["7.9.0", "7.10.0a20261120", "7.10.0a20261121"],
    )
    lines: list[str] = []
    assert needs.version_of_sdk(request, lines.append) == "7.10.0a20261121"
    assert any("gfx906 has ROCm 7.10.0a20261122, which gfx1151 lacks" in line for line in lines)


def test_families_without_a_version_in_common_are_named(offer: Offer) -> None:
    request = offer(gfx906=["7.10.0"], gfx1151=["7.9.0"])
    with pytest.raises(NetworkError, match=r"gfx906 has 7.10.0, gfx1151 has 7.9.0"):
        needs.version_of_sdk(request, lambda _line: None)


def test_a_family_without_the_package_is_named_by_its_index(offer: Offer) -> None:
    request = offer(gfx906=["7.10.0"], gfx1151=[])
    with pytest.raises(NetworkError, match=r"/gfx1151/ has no rocm package"):
        needs.version_of_sdk(request, lambda _line: None)


def test_a_newer_version_that_was_not_reviewed_is_reported(
    offer: Offer, capsys: pytest.CaptureFixture[str]
) -> None:
    request = offer(gfx906=["7.10.0", "7.11.0"])
    chosen = needs.version_of_sdk(request, lambda _line: None, frozenset({Version("7.10.0")}))
    assert chosen == "7.10.0"
    line = "ROCm 7.11.0 waits for review, and this night takes 7.10.0: cairn index mirror lock --stack STACK"
    assert line in capsys.readouterr().err


def test_a_version_without_an_index_is_refused_before_anything_is_built(offer: Offer) -> None:
    request = dataclasses.replace(offer(gfx906=[]), rocm_version="7.10.0", rocm_index_url="")
    with pytest.raises(UsageError, match=r"nothing says where the ROCm SDK of the stack sample comes from"):
        needs.version_of_sdk(request, lambda _line: None)
