"""The flags of TheRock's scripts, as its commit 89553ce has them: ours take them, or a table says why not."""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.cli import binder, main
from cairn.cli.upstream import pytorch_tests
from helpers.wheels import build_wheel

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/therock.md").read_text(encoding="utf-8")
PYTORCH = "external-builds/pytorch/"
INSTALL = "--index-url --find-links --pip-cache-dir --rocm-sdk-version --pre --no-pre --rocm-extras"
CHECKOUT = (
    "--checkout-dir --gitrepo-origin --repo-name --repo-hashtag --depth --jobs --submodules --no-submodules "
    "--hipify --no-hipify --commit-hipify --no-commit-hipify"
)
HIPIFY = "--checkout-dir --gitrepo-origin --repo-name --repo-hashtag"
RELATED = "--torch-dir --require-related-commit --no-require-related-commit"
FLAGS = [
    (PYTORCH, "build_prod_wheels.py install-rocm", INSTALL),
    (
        PYTORCH,
        "build_prod_wheels.py build",
        (
            f"{INSTALL} --install-rocm --no-install-rocm --output-dir --pytorch-dir --pytorch-audio-dir "
            "--pytorch-vision-dir --triton-dir --apex-dir --root-checkout-dir --pytorch-rocm-arch "
            "--version-suffix --release-type --pytorch-build-number --build-triton --no-build-triton "
            "--build-pytorch-audio --no-build-pytorch-audio --build-pytorch-vision --no-build-pytorch-vision "
            "--build-apex --no-build-apex --enable-pytorch-flash-attention "
            "--no-enable-pytorch-flash-attention --use-ccache --use-sccache --sccache-no-wrap --clean "
            "--no-clean"
        ),
    ),
    (PYTORCH, "pytorch_torch_repo.py checkout", CHECKOUT),
    (PYTORCH, "pytorch_torch_repo.py hipify", "--checkout-dir --repo-name --repo-hashtag"),
    (PYTORCH, "pytorch_audio_repo.py checkout", f"{CHECKOUT} {RELATED}"),
    (PYTORCH, "pytorch_audio_repo.py hipify", f"{HIPIFY} {RELATED}"),
    (PYTORCH, "pytorch_vision_repo.py checkout", f"{CHECKOUT} {RELATED}"),
    (PYTORCH, "pytorch_vision_repo.py hipify", f"{HIPIFY} {RELATED}"),
    (PYTORCH, "pytorch_apex_repo.py checkout", f"{CHECKOUT} {RELATED}"),
    (PYTORCH, "pytorch_apex_repo.py hipify", f"{HIPIFY} {RELATED}"),
    (PYTORCH, "pytorch_triton_repo.py checkout", f"{CHECKOUT} --torch-dir --release --no-release"),
    (
        PYTORCH,
        "checkout_from_manifest.py",
        "--manifest --manifest-url --checkout-root --projects --expected-pytorch-git-ref --no-hipify",
    ),
    (PYTORCH, "run_pytorch_smoke_tests.py", "--amdgpu-family"),
    (
        PYTORCH,
        "run_pytorch_tests.py",
        (
            "--amdgpu-family --pytorch-version --pytorch-dir --debug --no-debug -k --cache --no-cache "
            "--device-query --gpu-policy --allow-version-mismatch --no-allow-version-mismatch"
        ),
    ),
    (PYTORCH, "windows_patch_fat_wheel.py", "--output-path"),
    (
        "build_tools/",
        "fetch_artifacts.py",
        (
            "--run-id --artifact-group --output-dir --platform --run-github-repo --amdgpu-targets --exclude "
            "--extract --no-extract --flatten --delete-after-extract --no-delete-after-extract "
            "--download-concurrency --extract-concurrency --dry-run --no-dry-run"
        ),
    ),
    (
        "build_tools/",
        "build_python_packages.py",
        (
            "--artifact-dir --dest-dir --version --version-suffix --build-packages --no-build-packages "
            "--linux-amdgpu-families --windows-amdgpu-families --wheel-compression "
            "--devel-tarball-compression"
        ),
    ),
]
GITHUB_ACTIONS = """
amdgpu_family_matrix.py baseline_runs.py build_configure.py bump_automation.py capture_job_summary.py
check_consumer_graph_drift.py cleanup_processes.ps1 cleanup_processes.sh compute_jax_package_version.py
compute_pr_depth.py compute_pytorch_cache_type.py configure_ci_path_filters.py
configure_external_repo_ci.py configure_jax_release_matrix.py configure_jax_test_matrix.py
configure_multi_arch_ci.py configure_multi_arch_ci_summary.py configure_pytorch_release_matrix.py
configure_pytorch_test_matrix.py configure_rocm_python_test_matrix.py detect_external_repo_config.py
detect_failed_logs.py determine_version.py expand_amdgpu_families.py fetch_job_status.py
fetch_package_targets.py fetch_test_configurations.py generate_jax_manifest.py
generate_pytorch_source_manifest.py github_actions_api.py hip_tagging_helper.py manifest_utils.py
manylinux_config.py new_amdgpu_family_matrix.py post_build_upload.py post_stage_upload.py
publish_jax_to_release_bucket.py publish_pytorch_to_release_bucket.py publish_rocm_to_release_buckets.py
python_to_cp_version.py reproduce_test_failure.py stage_impact.py stage_reuse_decision.py
summarize_test_pytorch_workflow.py upload_jax_manifest.py upload_python_packages.py upload_tarballs.py
upload_test_report_script.py workflow_summary.py write_artifacts_bucket_info.py write_jax_versions.py
write_product_release_bucket_info.py write_torch_versions.py
"""


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _commands(child)


@pytest.mark.parametrize(("folder", "command", "flags"), FLAGS, ids=[command for _, command, _ in FLAGS])
def test_each_flag_of_theirs_is_taken_or_in_the_table(folder: str, command: str, flags: str) -> None:
    script, *words = command.split()
    answer = subprocess.run(
        [sys.executable, ROOT / folder / script, *words, "--help"], capture_output=True, text=True, check=True
    )
    usage = answer.stdout.partition("\n\n")[0]
    taken = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", usage))
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and command in line]
    refused = {
        flag
        for row in rows
        if "not there" in row
        for flag in re.findall(r"--?[a-z][a-z-]*", row.split("|")[1])
    }
    assert set(flags.split()) - taken == refused & set(flags.split())


@pytest.mark.parametrize(
    ("words", "one", "all_of_them"),  # what a configuration's tests see that need one GPU, or all
    [
        ("", "one", "all"),
        ("--device-query all", "one", "all"),
        ("--device-query unique", "one", "one-of-each"),
        ("--gpu-policy single --device-query all", "one", "one"),
        ("--gpu-policy all", "one-of-each", "all"),
        ("--gpu-policy all --device-query unique", "one-of-each", "one-of-each"),
        ("--gpu-policy all --device-query all", "all", "all"),
    ],
)
def test_gpus_are_queried_and_then_chosen_as_upstream_has_it(words: str, one: str, all_of_them: str) -> None:
    parser = pytorch_tests.run_pytorch_tests(Path("run_pytorch_tests.py"))
    request = binder.make(
        pytorch_tests.RunTests, parser.parse_args(["--pytorch-dir", str(ROOT), *words.split()])
    )
    assert pytorch_tests.gpu_choice(request, "one") == one
    assert pytorch_tests.gpu_choice(request, "all") == all_of_them


def test_each_script_for_github_actions_has_a_row() -> None:
    below = PAGE.partition("## Scripts for GitHub Actions")[2]
    rows = [line.strip("| ").split(" | ") for line in below.splitlines() if line.startswith("| `")]
    assert sorted(row[0].strip("`") for row in rows) == sorted(GITHUB_ACTIONS.split())
    parsers = {" ".join(parser.prog.split()) for parser in _commands(main.make_parser(whole=True))}
    for name, ours, *_ in rows:
        for command in re.findall(r"`(cairn [a-z ]+[a-z])", ours):
            assert command in parsers, (name, command)


def test_the_wheels_of_a_folder_are_verified(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / PYTORCH / "sanity_check_wheel.py"), str(tmp_path)]
    answer = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (answer.returncode, "has no wheels" in answer.stderr) == (2, True)
    build_wheel(tmp_path, requires=())
    assert subprocess.run(script, capture_output=True, check=False).returncode == 0
    (tmp_path / "torch-2.9.0-py3-none-any.whl").write_bytes(bytes(200_000))
    answer = subprocess.run(script, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert "torch-2.9.0" in answer.stdout + answer.stderr
