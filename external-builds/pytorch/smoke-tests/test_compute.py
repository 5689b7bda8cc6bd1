"""Sample computations, each compared with a reference computed without PyTorch, or a known identity."""

import math

import pytest
import torch
from torch import nn


def lists(rows: int, columns: int, step: float) -> list[list[float]]:
    return [[math.sin(step * (row * columns + column)) for column in range(columns)] for row in range(rows)]


def multiplied(a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
    return [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a
    ]


def close(found: torch.Tensor, expected: object, tolerance: float = 1e-5) -> None:
    wanted = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found.detach().cpu().double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 5, 2), (17, 33, 9)])
def test_matrix_product(device: torch.device, size: tuple[int, int, int]) -> None:
    rows, inner, columns = size
    a, b = lists(rows, inner, 0.7), lists(inner, columns, 1.3)
    close(torch.tensor(a, device=device) @ torch.tensor(b, device=device), multiplied(a, b))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 2e-2), (torch.bfloat16, 1e-1), (torch.float64, 1e-12)]
)
def test_matrix_product_in_other_precisions(
    device: torch.device, dtype: torch.dtype, tolerance: float
) -> None:
    a, b = lists(16, 24, 0.7), lists(24, 8, 1.3)
    found = torch.tensor(a, device=device, dtype=dtype) @ torch.tensor(b, device=device, dtype=dtype)
    assert found.dtype == dtype
    close(found, multiplied(a, b), tolerance)


def test_a_large_product_is_right_everywhere(device: torch.device) -> None:
    # (row index) x (column index): every element of the product is known, and large tiles are used.
    size = 1024
    a = torch.arange(size, device=device, dtype=torch.float32).unsqueeze(1)
    found = a.expand(size, size) @ torch.full((size, size), 1 / size, device=device)
    close(found[:, 0], list(range(size)), 1e-3)
    close(found[:, -1], list(range(size)), 1e-3)


def test_reductions(device: torch.device) -> None:
    values = [float(i % 7 - 3) for i in range(10_001)]
    tensor = torch.tensor(values, device=device)
    assert tensor.sum().item() == sum(values)
    assert tensor.max().item() == max(values)
    assert tensor.argmin().item() == values.index(min(values))
    close(tensor.var(unbiased=False), sum(v * v for v in values) / 10_001 - (sum(values) / 10_001) ** 2)


def test_sorting_and_indexing(device: torch.device) -> None:
    values = [(i * 7919) % 10_007 for i in range(10_007)]
    found, order = torch.tensor(values, device=device).sort()
    assert found.tolist() == sorted(values)
    assert torch.tensor(values, device=device)[order].tolist() == sorted(values)


def test_convolution(device: torch.device) -> None:
    image, kernel = lists(6, 7, 0.9), lists(3, 2, 1.1)
    expected = [
        [
            sum(image[i + y][j + x] * kernel[y][x] for y in range(3) for x in range(2))
            for j in range(len(image[0]) - 1)
        ]
        for i in range(len(image) - 2)
    ]
    found = nn.functional.conv2d(
        torch.tensor(image, device=device)[None, None], torch.tensor(kernel, device=device)[None, None]
    )
    close(found[0, 0], expected)


def test_fft_of_a_pure_tone(device: torch.device) -> None:
    size, tone = 64, 5
    wave = torch.tensor([math.cos(2 * math.pi * tone * i / size) for i in range(size)], device=device)
    expected = [size / 2 if i in (tone, size - tone) else 0.0 for i in range(size)]
    close(torch.fft.fft(wave).abs(), expected, 1e-4)


def test_linear_equations(device: torch.device) -> None:
    size = 32
    matrix = [[1.0 / (1 + abs(i - j)) + (2.0 if i == j else 0.0) for j in range(size)] for i in range(size)]
    solution = [[float(i)] for i in range(size)]
    right = torch.tensor(multiplied(matrix, solution), device=device)
    close(torch.linalg.solve(torch.tensor(matrix, device=device), right), solution, 1e-3)


def test_gradients_are_slopes(device: torch.device) -> None:
    def curve(x: float) -> float:
        return math.exp(-x * x) * math.sin(3 * x)

    points = [-1.5, -0.2, 0.0, 0.4, 1.1]
    x = torch.tensor(points, device=device, dtype=torch.float64, requires_grad=True)
    (torch.exp(-x * x) * torch.sin(3 * x)).sum().backward()
    assert x.grad is not None
    close(x.grad, [(curve(p + 1e-6) - curve(p - 1e-6)) / 2e-6 for p in points], 1e-6)


def test_attention_is_a_weighted_mean(device: torch.device) -> None:
    query, key, value = (
        torch.tensor(lists(4, 8, step), device=device)[None, None] for step in (0.3, 0.5, 0.7)
    )
    scores = multiplied(lists(4, 8, 0.3), [list(c) for c in zip(*lists(4, 8, 0.5), strict=True)])
    weights = [[math.exp(s / math.sqrt(8)) for s in row] for row in scores]
    expected = multiplied([[w / sum(row) for w in row] for row in weights], lists(4, 8, 0.7))
    close(nn.functional.scaled_dot_product_attention(query, key, value)[0, 0], expected, 1e-4)
    # Each place looks at itself and at those before it.
    seen = [[w if at <= row else 0.0 for at, w in enumerate(line)] for row, line in enumerate(weights)]
    expected = multiplied([[w / sum(line) for w in line] for line in seen], lists(4, 8, 0.7))
    found = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    close(found[0, 0], expected, 1e-4)
    mask = torch.ones(4, 4, dtype=torch.bool, device=device).tril()
    found = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    close(found[0, 0], expected, 1e-4)


def test_training_finds_the_line(device: torch.device) -> None:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 64, device=device).unsqueeze(1)
    model = nn.Linear(1, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), 3 * x - 0.5).backward()
        optimizer.step()
    close(model.weight[0, 0], 3.0, 1e-3)
    close(model.bias[0], -0.5, 1e-3)


def test_random_numbers_follow_their_seed(device: torch.device) -> None:
    first, again, other = (
        torch.rand(1000, device=device, generator=torch.Generator(device).manual_seed(seed))
        for seed in (7, 7, 8)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 0 <= first.min().item() < first.max().item() < 1


def test_tensors_survive_the_way_there_and_back(device: torch.device) -> None:
    values = torch.arange(1_000_003, dtype=torch.int64)
    assert torch.equal(values.to(device).to("cpu"), values)
