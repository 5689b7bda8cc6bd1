"""Which functions there are: those of the first plan, and all that the torch that is installed offers."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import torch

from torchdevice import matrix
from torchdevice.matrix import Status


@dataclass(frozen=True, kw_only=True)
class Function:
    """A row of the catalogue, before it is measured.

    Attributes:
        path: the dotted name.
        category: the plan's, or else the module.
        planned: whether it is one of the plan's rows.
        status: what the matrix says.
        arguments: the names of its parameters, as far as they are known.
        returns: the annotation of its result.
        note: the matrix's.
    """

    path: str
    category: str
    planned: bool
    status: Status
    arguments: tuple[str, ...] = ()
    returns: str = ""
    note: str = ""


def functions() -> Iterator[Function]:
    """Every function, by name; to be asked while torch is as it was.

    What the plan names and this torch lacks is `absent`.
    """
    planned = plan()
    entries = {entry.path: entry for entry in matrix.catalogue()}
    overrides = {
        _path(function): dummy for function, dummy in torch.overrides.get_testing_overrides().items()
    }
    for path in sorted({*entries, *planned}):
        entry = entries.get(path)
        arguments, returns = _signature(matrix.find(path), overrides.get(path))
        yield Function(
            path=path,
            category=planned.get(path) or path.rpartition(".")[0],
            planned=path in planned,
            status=entry.status if entry else Status.ABSENT,
            arguments=arguments,
            returns=returns,
            note=entry.note if entry else "Not in this torch.",
        )


def plan() -> dict[str, str]:
    """The functions of the plan, with their categories."""
    text = resources.files("torchdevice.catalog").joinpath("plan.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)["plan"]
    return {f"{group['owner']}.{name}": group["category"] for group in groups for name in group["names"]}


def _path(function: Any) -> str:
    return torch.overrides.resolve_name(function) or ""


def _signature(function: Any, dummy: Any) -> tuple[tuple[str, ...], str]:
    """Names of parameters, `*` before those that may be left out; and the annotation of the result."""
    for source in (function, dummy):
        if source is None:
            continue
        try:
            signature = inspect.signature(source)
        except (TypeError, ValueError):
            continue
        names = [
            p.name if p.default is p.empty else f"{p.name}=…"
            for p in signature.parameters.values()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        returns = signature.return_annotation
        text = "" if returns is signature.empty else getattr(returns, "__name__", str(returns))
        return tuple(names), text
    return (), ""
