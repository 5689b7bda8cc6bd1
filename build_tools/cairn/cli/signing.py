"""Options of the commands that sign, or that verify signatures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters, extras
from cairn.cli import common_options as common
from cairn.options import Exclusive, flag, option, repeated

if TYPE_CHECKING:
    from cairn.release.provenance.attest import Attester
    from cairn.release.trust.signers import Signer, Trust
    from cairn.simple_index import IndexFile
    from cairn.store.protocol import Store

_ONE = Exclusive()


@dataclass(frozen=True, kw_only=True)
class RootOptions:
    """`--root`."""

    root: str | None = option(
        "the root that says who may sign: its fingerprint, or a copy of it (default: that of CAIRN_ROOT; "
        "else the one that was there when this machine first met the store)",
        metavar="SHA256|FILE",
        convert=converters.nonempty,
    )

    def acting(self) -> AbstractContextManager[None]:
        """Hold what was given of roots and keys while a block runs."""
        from cairn.release.trust import anchor

        return anchor.acting(root=self.root, key=getattr(self, "sign_key", None))


@dataclass(frozen=True, kw_only=True)
class SignOptions(RootOptions):
    """`--sign-key` and `--root`."""

    sign_key: Path | None = option(
        "sign with this private key (default: that of CAIRN_SIGN_KEY, if it names one)",
        convert=converters.private_key,
        group=_ONE,
    )

    def signer(self) -> Signer | None:
        """Return the key that the option or the environment names."""
        from cairn.release.trust import signers

        return signers.chosen_signer(self.sign_key)


@dataclass(frozen=True, kw_only=True)
class AttestOptions(SignOptions):
    """Who vouches for wheels: `--sign-key`, `--sign-as-workflow`; with `--dry-run` no workflow does."""

    sign_as_workflow: bool = flag(
        "sign as the GitHub workflow that runs this (PEP 740); needs `id-token: write`, extra sign",
        group=_ONE,
    )
    dry_run: bool = common.dry_run()

    @contextlib.contextmanager
    def attester(self) -> Iterator[Attester | None]:
        """Yield the attester of wheels, or None if none was requested."""
        if self.sign_as_workflow and self.dry_run:
            yield None
            return
        if self.sign_as_workflow:
            extras.demand("sign")
            from cairn.release.provenance.pep740 import workflow_attester

            with workflow_attester(self.signer()) as workflow:
                yield workflow
            return
        from cairn.release.provenance.attest import KeyAttester

        key = self.signer()
        yield KeyAttester(key) if key else None


def signed_wheel(wheel: Path | str, like: str | None = None) -> Path | IndexFile:
    """The wheel that a user names; one of an index whose store has a root must be signed.

    Raises:
        MetadataError: nobody signed it.
    """
    from cairn import files, simple_index
    from cairn.wheels import published

    place, hash_sign, fragment = str(wheel).rpartition("#")
    file = published.find(wheel, like=like) if isinstance(wheel, str) else wheel
    if isinstance(wheel, str) and hash_sign and not fragment.startswith("sha256="):
        from cairn.release.provenance import chain

        sha256 = files.sha256_of(file) if isinstance(file, Path) else file.sha256
        chain.require_signed(simple_index.root(place), file.name, sha256)
    return file


def trust(about: str) -> Any:
    """`--trust`; `about` says whose signatures count."""
    return repeated(
        f"{about}: a public key's file, or github:OWNER/NAME/WORKFLOW.yml (default: the keys that the "
        "store's root names, if it has one)",
        metavar="KEY",
    )


def read_trust(
    keys: Sequence[str], testers: Sequence[Path] = (), *, store: Store | None = None
) -> Trust | None:
    """Return the trusted keys, those of `testers` for test records only; None if none is named.

    Where a store is given, and none is named, they are those that its root names.
    """
    from cairn.release.trust import anchor
    from cairn.release.trust import signers as trusted

    named_trust = trusted.trust_of(keys, testers)
    root = None if named_trust or store is None else anchor.anchor(store)
    return root.root.trust() if root is not None else named_trust or None
