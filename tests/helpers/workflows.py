"""A workflow as it should be, for tests that plant a fault in it."""

from __future__ import annotations

from pathlib import Path

GOOD = """\
name: Night
on:
  schedule:
    - cron: "0 3 * * *"
permissions:
  contents: read
concurrency:
  group: night
  cancel-in-progress: false
jobs:
  plan:
    runs-on: ubuntu-24.04
    timeout-minutes: 10
    outputs:
      matrix: ${{ steps.matrix.outputs.matrix }}
      empty: ${{ steps.matrix.outputs.empty }}
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        timeout-minutes: 5
        with:
          persist-credentials: false
      - id: matrix
        timeout-minutes: 5
        run: cairn matrix --stack external-builds/sample --trigger nightly --github-output
  build:
    needs: plan
    if: needs.plan.outputs.empty == 'false'
    strategy:
      fail-fast: false
      matrix: ${{ fromJSON(needs.plan.outputs.matrix) }}
    runs-on: ${{ matrix.build_runs_on }}
    timeout-minutes: 60
    steps:
      - name: Build
        timeout-minutes: 50
        env:
          TARGETS: ${{ matrix.targets }}
        run: |
          set -o pipefail
          cairn build --stack external-builds/sample --targets "$TARGETS" \\
            --output-dir out
      - name: Keep the wheels
        timeout-minutes: 5
        uses: actions/upload-artifact@043fb46d1a93c77aae656e7c1c64a875d1fc6a0a # v7.0.1
        with:
          name: wheels-${{ matrix.id }}-${{ github.run_attempt }}
          path: out
  promote:
    needs: [plan, build]
    if: ${{ !cancelled() && needs.plan.result == 'success' && needs.build.result == 'success' }}
    runs-on: ubuntu-24.04
    timeout-minutes: 30
    permissions:
      contents: read
      id-token: write
    steps:
      - name: Promote
        timeout-minutes: 20
        env:
          STORE: s3://bucket/wheels
          WHEEL_SET: ${{ vars.WHEEL_SET }}
        run: cairn release promote "$WHEEL_SET" --stack external-builds/sample --store "$STORE" --to release
"""


def write(root: Path, text: str = GOOD, name: str = "night.yml") -> Path:
    """Write a workflow into a repository's folder."""
    path = root / ".github" / "workflows" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
