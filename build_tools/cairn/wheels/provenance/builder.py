"""Who makes a statement, as far as others may know: a workflow of GitHub's, or somebody's own machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import cairn

LOCAL = "urn:cairn:builder:local"
"""The id of a machine that is nobody's business: its name and its user's are not published."""


@dataclass(frozen=True, kw_only=True)
class Builder:
    """What SLSA calls the builder: who ran Cairn.

    Attributes:
        id: the address of the workflow with its ref, or `LOCAL`.
        invocation: the address of the run; None where there is none.
        version: of Cairn.
    """

    id: str
    invocation: str | None = None
    version: str = cairn.__version__


def here(environ: Mapping[str, str] | None = None) -> Builder:
    """Who runs this, by the variables that GitHub Actions sets for each step.

    The id is the one that GitHub's own attestations have and that Fulcio puts into the certificate of a
    workflow (`<server>/<owner>/<repository>/.github/workflows/<file>@<ref>`).
    """
    variables = os.environ if environ is None else environ
    needed = ("GITHUB_SERVER_URL", "GITHUB_WORKFLOW_REF", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    if variables.get("GITHUB_ACTIONS") != "true" or not all(variables.get(name) for name in needed):
        return Builder(id=LOCAL)
    server, workflow, repository, run = (variables[name] for name in needed)
    attempt = variables.get("GITHUB_RUN_ATTEMPT") or "1"
    return Builder(
        id=f"{server}/{workflow}", invocation=f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}"
    )
