"""The wheel itself: its version and build settings."""

from __future__ import annotations

import re

import torch

from .answer import Answer, NotMeasurableError, require, runs


@runs("host")
def line(answer: Answer, release: str, kind: str) -> None:
    """This wheel is of a version that the page lists.

    Args:
        answer: what is found.
        release: the first two numbers, `2.9`.
        kind: `alpha` or `stable`.
    """
    version = str(torch.__version__)
    match = re.match(r"(?P<line>\d+\.\d+)(\.\d+)?(?P<alpha>a\d+|\.dev\d+)?", version)
    if match is None or match["line"] != release or bool(match["alpha"]) != (kind == "alpha"):
        raise NotMeasurableError(f"this wheel is {version}")
    with answer.check("torch imports and computes"):
        answer.fact(version)
        require((torch.ones(2, 3) @ torch.ones(3, 2) == 3).all(), "a wrong product")


@runs("host")
def built_with(answer: Answer, setting: str) -> None:
    """A build setting of this torch, such as USE_FBGEMM_GENAI, is on."""
    if torch.version.hip is None and torch.version.cuda is None:
        raise NotMeasurableError("this torch is built for the CPU")
    match = re.search(rf"\b{setting}=(\w+)", torch.__config__.show())
    if match is None:
        raise NotMeasurableError(f"this torch does not say what {setting} was")
    with answer.check(f"{setting} is on"):
        require(match[1].upper() in ("ON", "1", "TRUE"), f"it is {match[1]}")


@runs("host")
def project(answer: Answer) -> None:
    """The wheel of torch imports, and computes on the CPU."""
    with answer.check("torch imports and computes"):
        answer.fact(str(torch.__version__))
        require((torch.ones(2, 3) @ torch.ones(3, 2) == 3).all(), "a wrong product")
