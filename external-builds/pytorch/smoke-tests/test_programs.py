"""A model as a program: traced by torch.fx, exported, scripted, quantized, profiled; and what reads it."""

import importlib.util
import io
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import fx, nn


class Model(nn.Module):
    """A little of each: a layer, a condition on a shape, a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)) + x.sum(dim=-1, keepdim=True)


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


X = torch.linspace(-1, 1, 8).view(2, 4)


def test_fx_traces_and_changes_a_program(model: Model) -> None:
    traced = fx.symbolic_trace(model)
    torch.testing.assert_close(traced(X), model(X))
    for node in traced.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.tanh
    traced.graph.lint()
    traced.recompile()
    torch.testing.assert_close(traced(X), torch.tanh(model.layer(X)) + X.sum(-1, keepdim=True))


def test_an_exported_program_computes_on_other_sizes_and_survives_its_file(
    model: Model, tmp_path: Path
) -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(model, (X,), dynamic_shapes={"x": {0: rows}})
    torch.export.save(program, tmp_path / "model.pt2")
    found = torch.export.load(tmp_path / "model.pt2").module()
    other = torch.linspace(-3, 3, 20).view(5, 4)
    torch.testing.assert_close(found(other), model(other))


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message of Protocol Buffers that have a length, by number; of others, no bytes.

    https://protobuf.dev/programming-guides/encoding
    """
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        size = {0: 0, 1: 8, 5: 4}.get(key & 7, -1)
        if key & 7 == 0:
            number()
        size = number() if size < 0 else size
        yield key >> 3, data[at : at + size] if key & 7 == 2 else b""
        at += size


@pytest.fixture
def onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, which torch does not require, or what the exporter asks it: the functions of a model."""
    if importlib.util.find_spec("onnx") is None:
        model = SimpleNamespace(graph=SimpleNamespace(node=[]))
        stand_in = SimpleNamespace(load_model_from_string=lambda _data: model)
        monkeypatch.setitem(sys.modules, "onnx", stand_in)  # type: ignore[arg-type]


@pytest.mark.usefixtures("onnx")
def test_a_program_for_onnx_has_its_operators_and_weights(model: Model, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the newer exporter needs packages that torch does not require
        torch.onnx.export(model, (X,), str(tmp_path / "model.onnx"), dynamo=False)
    # onnx.proto: ModelProto.graph, GraphProto.node and .initializer, NodeProto.op_type, TensorProto.raw_data
    (graph,) = (value for key, value in fields((tmp_path / "model.onnx").read_bytes()) if key == 7)
    nodes = [dict(fields(value)) for key, value in fields(graph) if key == 1]
    assert [node[4] for node in nodes if node[4] != b"Constant"] == [b"Gemm", b"Relu", b"ReduceSum", b"Add"]
    weights = {dict(fields(value)).get(9) for key, value in fields(graph) if key == 5}
    layer = model.layer
    assert {bytes(x.detach().numpy()) for x in (layer.weight, layer.bias)} <= weights


def test_scripted_and_traced_programs_survive_their_file(model: Model) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer lines advise torch.export, and still have to read these
        made = [torch.jit.script(model), torch.jit.trace(model, X)]
        for program in made:
            buffer = io.BytesIO()
            torch.jit.save(program, buffer)
            buffer.seek(0)
            torch.testing.assert_close(torch.jit.load(buffer)(X), model(X))


def test_a_quantized_layer_is_near_the_whole_one(model: Model) -> None:
    quantization = getattr(torch.ao, "quantization", None)  # later lines leave it to torchao
    if not hasattr(quantization, "quantize_dynamic"):
        pytest.skip("this torch does not quantize by itself")
    if not [engine for engine in torch.backends.quantized.supported_engines if engine != "none"]:
        pytest.skip("this torch is built without quantized kernels")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    torch.testing.assert_close(quantized(X), model(X), rtol=0, atol=0.05)
    assert "Dynamic" in type(quantized.layer).__name__ or "dynamic" in type(quantized.layer).__module__


def test_the_profiler_names_what_ran(model: Model, tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        model(X)
    names = {event.key for event in seen.key_averages()}
    assert {"aten::linear", "aten::relu", "aten::sum"} <= names
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    assert "aten::linear" in (tmp_path / "trace.json").read_text(encoding="utf-8")


def test_an_operator_of_ones_own_is_one_of_torchs(device: torch.device) -> None:
    @torch.library.custom_op("cairn_smoke::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    torch.library.register_autograd("cairn_smoke::twice", lambda _context, gradient: gradient * 2)
    x = torch.ones(3, device=device, requires_grad=True)
    torch.ops.cairn_smoke.twice(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    torch.library.opcheck(twice, (torch.ones(3, device=device),), test_utils="test_schema")


def test_a_tensor_without_memory_has_a_shape() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Flatten(), nn.Linear(64 * 222 * 222, 1000))
    assert model(torch.empty(8, 3, 224, 224, device="meta")).shape == (8, 1000)


def test_nested_and_masked_tensors() -> None:
    rows = [torch.ones(2), torch.ones(5)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    assert [row.sum().item() for row in nested.unbind()] == [2, 5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prototype, it says of itself
        masked = torch.masked.masked_tensor(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([True, False, True]))
        assert masked.sum().item() == 5
