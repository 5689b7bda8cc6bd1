"""Layers, losses and activations of torch.nn, each against its formula, computed without PyTorch."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as its users call it

ROWS = [[0.5, -1.0, 2.0, 3.5], [1.5, 0.25, -0.75, 0.0], [4.0, -2.0, 0.1, 0.3]]
POINTS = [-4.0, -1.5, -0.3, 0.0, 0.2, 1.0, 2.5, 7.0]


def close(found: torch.Tensor, expected: object, tolerance: float = 1e-5) -> None:
    wanted = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found.detach().cpu().double(), wanted, rtol=tolerance, atol=tolerance)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(x) for x in row)
    return [math.exp(x) / total for x in row]


def normalized(row: list[float], epsilon: float = 1e-5) -> list[float]:
    mean = sum(row) / len(row)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + epsilon)
    return [(x - mean) / deviation for x in row]


def transposed(rows: list[list[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*rows, strict=True)]


ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "relu6": lambda x: min(max(x, 0.0), 6.0),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "selu": lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x)),
    "gelu": lambda x: x / 2 * (1 + math.erf(x / math.sqrt(2))),
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "softsign": lambda x: x / (1 + abs(x)),
    "logsigmoid": lambda x: -math.log1p(math.exp(-x)),
    "hardtanh": lambda x: min(max(x, -1.0), 1.0),
    "hardswish": lambda x: x * min(max(x + 3, 0.0), 6.0) / 6,
    "tanhshrink": lambda x: x - math.tanh(x),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(device: torch.device, name: str) -> None:
    x = torch.tensor(POINTS, device=device)
    close(getattr(F, name)(x), [ACTIVATIONS[name](point) for point in POINTS])


def test_softmax_and_what_is_made_of_it(device: torch.device) -> None:
    x, chances = torch.tensor(ROWS, device=device), [softmax(row) for row in ROWS]
    close(F.softmax(x, dim=-1), chances)
    close(F.log_softmax(x, dim=-1), [[math.log(p) for p in row] for row in chances])
    wanted = torch.tensor([3, 0, 1], device=device)
    losses = [-math.log(chances[row][column]) for row, column in enumerate([3, 0, 1])]
    close(F.cross_entropy(x, wanted, reduction="none"), losses)
    close(nn.CrossEntropyLoss()(x, wanted), sum(losses) / 3)
    ignored = torch.tensor([3, -100, 1], device=device)
    close(F.cross_entropy(x, ignored), (losses[0] + losses[2]) / 2)
    close(F.cross_entropy(x, wanted, ignore_index=0, reduction="none"), [losses[0], 0.0, losses[2]])
    close(nn.CrossEntropyLoss(ignore_index=3)(x, wanted), (losses[1] + losses[2]) / 2)
    close(F.nll_loss(F.log_softmax(x, dim=-1), wanted, ignore_index=1), (losses[0] + losses[1]) / 2)
    smooth = [sum(-math.log(p) for p in row) / 4 for row in chances]
    expected = [0.9 * loss + 0.1 * all_ for loss, all_ in zip(losses, smooth, strict=True)]
    close(F.cross_entropy(x, wanted, label_smoothing=0.1, reduction="none"), expected)
    close(F.nll_loss(F.log_softmax(x, dim=-1), wanted, reduction="sum"), sum(losses))


def test_losses(device: torch.device) -> None:
    found, wanted = [0.2, 3.0, -1.0], [0.0, 1.0, 1.0]
    x, y = torch.tensor(found, device=device), torch.tensor(wanted, device=device)
    gaps = [abs(a - b) for a, b in zip(found, wanted, strict=True)]
    close(F.mse_loss(x, y), sum(gap**2 for gap in gaps) / 3)
    close(F.l1_loss(x, y), sum(gaps) / 3)
    huber = [gap**2 / 2 if gap < 1 else gap - 0.5 for gap in gaps]
    close(F.smooth_l1_loss(x, y, reduction="none"), huber)
    close(F.huber_loss(x, y, reduction="none"), huber)
    entropies = [
        -math.log(sigmoid(a)) if b else -math.log(1 - sigmoid(a)) for a, b in zip(found, wanted, strict=True)
    ]
    close(F.binary_cross_entropy_with_logits(x, y, reduction="none"), entropies)
    close(F.binary_cross_entropy(torch.sigmoid(x), y), sum(entropies) / 3)
    p, q = softmax(ROWS[0]), softmax(ROWS[1])
    expected = sum(b * (math.log(b) - math.log(a)) for a, b in zip(p, q, strict=True))
    logarithms = torch.tensor(p, device=device).log()[None]
    close(F.kl_div(logarithms, torch.tensor(q, device=device)[None], reduction="batchmean"), expected)
    wanted_logarithms = torch.tensor(q, device=device).log()[None]
    close(F.kl_div(logarithms, wanted_logarithms, reduction="batchmean", log_target=True), expected)
    close(nn.KLDivLoss(reduction="sum", log_target=True)(logarithms, wanted_logarithms), expected)
    lengths = math.sqrt(sum(a * a for a in found)), math.sqrt(sum(b * b for b in wanted))
    cosine = sum(a * b for a, b in zip(found, wanted, strict=True)) / math.prod(lengths)
    close(F.cosine_similarity(x, y, dim=0), cosine)


def test_layer_norm(device: torch.device) -> None:
    x, expected = torch.tensor(ROWS, device=device), [normalized(row) for row in ROWS]
    close(F.layer_norm(x, (4,)), expected)
    layer = nn.LayerNorm(4).to(device)
    close(layer(x), expected)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        layer.bias.fill_(0.25)
    close(layer(x), [[(i + 1) * value + 0.25 for i, value in enumerate(row)] for row in expected])


def test_root_mean_square_norm(device: torch.device) -> None:
    expected = [[x / math.sqrt(sum(y * y for y in row) / 4 + 1e-6) for x in row] for row in ROWS]
    close(F.rms_norm(torch.tensor(ROWS, device=device), (4,), eps=1e-6), expected)


def test_group_and_instance_norm(device: torch.device) -> None:
    x = torch.tensor(ROWS, device=device)
    # Two groups of two channels, each of which has one value.
    groups = [normalized(row[:2]) + normalized(row[2:]) for row in ROWS]
    close(F.group_norm(x, 2), groups)
    close(nn.GroupNorm(2, 4).to(device)(x), groups)
    close(F.instance_norm(x[None]), [[normalized(row) for row in ROWS]])


def test_batch_norm_learns_while_it_trains_and_then_keeps_what_it_learnt(device: torch.device) -> None:
    layer, x = nn.BatchNorm1d(4).to(device), torch.tensor(ROWS, device=device)
    close(layer(x), transposed([normalized(column) for column in transposed(ROWS)]))
    means = [sum(column) / 3 for column in transposed(ROWS)]
    variances = [
        sum((value - mean) ** 2 for value in column) / 2
        for column, mean in zip(transposed(ROWS), means, strict=True)
    ]
    close(layer.running_mean, [0.1 * mean for mean in means])
    close(layer.running_var, [0.9 + 0.1 * variance for variance in variances])
    expected = [
        [
            (value - 0.1 * mean) / math.sqrt(0.9 + 0.1 * variance + 1e-5)
            for value, mean, variance in zip(row, means, variances, strict=True)
        ]
        for row in ROWS
    ]
    layer.eval()
    close(layer(x), expected)
    assert int(layer.num_batches_tracked) == 1


def test_pooling_padding_and_resizing(device: torch.device) -> None:
    image = [[float(10 * row + column) for column in range(4)] for row in range(4)]
    x = torch.tensor(image, device=device)[None, None]
    close(F.max_pool2d(x, 2)[0, 0], [[11, 13], [31, 33]])
    close(F.avg_pool2d(x, 2)[0, 0], [[5.5, 7.5], [25.5, 27.5]])
    close(F.adaptive_avg_pool2d(x, 1).flatten(), [16.5])
    close(F.max_pool2d(x, 3, stride=2, padding=1)[0, 0], [[11, 13], [31, 33]])
    close(F.pad(x, (1, 0, 0, 1), value=-1.0)[0, 0], [[-1, *row] for row in image] + [[-1] * 5])
    close(F.pad(x[0], (1, 1), mode="reflect")[0, 0], [1, 0, 1, 2, 3, 2])
    close(F.interpolate(x, scale_factor=2)[0, 0, 0], [0, 0, 1, 1, 2, 2, 3, 3])
    # What is linear in both directions stays that, except for the half of a pixel at the edges.
    larger = F.interpolate(x, size=(8, 8), mode="bilinear", align_corners=False)[0, 0]
    close(larger[1:7, 1], [2.5 + 0.25, 7.75, 12.75, 17.75, 22.75, 27.75])
    grid = F.affine_grid(torch.eye(2, 3, device=device)[None], [1, 1, 4, 4], align_corners=False)
    close(F.grid_sample(x, grid, align_corners=False)[0, 0], image, 1e-4)


def test_embeddings(device: torch.device) -> None:
    table = nn.Embedding.from_pretrained(torch.tensor(ROWS), freeze=False).to(device)
    where = torch.tensor([2, 0, 2], device=device)
    found = table(where)
    close(found, [ROWS[2], ROWS[0], ROWS[2]])
    found.sum().backward()
    close(table.weight.grad, [[1.0] * 4, [0.0] * 4, [2.0] * 4])
    bag = nn.EmbeddingBag.from_pretrained(torch.tensor(ROWS), mode="mean").to(device)
    expected = [(a + b) / 2 for a, b in zip(ROWS[2], ROWS[0], strict=True)]
    close(bag(where[:2], torch.tensor([0], device=device)), [expected])
    close(F.one_hot(where, 3), [[0, 0, 1], [1, 0, 0], [0, 0, 1]])


def test_an_embedding_of_padding_stays_as_it_is(device: torch.device) -> None:
    fresh = nn.Embedding(3, 4, padding_idx=1)
    assert torch.equal(fresh.weight[1], torch.zeros(4))
    table = nn.Embedding.from_pretrained(torch.tensor(ROWS), freeze=False, padding_idx=0).to(device)
    where = torch.tensor([2, 0, 0, 1], device=device)
    found = table(where)
    close(found, [ROWS[2], ROWS[0], ROWS[0], ROWS[1]])
    found.sum().backward()
    close(table.weight.grad, [[0.0] * 4, [1.0] * 4, [1.0] * 4])
    bag = nn.EmbeddingBag.from_pretrained(torch.tensor(ROWS), mode="mean", padding_idx=0).to(device)
    expected = [(a + b) / 2 for a, b in zip(ROWS[2], ROWS[1], strict=True)]
    close(bag(where, torch.tensor([0], device=device)), [expected])


def test_dropout_leaves_out_its_share_and_the_mean_alone(device: torch.device) -> None:
    torch.manual_seed(0)
    layer, x = nn.Dropout(0.25), torch.ones(100_000, device=device)
    found = layer(x)
    assert {round(value, 5) for value in found.unique().tolist()} == {0.0, 1.33333}
    assert abs((found == 0).double().mean().item() - 0.25) < 0.01
    layer.eval()
    assert torch.equal(layer(x), x)


def applied(weights: torch.Tensor, bias: torch.Tensor, x: list[float]) -> list[float]:
    rows = zip(weights.tolist(), bias.tolist(), strict=True)
    return [sum(w * value for w, value in zip(row, x, strict=True)) + b for row, b in rows]


def added(*vectors: list[float]) -> list[float]:
    return [sum(values) for values in zip(*vectors, strict=True)]


def test_recurrent_layers_compute_their_gates(device: torch.device) -> None:
    torch.manual_seed(0)
    long, gated = nn.LSTM(4, 2), nn.GRU(4, 2)
    h, c, states = [0.0, 0.0], [0.0, 0.0], []
    for row in ROWS:
        gates = added(
            applied(long.weight_ih_l0, long.bias_ih_l0, row), applied(long.weight_hh_l0, long.bias_hh_l0, h)
        )
        for unit in range(2):
            enter, forget, new, out = gates[unit::2]  # in this order, two units of each
            c[unit] = sigmoid(forget) * c[unit] + sigmoid(enter) * math.tanh(new)
            h[unit] = sigmoid(out) * math.tanh(c[unit])
        states.append(list(h))
    found, (last, cell) = long.to(device)(torch.tensor(ROWS, device=device)[:, None])
    near = 1e-5 if device.type == "cpu" else 1e-3  # a GPU may compute products in fewer bits
    close(found[:, 0], states, near)
    close(last[0, 0], h, near)
    close(cell[0, 0], c, near)
    h, states = [0.0, 0.0], []
    for row in ROWS:
        by_input = applied(gated.weight_ih_l0, gated.bias_ih_l0, row)
        by_state = applied(gated.weight_hh_l0, gated.bias_hh_l0, h)
        reset = [sigmoid(by_input[i] + by_state[i]) for i in range(2)]
        keep = [sigmoid(by_input[i] + by_state[i]) for i in range(2, 4)]
        new = [math.tanh(by_input[4 + i] + reset[i] * by_state[4 + i]) for i in range(2)]
        h = [(1 - keep[i]) * new[i] + keep[i] * h[i] for i in range(2)]
        states.append(h)
    found, _ = gated.to(device)(torch.tensor(ROWS, device=device)[:, None])
    close(found[:, 0], states, near)


def test_attention_with_heads_and_a_mask(device: torch.device) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    queries, keys, values = (
        [applied(layer.in_proj_weight[part], layer.in_proj_bias[part], row) for row in ROWS]
        for part in (slice(0, 4), slice(4, 8), slice(8, 12))
    )
    expected = []
    for place, query in enumerate(queries):
        joined: list[float] = []
        for head in (slice(0, 2), slice(2, 4)):
            # A row sees itself and those before it.
            scores = [
                sum(a * b for a, b in zip(query[head], key[head], strict=True)) / math.sqrt(2)
                for key in keys[: place + 1]
            ]
            chances = softmax(scores)
            seen = transposed([value[head] for value in values[: place + 1]])
            joined += [sum(p * v for p, v in zip(chances, column, strict=True)) for column in seen]
        expected.append(applied(layer.out_proj.weight, layer.out_proj.bias, joined))
    x, mask = torch.tensor(ROWS, device=device)[None], torch.ones(3, 3, dtype=torch.bool, device=device)
    found, _ = layer.to(device)(x, x, x, attn_mask=mask.triu(1))
    close(found[0], expected, 1e-4)


def test_an_encoder_layer_is_what_it_is_made_of(device: torch.device) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).to(device)
    x = torch.tensor(ROWS, device=device)[None]
    attended = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False)[0])
    expected = layer.norm2(attended + layer.linear2(F.relu(layer.linear1(attended))))
    close(layer(x), expected.tolist(), 1e-4)
    with torch.inference_mode():  # a kernel of its own
        close(layer.eval()(x), expected.tolist(), 1e-4)


def test_convolutions_with_strides_groups_and_backwards(device: torch.device) -> None:
    signal, kernel = [1.0, 2.0, -1.0, 0.5, 3.0, -2.0], [[0.5, -1.0, 2.0], [1.0, 1.0, 1.0]]
    x, weight = torch.tensor(signal, device=device), torch.tensor(kernel, device=device)[:, None]
    padded = [0.0, 0.0, *signal, 0.0, 0.0]
    expected = [
        [sum(row[tap] * padded[at + 2 * tap] for tap in range(3)) for at in range(0, 6, 2)] for row in kernel
    ]
    close(F.conv1d(x[None, None], weight, stride=2, padding=2, dilation=2)[0], expected)
    each = [
        [sum(row[t] * ([0.0, *signal, 0.0])[at + t] for t in range(3)) for at in range(6)] for row in kernel
    ]
    close(F.conv1d(torch.stack([x, x])[None], weight, padding=1, groups=2)[0], each)
    spread = [0.0] * 13
    for at, value in enumerate(signal):
        for tap, factor in enumerate(kernel[0]):
            spread[2 * at + tap] += value * factor
    close(F.conv_transpose1d(x[None, None], weight[:1], stride=2)[0, 0], spread)
    # One tap of padding comes off each end, and one more place is added behind the last.
    layer = nn.ConvTranspose1d(1, 1, 3, stride=2, padding=1, output_padding=1, bias=False).to(device)
    with torch.no_grad():
        layer.weight.copy_(weight[:1])
    close(layer(x[None, None])[0, 0], [*spread[1:], 0.0][:12])
    close(layer(x[None, None], output_size=[11])[0, 0], spread[1:12])
    layer = nn.Conv2d(1, 1, 3, padding="same", bias=False).to(device)
    nn.init.dirac_(layer.weight)
    image = torch.tensor(ROWS, device=device)[None, None]
    assert torch.equal(layer(image), image)


def test_initial_values(device: torch.device) -> None:
    torch.manual_seed(0)
    weight = torch.empty(200, 100, device=device)
    for fill, bound in (
        (nn.init.xavier_uniform_, math.sqrt(6 / 300)),
        (nn.init.kaiming_uniform_, math.sqrt(6 / 100)),
    ):
        found = fill(weight).abs().max().item()
        assert 0.99 * bound < found <= bound, fill.__name__
    assert abs(nn.init.normal_(weight, 1.0, 2.0).std().item() - 2) < 0.05
    square = nn.init.orthogonal_(torch.empty(8, 8, device=device))
    close(square @ square.T, torch.eye(8).tolist())
    layer = nn.Linear(100, 200)
    assert layer.weight.abs().max().item() <= 0.1
    assert layer.weight.abs().max().item() > 0.09


def test_gradients_are_clipped_to_their_norm(device: torch.device) -> None:
    parts = [nn.Parameter(torch.zeros(2, device=device)) for _ in range(2)]
    for part, gradient in zip(parts, ([3.0, 0.0], [0.0, 4.0]), strict=True):
        part.grad = torch.tensor(gradient, device=device)
    close(nn.utils.clip_grad_norm_(parts, 1.0), 5.0)
    close(torch.cat([part.grad for part in parts if part.grad is not None]), [0.6, 0, 0, 0.8])
    nn.utils.clip_grad_value_(parts, 0.7)
    close(torch.cat([part.grad for part in parts if part.grad is not None]), [0.6, 0, 0, 0.7])


def test_modules_know_their_parts_and_call_their_hooks() -> None:
    model = nn.Sequential(
        nn.Linear(2, 3), nn.ModuleList([nn.BatchNorm1d(3)]), nn.ParameterDict({"a": nn.Parameter()})
    )
    names = {"0.weight", "0.bias", "1.0.weight", "1.0.bias", "2.a"}
    buffers = {"1.0.running_mean", "1.0.running_var", "1.0.num_batches_tracked"}
    assert {name for name, _ in model.named_parameters()} == names
    assert model.state_dict().keys() == names | buffers
    assert not any(part.training for part in model.eval().modules())
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({})
    seen: list[tuple[int, ...]] = []
    handle = model[0].register_forward_hook(lambda _layer, _given, made: seen.append(tuple(made.shape)))
    model[0](torch.zeros(5, 2))
    handle.remove()
    model[0](torch.zeros(5, 2))
    assert seen == [(5, 3)]
    assert {p.dtype for p in model.double().parameters()} == {torch.float64}


def test_a_weight_is_parametrized() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    with torch.no_grad():
        layer.parametrizations.weight.original0.fill_(2.0)
    close(layer.weight.norm(dim=1), [2.0] * 3)
    nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, nn.Parameter)
