"""The sample stack with Debian's real hipcc and libamdhip64 in place of the miniature ROCm."""

import json
from pathlib import Path

import pytest

from cairn.release.index import keys
from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from helpers.trail import SAMPLE, cairn, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("debian")]

TARGETS = "gfx90a,gfx1030"
VERSION = "5.2.3"


@pytest.mark.usefixtures("debian_hip")
def test_the_same_stack_with_real_hip(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = clean_environment(tmp_path / "cache") | {"TMPDIR": str(temporary)}

    def run(*words: str | Path) -> str:
        done = cairn(*words, env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("checkout", "all", "--stack", SAMPLE, "--root-checkout-dir", "src")
    description = SAMPLE / "rocm" / "debian" / "packages.toml"
    run(
        *("rocm", "package", "--prefix", "/usr", "--description", description, "--rocm-version", VERSION),
        *("--targets", TARGETS, "--output-dir", "sdk"),
    )
    dists = sorted((tmp_path / "sdk").iterdir())
    run("index", "publish", "--store", "store", *dists)
    with serving(LocalStore(tmp_path / "store")) as server:
        index_url = keys.index_url(server.url, "staging")
        run(
            *(
                "build",
                "--stack",
                SAMPLE,
                "--root-checkout-dir",
                "src",
                "--output-dir",
                "out",
                "--targets",
                TARGETS,
            ),
            *("--install-rocm", "--index-url", index_url),
        )
        wheels = sorted((tmp_path / "out").glob("*.whl"))
        run("index", "publish", "--store", "store", "--set", "out/set.json", *wheels)
        run(
            *("test", "smoke", "--stack", SAMPLE, "--set", "out/set.json", "--index-url", index_url),
            *("--output-dir", "smoke", "--allow-untested"),
        )
    made = {w["distribution"]: w for w in json.loads((tmp_path / "out" / "set.json").read_text())["wheels"]}
    assert made["torch"]["version"] == f"2.9.0+rocm{VERSION}"
    assert sorted(made["torch"]["targets"]) == sorted(TARGETS.split(","))
    record = json.loads((tmp_path / "smoke" / "record.json").read_text())
    assert record["verdict"] == "untested"
    shown = json.loads(run("wheel", "show", "--json", next(w for w in wheels if w.name.startswith("torch-"))))
    assert "libamdhip64.so.5" in json.dumps(shown)
    # Debian's clang leaves an empty folder for every kernel it compiles.
    assert [path.name for path in temporary.iterdir()] == []
