"""What the packages say of themselves and of each other agrees."""

import importlib
from importlib import metadata

import pytest
import torch.version
import torchaudio.version
import torchvision.version
from packaging.requirements import Requirement

DISTRIBUTIONS = ("torch", "torchaudio", "torchvision", "triton")


def pins_of(distribution: str) -> dict[str, str]:
    found = {}
    for text in metadata.requires(distribution) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found[requirement.name] = str(requirement.specifier)
    return found


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_module_has_the_version_of_its_distribution(name: str) -> None:
    assert importlib.import_module(name).__version__ == metadata.version(name)


@pytest.mark.parametrize(
    ("name", "sibling"), [("torch", "triton"), ("torchaudio", "torch"), ("torchvision", "torch")]
)
def test_siblings_are_pinned_to_what_is_installed(name: str, sibling: str) -> None:
    assert pins_of(name)[sibling] in {f"=={metadata.version(sibling)}", f"==={metadata.version(sibling)}"}


def test_all_were_built_for_the_same_hip() -> None:
    assert torchaudio.version.hip == torch.version.hip
    assert torchvision.version.hip == torch.version.hip
    assert torch.version.cuda is None
