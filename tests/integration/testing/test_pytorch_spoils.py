"""Ways in which a torch was spoiled, and the smoke test that each is found by.

By hand: CAIRN_TEST_TORCH is an interpreter with PyTorch, NumPy, setuptools and pytest. A copy of its torch,
by hard links, has the one file replaced that a spoil is of.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[3] / "external-builds" / "pytorch" / "smoke-tests"
PYTHON = os.environ.get("CAIRN_TEST_TORCH", "")
pytestmark = [
    pytest.mark.by_hand,
    pytest.mark.skipif(not PYTHON, reason="CAIRN_TEST_TORCH names no interpreter with PyTorch"),
]

GONE = [
    ("share/cmake", "extensions::test_the_packages_for_cmake_name_libraries_that_are_there"),
    ("share/cmake/Caffe2/Caffe2Targets.cmake", "extensions::test_cmake_finds_torch"),
    ("include/torch/extension.h", "extensions::test_headers_are_there"),
    ("include/c10/util", "extensions::test_code_in_cpp_compiles_links_and_runs"),
    ("utils/cpp_extension.py", "extensions::test_cpp_extension_knows_where_torch_lies"),
    ("distributed/run.py", "launching::test_programs_of_the_wheel_lead_somewhere"),
    ("distributed/elastic/agent", "launching::test_torchrun_starts_ranks_that_train_one_model"),
    ("bin/torch_shm_manager", "launching::test_processes_share_tensors"),
    ("_export/serde", "programs::test_an_exported_program_computes_on_other_sizes_and_survives_its_file"),
    ("utils/checkpoint.py", "autograd::test_checkpoints_compute_the_same_again"),
    ("distributions", "distributions::test_density_and_moments"),
    ("utils/data/_utils/worker.py", "data::test_workers_bring_what_they_are_given"),
    ("_weights_only_unpickler.py", "saving::test_tensors_of_each_type_come_back"),
]

# What is added to the end of a file, and so wins over what the file had.
WRONG = [
    (
        "nn/functional.py",
        "_right = layer_norm\ndef layer_norm(*a, **k): return _right(*a, **k) + 0.5",
        "layers::test_layer_norm",
    ),
    ("nn/functional.py", "gelu = silu", "layers::test_activations"),
    (
        "nn/functional.py",
        "_right = cross_entropy\ndef cross_entropy(*a, **k): return _right(*a, **k) * 1.01",
        "layers::test_softmax_and_what_is_made_of_it",
    ),
    (
        "nn/functional.py",
        "_right = batch_norm\ndef batch_norm(*a, **k): return _right(*a[:5], True, 0.2)",
        "layers::test_batch_norm_learns_while_it_trains_and_then_keeps_what_it_learnt",
    ),
    (
        "nn/functional.py",
        "_right = interpolate\ndef interpolate(*a, **k): return _right(*a, **k).roll(1, -1)",
        "layers::test_pooling_padding_and_resizing",
    ),
    (
        "nn/modules/rnn.py",
        "_right = GRU.forward\nGRU.forward = lambda self, *a: (_right(self, *a)[0] * 1.001, None)",
        "layers::test_recurrent_layers_compute_their_gates",
    ),
    (
        "nn/modules/activation.py",
        (
            "_right = MultiheadAttention.forward\n"
            "MultiheadAttention.forward = lambda self, *a, attn_mask=None, **k: _right(self, *a, **k)"
        ),
        "layers::test_attention_with_heads_and_a_mask",
    ),
    (
        "nn/modules/dropout.py",
        "Dropout.forward = lambda self, x: x",
        "layers::test_dropout_leaves_out_its_share_and_the_mean_alone",
    ),
    ("nn/init.py", "def orthogonal_(x, *a, **k): return x.data.fill_(0.5)", "layers::test_initial_values"),
    (
        "nn/utils/clip_grad.py",
        "def clip_grad_norm_(*a, **k): return torch.tensor(5.0)",
        "layers::test_gradients_are_clipped_to_their_norm",
    ),
    (
        "serialization.py",
        "def load(*a, **k): raise RuntimeError('spoiled')",
        "saving::test_a_model_and_its_optimizer_go_on_where_they_were",
    ),
    (
        "serialization.py",
        "_right = load\ndef load(*a, weights_only=None, **k): return _right(*a, weights_only=False, **k)",
        "saving::test_what_is_loaded_runs_no_code_unless_it_is_asked_to",
    ),
    ("fft/__init__.py", "fft, ifft = ifft, fft", "numpy::test_fourier_transforms"),
    ("fft/__init__.py", "irfft = ihfft", "numpy::test_fourier_transforms_back_and_their_frequencies"),
    ("linalg/__init__.py", "cholesky = inv", "numpy::test_linear_algebra"),
    (
        "functional.py",
        "_right = einsum\ndef einsum(*a): return _right(*a) * 1.001",
        "numpy::test_products_of_many_kinds",
    ),
    (
        "distributions/normal.py",
        "Normal.log_prob = lambda self, x: -((x - self.loc) / self.scale) ** 2 / 2",
        "distributions::test_density_and_moments",
    ),
    (
        "distributions/gamma.py",
        "Gamma.rsample = lambda self, s=(): torch.ones(self._extended_shape(s))",
        "distributions::test_density_and_moments",
    ),
    (
        "distributions/kl.py",
        "_right = kl_divergence\ndef kl_divergence(p, q): return _right(q, p)",
        "distributions::test_normal_distribution_from_end_to_end",
    ),
    (
        "optim/adamw.py",
        (
            "_right = AdamW.__init__\n"
            "AdamW.__init__ = lambda self, *a, weight_decay=0, **k: _right(self, *a, weight_decay=0, **k)"
        ),
        "optimizers::test_steps_are_those_of_the_formula",
    ),
    (
        "optim/adam.py",
        "Adam.step = lambda self, closure=None: None",
        "optimizers::test_steps_are_those_of_the_formula",
    ),
    (
        "optim/sgd.py",
        (
            "_right = SGD.__init__\n"
            "SGD.__init__ = lambda self, *a, nesterov=False, **k: _right(self, *a, nesterov=False, **k)"
        ),
        "optimizers::test_steps_are_those_of_the_formula",
    ),
    (
        "optim/rprop.py",
        "Rprop.step = lambda self, closure=None: None",
        "optimizers::test_each_optimizer_comes_nearer_and_goes_on_from_its_saved_state",
    ),
    ("optim/lr_scheduler.py", "CosineAnnealingLR.get_lr = lambda self: [0.5]", "optimizers::test_schedulers"),
    (
        "utils/data/_utils/worker.py",
        "def _worker_loop(*a, **k): raise SystemExit(1)",
        "data::test_workers_make_the_same_batches_elsewhere",
    ),
    (
        "utils/data/_utils/collate.py",
        "def default_collate(batch): return batch",
        "data::test_samples_come_in_order_and_in_batches",
    ),
    (
        "utils/data/sampler.py",
        "RandomSampler.__iter__ = lambda self: iter([0] * len(self))",
        "data::test_shuffled_samples_come_once_and_by_their_seed",
    ),
    (
        "autograd/gradcheck.py",
        "def gradcheck(*a, **k): return True",
        "autograd::test_gradcheck_sees_a_wrong_gradient",
    ),
    ("_functorch/eager_transforms.py", "hessian = jacrev", "autograd::test_transforms_of_functions"),
    (
        "fx/graph_module.py",
        "GraphModule.recompile = lambda self: None",
        "programs::test_fx_traces_and_changes_a_program",
    ),
    (
        "jit/_serialization.py",
        "def load(*a, **k): raise RuntimeError('spoiled')",
        "programs::test_scripted_and_traced_programs_survive_their_file",
    ),
    (
        "ao/quantization/quantize.py",
        "def quantize_dynamic(model, *a, **k): return model",
        "programs::test_a_quantized_layer_is_near_the_whole_one",
    ),
    (
        "profiler/profiler.py",
        "profile.key_averages = lambda self, *a, **k: []",
        "programs::test_the_profiler_names_what_ran",
    ),
    (
        "nn/parallel/distributed.py",
        "DistributedDataParallel.forward = lambda self, *a: self.module(*a)",
        "launching::test_torchrun_starts_ranks_that_train_one_model",
    ),
    (
        "multiprocessing/reductions.py",
        "def rebuild_storage_fd(*a): raise RuntimeError('spoiled')",
        "launching::test_processes_share_tensors",
    ),
    (
        "nn/modules/conv.py",
        "_ConvTransposeNd._output_padding = lambda self, x, size, stride, *a, **k: [0] * len(stride)",
        "layers::test_convolutions_with_strides_groups_and_backwards",
    ),
    (
        "nn/functional.py",
        (
            "_right = scaled_dot_product_attention\n"
            "def scaled_dot_product_attention(*a, is_causal=False, **k): return _right(*a, **k)"
        ),
        "compute::test_attention_is_a_weighted_mean",
    ),
    (
        "nn/functional.py",
        "_right = embedding\ndef embedding(x, w, padding_idx=None, *a): return _right(x, w, None, *a)",
        "layers::test_an_embedding_of_padding_stays_as_it_is",
    ),
    (
        "_tensor.py",
        "Tensor.__deepcopy__ = lambda self, memo: self.detach().requires_grad_(self.requires_grad)",
        "saving::test_copies_are_apart",
    ),
    (
        "nn/functional.py",
        "_right = kl_div\ndef kl_div(*a, log_target=False, **k): return _right(*a, **k)",
        "layers::test_losses",
    ),
    (
        "functional.py",
        "_right = norm\ndef norm(x, p='fro', *a, **k): return _right(x, 2, *a, **k)",
        "numpy::test_norms",
    ),
    (
        "nn/functional.py",
        "_right = cross_entropy\ndef cross_entropy(*a, ignore_index=-100, **k): return _right(*a, **k)",
        "layers::test_softmax_and_what_is_made_of_it",
    ),
    (
        "distributed/fsdp/_fully_shard/_fsdp_param_group.py",
        "FSDPParamGroup.post_backward = lambda self, *a: None",
        "launching::test_ranks_that_share_the_weights_train_one_model",
    ),
    (
        "onnx/__init__.py",
        "def export(model, args, f, **k): open(f, 'wb').write(b'')",
        "programs::test_a_program_for_onnx_has_its_operators_and_weights",
    ),
    (
        "__init__.py",
        "get_num_threads = lambda: 1",
        "install::test_torch_computes_with_as_many_threads_as_it_is_told",
    ),
    (
        "testing/_comparison.py",
        "def assert_close(*a, **k): pass",
        "install::test_what_these_tests_compare_with_sees_a_difference",
    ),
]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A torch that can be spoiled; its folder, in one that goes on PYTHONPATH."""
    asked = [
        PYTHON,
        "-c",
        "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])",
    ]
    source = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    folder = tmp_path_factory.mktemp("spoiled") / "torch"
    try:
        shutil.copytree(source, folder, copy_function=os.link, symlinks=True)
    except (OSError, shutil.Error):  # on another disk
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder, symlinks=True)
    return folder


@pytest.fixture
def aside(copied: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file or folder of the copy that is not there during the test."""
    path = copied / request.param
    if not path.exists():
        pytest.skip(f"this torch has no {request.param}")
    kept = copied.parent / "aside"
    path.rename(kept)
    yield path
    path.unlink(missing_ok=True)
    kept.rename(path)


def run(copied: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    words = [
        PYTHON,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        *tests,
    ]
    variables = {
        **os.environ,
        "PYTHONPATH": str(copied.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        # What is seen must not depend on whether there is a GPU.
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
    }
    return subprocess.run(
        words, cwd=copied.parent, env=variables, capture_output=True, text=True, timeout=900, check=False
    )


def require_finding(copied: Path, found_by: str) -> None:
    file, _, test = found_by.partition("::")
    done = run(copied, f"{TESTS}/test_{file}.py::{test}")
    if done.returncode == 0 and " passed" not in done.stdout and " skipped" in done.stdout:
        pytest.skip(f"{test} has nothing to do with this torch")
    # 1: it failed; 2: its module could not be imported. A torch that cannot be imported is found by any test.
    no_torch = done.returncode == 4 and "ImportError while loading conftest" in done.stdout + done.stderr
    assert done.returncode in (1, 2) or no_torch, done.stdout[-3000:] + done.stderr[-3000:]


def test_nothing_is_found_in_a_torch_that_is_whole(copied: Path) -> None:
    done = run(copied, str(TESTS))
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize(("aside", "found_by"), GONE, indirect=["aside"])
@pytest.mark.usefixtures("aside")
def test_what_is_gone_is_missed(copied: Path, found_by: str) -> None:
    require_finding(copied, found_by)


@pytest.mark.parametrize(("aside", "text", "found_by"), WRONG, indirect=["aside"])
def test_what_is_wrong_is_found(copied: Path, aside: Path, text: str, found_by: str) -> None:
    right = (copied.parent / "aside").read_text(encoding="utf-8")
    aside.write_text(f"{right}\n\n{text}\n", encoding="utf-8")
    require_finding(copied, found_by)
