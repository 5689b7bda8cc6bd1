"""Whom a user trusts: the public keys and the workflows that may vouch for wheels and records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cairn.errors import UsageError
from cairn.release.provenance import signing_key
from cairn.release.provenance.signing_key import PublicKey

_WORKFLOW = re.compile(r"github:([A-Za-z0-9-]+/[A-Za-z0-9._-]+)/([A-Za-z0-9._-]+\.ya?ml)(?:@(refs/.+))?")


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A workflow of GitHub Actions; PyPI's trusted publishers are named the same way, without the ref.

    Attributes:
        repository: `owner/name`.
        file: its name below `.github/workflows/`.
        ref: the branch or tag that it must run on, in full (`refs/heads/main`); None for any. Whoever may
            push a branch may change the workflow on it.
    """

    repository: str
    file: str
    ref: str | None = None

    def __str__(self) -> str:
        return f"github:{self.repository}/{self.file}" + (f"@{self.ref}" if self.ref else "")


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Whose word counts.

    Attributes:
        keys: public keys, by id.
        workflows: those whose certificates count.
        testers: keys that count for test records alone: a machine that tests must not vouch for wheels.
    """

    keys: Mapping[str, PublicKey] = field(default_factory=dict)
    workflows: tuple[Workflow, ...] = ()
    testers: Mapping[str, PublicKey] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.keys or self.workflows)


def read(names: Sequence[str], testers: Sequence[Path] = ()) -> Trust:
    """Whom these names stand for: each a public key's file, or `github:OWNER/NAME/WORKFLOW.yml[@REF]`.

    Raises:
        UsageError: a name is neither, or its file is not a public key.
    """
    workflows, keys = [], []
    for name in names:
        if match := _WORKFLOW.fullmatch(name):
            workflows.append(Workflow(repository=match[1], file=match[2], ref=match[3]))
        elif name.startswith("github:"):
            tip = "write github:OWNER/NAME/WORKFLOW.yml, and if you like @refs/heads/main after it"
            raise UsageError(f"{name} names no workflow", tip=tip)
        else:
            keys.append(Path(name))
    return Trust(
        keys=signing_key.public_keys(keys),
        workflows=tuple(workflows),
        testers=signing_key.public_keys(testers),
    )
