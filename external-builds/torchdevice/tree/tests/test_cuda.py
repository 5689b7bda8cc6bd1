"""torch.cuda answers as a script expects, and truthfully where it tells of something."""

from __future__ import annotations

import contextlib
import copy
import inspect
import threading
import time
from typing import Any

import pytest
import torch
import torchdevice
from torch import nn
from torchdevice import RefusedError, matrix

pytestmark = pytest.mark.usefixtures("enabled")


def test_the_machine() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.is_initialized()
    assert torch.cuda.device_count() == 2
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = False
    properties = torch.cuda.get_device_properties("cuda:1")
    assert "emulated on cpu" in properties.name
    assert (properties.major, properties.minor) == torch.cuda.get_device_capability()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == properties.total_memory


def test_the_current_device_is_each_threads_own() -> None:
    torch.cuda.set_device(1)
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0
        with torch.cuda.device(None), torch.cuda.device(-1), torch.cuda.device_of(torch.ones(1)):
            assert torch.cuda.current_device() == 0
    assert torch.cuda.current_device() == 1
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]
    torch.cuda.set_device("cuda:0")
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("device", [2, "cuda:7"])
def test_a_device_that_is_not_there(device: Any) -> None:
    for call in (
        torch.cuda.set_device,
        torch.cuda.get_device_name,
        torch.cuda.synchronize,
        torch.cuda.Stream,
    ):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            call(device)


def test_streams_and_events() -> None:
    least, greatest = torch.cuda.Stream.priority_range()
    assert least >= greatest
    stream = torch.cuda.Stream(priority=-1)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        time.sleep(0.02)
    end.record(stream)
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_event(end)
    torch.cuda.synchronize()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert 20 <= start.elapsed_time(end) < 2000
    assert stream.query()
    assert end.query()
    torch.ones(1).cuda().record_stream(stream)
    with pytest.raises(ValueError, match="enable_timing"):
        torch.cuda.Event().elapsed_time(end)


def test_random_numbers_can_be_had_again() -> None:
    torch.cuda.manual_seed_all(7)
    state = torch.cuda.get_rng_state()
    first = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="cuda"), first)
    with torch.random.fork_rng(devices=[0, 1], device_type="cuda"):
        drawn = torch.rand(3, device="cuda")
    assert torch.equal(torch.rand(3, device="cuda"), drawn)
    torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    generator = torch.cuda.default_generators[1]
    assert generator.initial_seed() == torch.cuda.initial_seed() == 7
    local = torch.Generator("cuda").manual_seed(3)
    same = torch.Generator("cpu").manual_seed(3)
    assert torch.equal(torch.rand(2, generator=local, device="cuda"), torch.rand(2, generator=same))


def test_memory_is_that_of_live_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.cuda.memory_allocated()
    kept = torch.zeros(1 << 20, device="cuda")
    view = kept[:10]
    assert torch.cuda.memory_allocated() - before == 4 << 20
    del kept
    assert torch.cuda.memory_allocated() - before == 4 << 20  # the view holds all of it
    del view
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() >= before + (4 << 20)
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == before
    assert "not tracked" in torch.cuda.memory_summary()
    monkeypatch.setenv("TORCHDEVICE_MEMORY", str(1 << 30))
    assert torch.cuda.mem_get_info() == ((1 << 30) - before, 1 << 30)


def test_mixed_precision() -> None:
    model, x = nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
    before = model.weight.detach().clone()
    with torch.autocast("cuda"):
        assert torch.is_autocast_enabled()
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == torch.get_autocast_gpu_dtype() == torch.float16
        y = model(x)
        assert y.dtype == torch.float16
    assert not torch.is_autocast_enabled()
    scaler.scale(y.float().sum()).backward()
    scaler.unscale_(optimizer)
    assert torch.allclose(model.weight.grad, torch.full((4, 4), 2.0))
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model.weight, before)
    with torch.amp.autocast("cuda", dtype=torch.bfloat16):
        assert model(x).dtype == torch.bfloat16
    with torch.autocast("cuda", enabled=False):
        assert model(x).dtype == torch.float32


def test_custom_functions_under_autocast() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, x: Any) -> Any:
            assert not torch.is_autocast_enabled("cuda")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    x = torch.ones(2, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        y = Double.apply(x)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad is not None


def test_checkpointing_draws_the_same_numbers_again() -> None:
    from torch.utils.checkpoint import checkpoint

    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).cuda()
    x = torch.ones(2, 8, device="cuda", requires_grad=True)
    torch.cuda.manual_seed(1)
    plain = layer(x).sum()
    (expected,) = torch.autograd.grad(plain, x)
    torch.cuda.manual_seed(1)
    checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert torch.equal(x.grad, expected)


def test_loaders_that_pin() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=0)
    assert [batch[0].cuda(non_blocking=True).sum().item() for batch in loader] == [6.0, 22.0]


def parallel_step(model: nn.Module, data: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    output = model(data)
    output.square().mean().backward()
    return output, [parameter.grad.cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("strict", [False, True], ids=["redirect", "strict"])
def test_data_parallel(strict: bool) -> None:
    """Input from the CPU is divided among the devices, and the results and gradients are those of one."""
    while not torchdevice.disable():
        pass
    sizes: list[Any] = []
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=1.0), nn.Linear(3, 2)).eval()
    data = torch.randn(6, 4)
    expected, gradients = parallel_step(copy.deepcopy(model), data)
    with torchdevice.redirected("cpu", count=2, strict=strict):
        there = nn.DataParallel(copy.deepcopy(model).cuda())
        hook = there.module[0].register_forward_hook(lambda _m, given, _o: sizes.append(len(given[0])))
        output, found = parallel_step(there, data)
        assert output.device == torch.device("cuda:0")
        assert sorted(sizes) == [3, 3]
        torch.testing.assert_close((output.cpu(), found), (expected, gradients))
        hook.remove()
        there.train()(data)  # what the replica on the first device has seen stays
        first = there.module[0](data[:3].cuda())
        torch.testing.assert_close(there.module[1].running_mean, first.mean(0))
        losses = nn.DataParallel(Loss())
        with pytest.warns(UserWarning, match="will instead unsqueeze"):
            assert losses(data).shape == (2,)
        one = nn.parallel.data_parallel(model.cuda(), data, device_ids=[0])
        torch.testing.assert_close(one.cpu(), expected)
        assert nn.parallel.comm.broadcast(data, ["cuda:0", "cuda:1"])[1].device == torch.device("cuda:1")
        assert nn.parallel.comm.gather([data.cuda(0), data.cuda(1)], destination="cpu").is_cpu
        total = nn.parallel.comm.reduce_add_coalesced([[data.cuda(0)], [data.cuda(1)]], 1)
        torch.testing.assert_close(total[0].cpu(), data * 2)
        with pytest.raises(RuntimeError) if strict else contextlib.nullcontext():  # as torch says
            nn.DataParallel(copy.deepcopy(model).cpu())(data)


class Loss(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("old", [True, False])
def test_profilers_time_what_runs(old: bool, capfd: pytest.CaptureFixture[str]) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    profiler = (
        torch.autograd.profiler.profile(use_device="cuda")
        if old
        else torch.profiler.profile(activities=activities)
    )
    with profiler as profile:
        torch.ones(8, device="cuda").cos().sum()
    assert "aten::cos" in profile.key_averages().table(sort_by="cpu_time_total")
    assert "Failed to record CUDA event" not in capfd.readouterr().err


def test_a_profiler_of_cuda_alone_shows_what_runs() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.ones(8, device="cuda").cos().sum()
    assert "aten::cos" in profile.key_averages().table()


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("kind", ["Adadelta", "Adam", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"])
def test_optimizers_that_a_graph_could_capture(kind: str, foreach: bool) -> None:
    steps = []
    for capturable in (True, False):
        weight = torch.ones(2, device="cuda", requires_grad=True)
        optimizer = getattr(torch.optim, kind)([weight], capturable=capturable, foreach=foreach)
        weight.square().sum().backward()
        optimizer.step()
        steps.append(weight.detach())
    torch.testing.assert_close(*steps)


def test_ordinals_as_libraries_ask_for_them() -> None:
    ask = torch.cuda._utils._get_device_index
    assert (ask(1), ask("cuda:1"), ask(torch.cuda.device(1))) == (1, 1, 1)
    assert ask(None, optional=True) == ask(torch.device("cuda"), optional=True) == 0
    assert ask(torch.device("cpu"), allow_cpu=True) == -1
    with pytest.raises(ValueError, match="specified index or an integer"):
        ask(None)


def test_graphed_callables_are_called() -> None:
    layer = nn.Linear(2, 2).cuda()
    x = torch.ones(1, 2, device="cuda")
    assert torch.equal(torch.cuda.make_graphed_callables(layer, (x,))(x), layer(x))


def test_source_for_a_gpu_is_refused_when_it_is_called() -> None:
    function = torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x; }")
    with pytest.raises(RefusedError, match="compiled"):
        function(torch.ones(1))


def refused() -> list[matrix.Entry]:
    return [entry for entry in matrix.entries() if entry.status is matrix.Status.REFUSED]


@pytest.mark.parametrize("entry", refused(), ids=lambda entry: entry.path)
def test_refusals_say_why_and_what_instead(entry: matrix.Entry) -> None:
    function = matrix.find(entry.path)
    if function is None:
        pytest.skip("not in this torch")
    with pytest.raises(RefusedError, match=entry.name) as caught:
        function()
    assert isinstance(caught.value, RuntimeError)
    assert entry.note in str(caught.value)


def test_replacements_have_the_parameters_of_what_they_replace() -> None:
    for entry in matrix.entries():
        original = getattr(matrix.find(entry.path), "__wrapped__", None)
        if entry.status is not matrix.Status.EMULATED or not inspect.isfunction(original):
            continue
        native = [p.name for p in inspect.signature(original).parameters.values()]
        ours = [p.name for p in inspect.signature(entry.code).parameters.values()]
        assert native == ours, entry.path


def test_groups_are_asked_whether_they_are_nccls(enabled) -> None:
    """torch does, where NCCL is available, and the class is none of a build without it."""
    from torch import distributed

    assert distributed.is_nccl_available()
    assert not isinstance(object(), distributed.distributed_c10d.ProcessGroupNCCL)
    for made in (distributed.ProcessGroupNCCL, distributed.ProcessGroupNCCL.Options):
        with pytest.raises(torchdevice.RefusedError, match="ProcessGroupNCCL"):
            made()
