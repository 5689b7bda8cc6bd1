"""What the tutorial and the how-tos tell the reader to type is run here, page after page, as it stands."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from helpers.trail import ROOT, clean_environment

from .test_readme import compare_answers, script_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]

# Each starts from what the pages before it left.
TUTORIAL = "tutorial/first-wheels.md"
PAGES = (
    TUTORIAL,
    "how-to/check-your-machine.md",
    "how-to/build-several-variants.md",
    "how-to/promote-by-hand.md",
    "how-to/take-a-night-back.md",
    "how-to/verify-a-wheel.md",
    "how-to/test-on-your-machine.md",
    "how-to/add-a-project.md",
    "how-to/bring-up-a-gpu.md",
    "how-to/run-the-nightly.md",
    "how-to/mirror-dependencies.md",  # last: with the lock the recipe changes, and no earlier set is promoted
)
ELSEWHERE = (
    # Needs Debian unstable and 25 GB; integration/rocm/test_debian_packages.py does it with Debian 12's.
    "how-to/rocm-from-debian.md",
    "how-to/compare-published-wheels.md",  # unit/wheels/test_published.py
    "how-to/challenge-a-set.md",  # test_reproducible.py
    "how-to/find-device-mistakes.md",  # integration/distribution/test_actions.py
    "how-to/replace-a-key.md",  # unit/release/trust/test_rotation.py
    "how-to/run-a-night-without-github.md",  # test_night_run.py
    "how-to/nightly-in-your-repository.md",  # test_own_stack.py
    "how-to/build-an-extension.md",  # integration/distribution/test_actions.py
    "how-to/release-cairn.md",  # a checklist
    "how-to/install-cairn.md",  # integration/distribution and integration/cli/test_completion.py
    "tutorial/four-nights.md",  # test_four_nights.py
    "tutorial/step-by-step.md",  # test_readme.py
)


def test_the_pages_from_first_to_last(project: Path, cache_of_pages: Path) -> None:
    texts = {page: (ROOT / "docs" / page).read_text("utf-8") for page in PAGES}
    script = script_of(texts[TUTORIAL]) + "\n".join(
        f"echo '== {page}' >&2\n{block}"
        for page in PAGES
        if page != TUTORIAL
        for block in re.findall(r"```bash\n(.*?)```", texts[page], re.DOTALL)
    )
    env = clean_environment(cache_of_pages) | {"PIP_CONFIG_FILE": os.devnull, "USER": "somebody"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=project, env=env, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    compare_answers(texts[TUTORIAL], done.stdout)
    # What the tutorial promises: of an edit in one project, the others are taken from the cache.
    edited = done.stderr.split("kept: nothing changed, wheel taken from the cache")
    assert len(edited) > 3, done.stderr
    release = project / "work" / "store" / "release" / "simple" / "torchvision" / "index.html"
    assert "0.25.0a0" in release.read_text(encoding="utf-8")


def test_every_page_with_commands_is_run() -> None:
    found = {
        path.relative_to(ROOT / "docs").as_posix()
        for kind in ("tutorial", "how-to")
        for path in (ROOT / "docs" / kind).glob("*.md")
    }
    assert found == {*PAGES, *ELSEWHERE}
