"""Patches put on a checkout, commits that are allowed in one, and what an audit finds."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from cairn.output import silent
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG
from cairn.sources.patches import apply as patches_apply
from cairn.sources.patches import audit as patches_audit
from helpers.sources import Bench

UPSTREAM, HIPIFY = UPSTREAM_TAG, HIPIFY_TAG
TODAY = dt.date(2026, 6, 1)


def apply(bench: Bench, folder: Path, **how: Any) -> tuple[patches_apply.Applied, ...]:
    request = patches_apply.ApplyRequest(checkout=bench.path, folder=folder, kind="build_amd", **how)
    return patches_apply.apply(request, say=silent)


def outcomes(bench: Bench, folder: Path, **how: Any) -> dict[str, str]:
    """Apply patches; what became of each file."""
    return {applied.file: applied.outcome for applied in apply(bench, folder, **how)}


def allowed(commit: str, **changes: Any) -> patches_audit.Allowed:
    """An entry of an allowlist that holds until today."""
    fields: dict[str, Any] = {
        "project": "torch",
        "commit": commit,
        "why": "Nothing links without it.",
        "upstream": "https://github.com/pytorch/pytorch/pull/7",
        "owner": "Jo",
        "expires": TODAY,
    }
    return patches_audit.Allowed(**(fields | changes))


def audit(bench: Bench, *entries: patches_audit.Allowed, **changes: Any) -> patches_audit.Audit:
    fields: dict[str, Any] = {
        "checkout": bench.path,
        "project": "torch",
        "kind": "build_amd",
        "allowed": entries,
        "today": TODAY,
    }
    return patches_audit.audit(patches_audit.AuditRequest(**(fields | changes)), say=silent)
