"""`strict`: tensors say where they would be, moves copy, and what is right goes on working."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torchdevice
from torch import nn

GPU = torch.device("cuda:0")


@pytest.fixture(autouse=True)
def strictly() -> Iterator[None]:
    with torchdevice.redirected("cpu", count=2, strict=True):
        yield


def test_tensors_say_where_they_are() -> None:
    x = torch.ones(2, 3, device="cuda")
    for tensor in (
        x,
        x + x,
        x.T,
        x[0],
        x.data,
        x.detach(),
        x.new_zeros(2),
        torch.zeros_like(x),
        x.bool(),
        x @ x.T,
    ):
        assert (tensor.device, tensor.is_cuda, tensor.is_cpu, tensor.get_device()) == (GPU, True, False, 0)
    assert x.type() == "torch.cuda.FloatTensor"
    assert "device='cuda:0'" in repr(x)
    assert torch.tensor(x.tolist()).device == torch.device("cpu")
    assert torch.zeros_like(x, device="cpu").is_cpu
    assert torch.ones(1, device="cuda:1").get_device() == 1
    with torch.cuda.device(1):
        assert torch.ones(1, device="cuda").device.index == 1
    assert torch.device(1) == torch.device("cuda:1")


def test_moves_copy_where_devices_differ() -> None:
    x = torch.zeros(2)
    there = x.cuda()
    there.add_(1)
    assert x.sum() == 0
    snapshot = there.cpu()
    there.add_(1)
    assert snapshot.tolist() == [1, 1]
    assert there.to("cuda") is there
    assert there.to(torch.float64).is_cuda
    assert x.to(there).is_cuda
    assert x.type("torch.cuda.DoubleTensor").type() == "torch.cuda.DoubleTensor"
    assert there.numpy(force=True).tolist() == [2, 2]
    x.copy_(there)
    assert x.is_cpu


def test_numbers_of_the_cpu_may_join_and_indices_may_index() -> None:
    x = torch.ones(4, device="cuda")
    assert (x * torch.tensor(2.0)).is_cuda
    assert torch.where(x > 0, x, torch.tensor(0.0)).is_cuda
    assert x[torch.tensor([1, 2])].is_cuda
    x[torch.tensor([1])] = torch.tensor(3.0)
    x[0] = torch.ones(1)[0]
    x[:2] = torch.zeros(2)
    assert x.tolist() == [0, 0, 1, 1]


def train(device: str) -> list[float]:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(10, 8), block, nn.Flatten(), nn.BatchNorm1d(32), nn.Linear(32, 3)).to(
        device
    )
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(3):
        tokens = torch.randint(10, (5, 4)).to(device)
        loss = nn.functional.cross_entropy(model(tokens), torch.tensor([0, 1, 2, 0, 1], device=device))
        optimizer.zero_grad()
        loss.backward()
        assert next(model.parameters()).grad.device.type == device
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert all(value.device.type == device for value in model.state_dict().values())
    return losses


def test_training_gives_what_the_cpu_gives() -> None:
    assert train("cuda") == train("cpu")


def test_gradients_are_where_their_tensors_are() -> None:
    seen = []

    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            seen.append(gradient.device)
            return gradient * 2 * ctx.saved_tensors[0]

    x = torch.ones(2, device="cuda", requires_grad=True)
    y = x * 3
    y.register_hook(lambda gradient: seen.append(gradient.device))
    Squared.apply(y).sum().backward()
    assert seen == [GPU, GPU]
    assert x.grad.tolist() == [18, 18]
    assert torch.autograd.grad((x * 2).sum(), x)[0].is_cuda
    assert torch.func.grad(lambda a: (a * a).sum())(x.detach()).is_cuda
    assert torch.vmap(lambda a: a + 1)(x.detach()).is_cuda


def test_gradients_of_what_was_moved_are_on_the_way_back_too() -> None:
    """The gradients of what `cat` was given are views of one tensor."""
    first, second = (torch.ones(2, device=f"cuda:{index}", requires_grad=True) for index in range(2))
    hooked = []
    parts = [first * 2, second * 2]
    for part in parts:
        part.register_hook(lambda gradient: hooked.append(gradient.device))
    torch.cat([part.to("cuda:0") for part in parts]).mul(torch.ones(4, device="cuda")).sum().backward()
    assert sorted(map(str, hooked)) == ["cuda:0", "cuda:1"]
    assert (first.grad.device, second.grad.device) == (first.device, second.device)
    (second.grad + second).sum()


def test_copies_and_files() -> None:
    model = nn.Linear(2, 2).cuda()
    assert copy.deepcopy(model).weight.is_cuda
    assert pickle.loads(pickle.dumps(model.weight.detach())).is_cuda
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for location, device in ((None, "cuda"), ("cpu", "cpu"), ({"cuda:0": "cuda:1"}, "cuda")):
        file.seek(0)
        assert torch.load(file, map_location=location)["weight"].device.type == device
    torchdevice.disable()
    file.seek(0)
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        torch.load(file)
    torchdevice.enable("cpu", count=2, strict=True)


def test_threads_are_seen() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(1, device="cuda").device))
    thread.start()
    thread.join()
    assert found == [GPU]


def test_default_devices() -> None:
    with torch.device("cuda"):
        assert torch.ones(1).is_cuda
    torch.set_default_device("cuda:1")
    try:
        assert torch.ones(1).device == torch.get_default_device() == torch.device("cuda:1")
    finally:
        torch.set_default_device(None)
    assert torch.ones(1).is_cpu


def test_generators_have_a_device() -> None:
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert generator.device == GPU
    assert isinstance(generator, torch.Generator)
    drawn = torch.randn(3, device="cuda", generator=generator)
    assert drawn.tolist() == torch.randn(3, generator=torch.Generator().manual_seed(3)).tolist()


def test_what_would_compute_unseen_runs_as_it_is() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert torch.compile(double) is double
    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        assert torch.jit.script(double) is double


def test_what_is_exported_is_where_its_weights_and_inputs_are() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + torch.arange(2, device=x.device)

    x = torch.ones(1, 2, device="cuda")
    model = Positions().cuda()
    exported = torch.export.export(model, (x,))
    assert {node.kwargs["device"] for node in exported.graph.nodes if "device" in node.kwargs} == {x.device}
    assert exported.module()(x).is_cuda
    assert torch.equal(exported.module()(x), model(x))
    with pytest.raises(RuntimeError, match="same device"):
        exported.module()(x.cpu())
    assert torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)).module()(torch.ones(1, 2)).is_cpu


def test_operators_by_name_and_sparse_tensors() -> None:
    x = torch.ones(2, 2, device="cuda")
    assert torch.ops.aten.add.Tensor(x, x).is_cuda
    sparse = x.to_sparse()
    assert sparse.is_cuda
    assert (sparse @ x).is_cuda
    assert sparse.to("cpu").is_cpu


@pytest.mark.parametrize(
    "form",
    [
        {"device": "cuda:1"},
        {"device": GPU},
        {"device": 1},
        {"device": np.int64(1)},
        {"dtype": torch.float64, "device": "cuda"},
    ],
    ids=str,
)
def test_modules_are_sent_by_keyword(form) -> None:
    asked = torch.device(form["device"])
    weight = nn.Linear(2, 2).to(**form).weight
    assert (weight.device.type, weight.device.index) == ("cuda", asked.index or 0)
    assert weight.dtype == form.get("dtype", torch.float32)


def test_what_is_like_another_tensor_is_where_that_is() -> None:
    there = torch.ones(1, dtype=torch.float16, device="cuda:1")
    assert nn.Linear(2, 2).to(there).weight.device == there.device
    assert torch.ones(2).type_as(there).device == there.device
    assert there.type_as(torch.ones(2)).is_cpu
    with pytest.warns(UserWarning, match="copy construct"):
        assert there.new_tensor(torch.ones(2)).device == there.device
    assert there.new_tensor([1], device="cpu").is_cpu


def test_memory_of_arrays_is_not_the_gpus() -> None:
    array = np.zeros(2, dtype=np.float32)
    for make in (torch.as_tensor, torch.asarray):
        there = make(array, device="cuda")
        there.add_(1)
        assert (array == 0).all()
        assert make(array).add_(0).data_ptr() == array.ctypes.data
    assert torch.asarray(array, device="cuda", requires_grad=True).is_leaf
    assert torch.from_dlpack(there).is_cuda


def test_memory_that_is_pinned() -> None:
    for pinned in (torch.ones(2, pin_memory=True), torch.empty_like(torch.ones(2), pin_memory=True)):
        assert pinned.is_cpu
        assert pinned.cuda(non_blocking=True).is_cuda
    assert torch.ones(2).cuda().new_zeros(2, device="cpu", pin_memory=True).is_cpu


def test_pinned_memory_is_known() -> None:
    data = torch.ones(2)
    pinned = data.pin_memory()
    assert pinned.is_pinned()
    assert pinned.data_ptr() != data.data_ptr()
    assert pinned.pin_memory() is pinned
    for tensor in (pinned[:1], torch.zeros(2, pin_memory=True), torch.empty_like(data, pin_memory=True)):
        assert tensor.is_pinned()
    for tensor in (data, pinned + 1, pinned.clone(), pinned.cuda()):
        assert not tensor.is_pinned()


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_pin(workers: int) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    assert [(batch.is_pinned(), batch.sum().item()) for (batch,) in loader] == [(True, 6.0), (True, 22.0)]


@pytest.mark.parametrize("pin", [False, True])
def test_what_backward_needs_is_kept_on_the_cpu(pin: bool) -> None:
    x = torch.ones(3, device="cuda:1", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=pin):
        y = (x * x).exp() * x
    y.sum().backward()
    assert x.grad.device == torch.device("cuda:1")
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda a: kept.append(a.device) or a.cpu(), lambda a: a.cuda(1)
    ):
        z = x * x
    z.sum().backward()
    assert kept == [torch.device("cuda:1")] * 2


def test_results_on_several_devices_of_one_function() -> None:
    seen = []

    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.to("cuda:0", copy=True), x.to("cuda:1", copy=True)

        @staticmethod
        def backward(ctx, first, second):
            seen.extend([first.device, second.device])
            return first + second.to(first.device)

    x = torch.ones(2, device="cuda:0", requires_grad=True)
    first, second = Split.apply(x)
    (first.sum() + second.sum().to("cuda:0")).backward()
    assert seen == [torch.device("cuda:0"), torch.device("cuda:1")]
    assert x.grad.tolist() == [2, 2]


def test_sequences_that_are_packed() -> None:
    lengths = torch.tensor([3, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4).cuda(), lengths)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        output, _ = kind(4, 4).cuda()(packed)
        padded, found = nn.utils.rnn.pad_packed_sequence(output)
        assert padded.is_cuda
        assert found.is_cpu
    state = (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
    with pytest.raises(RuntimeError, match="found input tensor at cuda:0 and hidden tensor at cpu"):
        nn.LSTM(4, 4).cuda()(packed, state)


def test_losses_over_lengths_of_the_cpu() -> None:
    scores = torch.randn(5, 2, 4, device="cuda", requires_grad=True)
    targets, lengths = torch.ones(2, 2, dtype=torch.long), torch.tensor([2, 2])
    for labels in (targets, targets.cuda()):
        loss = nn.functional.ctc_loss(scores.log_softmax(2), labels, torch.tensor([5, 5]), lengths)
        assert loss.is_cuda
        loss.backward()
    assert scores.grad.is_cuda


def test_derivatives_forward(run) -> None:
    """torch has TorchScript compile some, the first time that one is asked for in a process."""
    code = (
        "import torch\n"
        "x = torch.ones(2, device='cuda')\n"
        "assert torch.func.jvp(lambda a: a * a, (x,), (x,))[1].is_cuda\n"
        "assert torch.func.hessian(lambda a: (a ** 3).sum())(x).is_cuda\n"
    )
    run(code, "-m", "torchdevice", "--strict", "SCRIPT")


def test_gradients_that_are_numbers_may_be_elsewhere() -> None:
    x = torch.ones(2, device="cuda", requires_grad=True)
    (x * 2).sum().backward(torch.tensor(1.0))
    assert x.grad.is_cuda
    (x * 2).backward(torch.ones(2, device="cuda"))
    assert x.grad.tolist() == [4, 4]


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_old_tensor_types() -> None:
    x = torch.cuda.FloatTensor([1, 2])
    assert (x.device, x.tolist(), x.type()) == (GPU, [1, 2], "torch.cuda.FloatTensor")
    assert isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x.cpu(), torch.cuda.FloatTensor)
    assert not isinstance(x, torch.cuda.DoubleTensor)
    assert torch.cuda.LongTensor(2, 3).shape == (2, 3)
    assert torch.ones(1).type(torch.cuda.DoubleTensor).type() == "torch.cuda.DoubleTensor"
    assert x.type(torch.DoubleTensor).is_cpu
    assert x.type(torch.float64).is_cuda
    for kind in ("torch.cuda.DoubleTensor", torch.cuda.DoubleTensor):
        torch.set_default_tensor_type(kind)
        try:
            assert torch.ones(1).type() == "torch.cuda.DoubleTensor"
        finally:
            torch.set_default_tensor_type("torch.FloatTensor")
        assert torch.ones(1).type() == "torch.FloatTensor"


def test_off_again_tensors_are_where_they_are() -> None:
    x = torch.ones(1, device="cuda")
    torchdevice.disable()
    assert x.is_cpu
    assert torch._C._len_torch_function_stack() == 0
    torchdevice.enable("cpu", count=2, strict=True)


def test_it_is_told_apart_from_redirect() -> None:
    assert torchdevice.status().strict
    with pytest.raises(RuntimeError, match="enabled already"):
        torchdevice.enable(strict=False)


def test_processes_and_scripts(run) -> None:
    code = (
        "import multiprocessing, torch\n"
        "def use(): print(torch.ones(1, device='cuda').device)\n"
        "if __name__ == '__main__':\n"
        "    for way in ('spawn', 'fork'):\n"
        "        child = multiprocessing.get_context(way).Process(target=use)\n"
        "        child.start(); child.join(); assert child.exitcode == 0\n"
    )
    assert run(code, "-m", "torchdevice", "--strict", "SCRIPT").split() == ["cuda:0"] * 2


def test_a_test_suite(run, tmp_path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import torch\ndef test_it(): torch.ones(2, device='cuda') + torch.ones(2)\n"
    )
    plugin = ("-m", "pytest", "-p", "torchdevice.pytest_plugin", "-p", "no:cacheprovider")
    with pytest.raises(AssertionError, match="found at least two devices, cuda:0 and cpu!"):
        run("", *plugin, "--torchdevice-strict", "test_it.py")


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"foreach": False}])
def test_optimizers_of_parameters_on_two_devices(options) -> None:
    models = [torch.nn.Linear(2, 2).to(f"cuda:{index}") for index in range(2)]
    parameters = [parameter for model in models for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(parameters, **options)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(2):
        optimizer.zero_grad()
        middle = models[0](torch.ones(3, 2, device="cuda:0")).to("cuda:1")
        scaler.scale(models[1](middle).sum()).backward()
        scaler.unscale_(optimizer)
        total = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        assert total.device == torch.device("cuda:0")
        scaler.step(optimizer)
        scaler.update()
    for parameter in parameters:
        assert optimizer.state[parameter]["exp_avg"].device == parameter.device
