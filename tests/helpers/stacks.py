"""The text of a `stack.toml`, for stacks that tests make up."""

from __future__ import annotations

import json


# Not a shipped stack: each has the one project that its test is of.
def stack(*projects: str, name: str = "small", line: str = "main", more: str = "") -> str:
    """A stack for the CPU; `projects` are texts of `project`, `more` has further keys of the stack itself."""
    head = f'schema = "cairn.stack/1"\nname = "{name}"\nline = "{line}"\ntargets = ["cpu"]\n{more}\n'
    return "\n".join((head, *projects))


def project(
    name: str,
    origin: object,
    more: str = "",
    *,
    distribution: str | None = None,
    folder: str | None = None,
    hashtag: str = "main",
) -> str:
    """A project of such a stack.

    Args:
        name: of the project; its distribution and its folder are called likewise unless they are named.
        origin: the address of its repository.
        more: lines with its further keys.
        distribution: name of its wheel.
        folder: where it is checked out.
        hashtag: what is checked out.
        hashtag: what is checked out.
    """
    keys = {
        "name": name,
        "distribution": distribution or name,
        "checkout_dir": folder or name,
        "origin.url": str(origin),
        "hashtag": hashtag,
    }
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items()]
    return "\n".join(["[[projects]]", *lines, more, ""])


def torch(origin: object, more: str = "") -> str:
    """A torch that is hipified by its own script."""
    return project("torch", origin, f'hipify = "build_amd"\n{more}', folder="pytorch")
