"""Numbers against NumPy's, and arrays that become tensors and back."""

import math

import pytest
import torch

numpy = pytest.importorskip("numpy")

GENERATOR = numpy.random.default_rng(0)
A, B = (GENERATOR.standard_normal((12, 12)) for _ in range(2))
SIGNAL = GENERATOR.standard_normal((6, 10))
POSITIVE = numpy.abs(A) + 0.1
UNIT = numpy.tanh(A)
WHOLE = GENERATOR.integers(-50, 50, (12, 12))


def close(found: torch.Tensor, expected: object, tolerance: float = 1e-9) -> None:
    wanted = torch.from_numpy(numpy.array(expected))
    assert found.shape == wanted.shape
    if found.is_floating_point() or found.is_complex():
        torch.testing.assert_close(found.cpu(), wanted, rtol=tolerance, atol=tolerance, check_dtype=False)
    else:
        assert found.cpu().tolist() == wanted.tolist()


def tensor(array: object, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(numpy.array(array)).to(device)


def test_an_array_and_its_tensor_are_the_same_memory() -> None:
    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    made = torch.from_numpy(array)
    made[0, 0] = 7
    assert array[0, 0] == 7
    assert made.numpy().base is not None
    assert numpy.asarray(made.T).tolist() == array.T.tolist()
    for kind in ("uint8", "int8", "int16", "int32", "int64", "float16", "float64", "complex64", "bool"):
        assert str(torch.from_numpy(numpy.zeros(2, dtype=kind)).dtype) == f"torch.{kind}"


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "hfft", "fft2", "ifft2", "rfft2", "fftn", "rfftn"])
def test_fourier_transforms(device: torch.device, name: str) -> None:
    close(getattr(torch.fft, name)(tensor(SIGNAL, device)), getattr(numpy.fft, name)(SIGNAL))


def test_fourier_transforms_back_and_their_frequencies(device: torch.device) -> None:
    x = tensor(SIGNAL, device)
    close(torch.fft.irfft(torch.fft.rfft(x), n=10), SIGNAL)
    close(torch.fft.irfftn(torch.fft.rfftn(x), s=(6, 10)), SIGNAL)
    close(torch.fft.fft(x, n=7, dim=0, norm="ortho"), numpy.fft.fft(SIGNAL, n=7, axis=0, norm="ortho"))
    close(torch.fft.fftshift(x), numpy.fft.fftshift(SIGNAL))
    close(torch.fft.ifftshift(x), numpy.fft.ifftshift(SIGNAL))
    close(torch.fft.fftfreq(9, 0.5, dtype=torch.float64), numpy.fft.fftfreq(9, 0.5))
    close(torch.fft.rfftfreq(9, 0.5, dtype=torch.float64), numpy.fft.rfftfreq(9, 0.5))
    window = torch.hann_window(4, dtype=torch.float64, device=device)
    short = torch.stft(x.flatten(), 4, 2, window=window, center=False, return_complex=True)
    frames = numpy.lib.stride_tricks.sliding_window_view(SIGNAL.ravel(), 4)[::2]
    close(short.T, numpy.fft.rfft(frames * (1 - numpy.cos(numpy.arange(4) * math.pi / 2)) / 2))


def test_linear_algebra(device: torch.device) -> None:
    a, b = tensor(A, device), tensor(B, device)
    definite = A @ A.T + numpy.eye(12)
    close(torch.linalg.inv(a), numpy.linalg.inv(A), 1e-7)
    close(torch.linalg.det(a), numpy.linalg.det(A), 1e-7)
    close(torch.linalg.slogdet(a)[1], numpy.linalg.slogdet(A)[1])
    close(torch.linalg.solve(a, b), numpy.linalg.solve(A, B), 1e-7)
    close(torch.linalg.cholesky(tensor(definite, device)), numpy.linalg.cholesky(definite))
    close(torch.linalg.svdvals(a), numpy.linalg.svd(A, compute_uv=False))
    close(torch.linalg.eigvalsh(tensor(definite, device)), numpy.linalg.eigvalsh(definite), 1e-7)
    close(torch.linalg.pinv(a[:, :5]), numpy.linalg.pinv(A[:, :5]), 1e-7)
    close(torch.linalg.matrix_power(a, 3), numpy.linalg.matrix_power(A, 3), 1e-7)
    close(torch.linalg.matrix_norm(a), numpy.linalg.norm(A))
    close(torch.linalg.vector_norm(a, 1), numpy.abs(A).sum())
    close(torch.linalg.cond(a), numpy.linalg.cond(A), 1e-6)
    assert int(torch.linalg.matrix_rank(a[:, :5] @ b[:5])) == 5
    for made in (torch.linalg.qr(a), torch.linalg.lu(a)):
        whole = made[0]
        for part in made[1:]:
            whole = whole @ part
        close(whole, A)
    u, values, vh = torch.linalg.svd(a)
    close(u @ torch.diag(values) @ vh, A)


def test_linear_algebra_for_which_a_gpu_needs_magma() -> None:
    a, b = torch.from_numpy(A), torch.from_numpy(B)
    close(torch.linalg.lstsq(a[:, :5], b).solution, numpy.linalg.lstsq(A[:, :5], B, rcond=None)[0], 1e-7)
    found = torch.from_numpy(numpy.sort_complex(torch.linalg.eigvals(a).numpy()))
    close(found, numpy.sort_complex(numpy.linalg.eigvals(A)), 1e-7)


ELEMENTWISE = [
    "abs", "arctan", "arcsinh", "ceil", "cos", "cosh", "deg2rad", "exp", "exp2", "expm1", "floor",
    "isfinite", "negative", "positive", "rad2deg", "round", "sign", "signbit", "sin", "sinc", "sinh",
    "square", "tan", "tanh", "trunc",
]  # fmt: skip
OF_TWO = [
    "add", "arctan2", "copysign", "divide", "floor_divide", "fmax", "fmin", "fmod", "greater",
    "heaviside", "hypot", "less_equal", "logaddexp", "logical_xor", "maximum", "minimum", "multiply",
    "nextafter", "not_equal", "remainder", "subtract",
]  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_of_one_number(device: torch.device, name: str) -> None:
    close(getattr(torch, name)(tensor(A, device)), getattr(numpy, name)(A))


@pytest.mark.parametrize("name", ["log", "log10", "log1p", "log2", "reciprocal", "sqrt"])
def test_functions_of_a_positive_number(device: torch.device, name: str) -> None:
    close(getattr(torch, name)(tensor(POSITIVE, device)), getattr(numpy, name)(POSITIVE))


@pytest.mark.parametrize("name", ["arccos", "arcsin", "arctanh"])
def test_functions_of_a_number_below_one(device: torch.device, name: str) -> None:
    close(getattr(torch, name)(tensor(UNIT, device)), getattr(numpy, name)(UNIT))


@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two_numbers(device: torch.device, name: str) -> None:
    close(getattr(torch, name)(tensor(A, device), tensor(B, device)), getattr(numpy, name)(A, B))


def test_functions_of_statistics(device: torch.device) -> None:
    x, values = tensor(A, device), A.ravel().tolist()
    close(torch.erf(x).flatten(), [math.erf(value) for value in values])
    close(torch.special.erfc(x).flatten(), [math.erfc(value) for value in values])
    close(
        torch.lgamma(tensor(POSITIVE, device)).flatten(), [math.lgamma(v) for v in POSITIVE.ravel().tolist()]
    )
    close(torch.special.i0(x), numpy.i0(A))
    close(torch.special.expit(x), 1 / (1 + numpy.exp(-A)))
    close(torch.erfinv(torch.erf(x / 4)), A / 4)
    # The digamma function is the slope of lgamma.
    slope = (
        torch.lgamma(tensor(POSITIVE + 1e-6, device)) - torch.lgamma(tensor(POSITIVE - 1e-6, device))
    ) / 2e-6
    torch.testing.assert_close(torch.digamma(tensor(POSITIVE, device)), slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "amax", "amin", "cumsum", "cumprod", "argmax", "argmin", "flip"]
)
def test_reductions_along_a_dimension(device: torch.device, name: str) -> None:
    words = {"axis": 1}
    close(
        getattr(torch, name)(tensor(A, device), 1 if name != "flip" else [1]),
        getattr(numpy, name)(A, **words),
    )


def test_reductions_with_a_choice(device: torch.device) -> None:
    x = tensor(A, device)
    close(torch.std(x, dim=0), A.std(axis=0, ddof=1))
    close(torch.var(x, dim=0, correction=0), A.var(axis=0))
    close(torch.quantile(x, 0.3, dim=1), numpy.quantile(A, 0.3, axis=1))
    close(torch.logsumexp(x, 1), numpy.log(numpy.exp(A).sum(axis=1)))
    close(torch.cov(x), numpy.cov(A))
    close(torch.corrcoef(x), numpy.corrcoef(A))
    close(torch.diff(x), numpy.diff(A))
    close(torch.trapezoid(x, dx=0.5), getattr(numpy, "trapezoid", getattr(numpy, "trapz", None))(A, dx=0.5))
    close(torch.nansum(torch.where(x > 0, x, torch.nan)), numpy.where(A > 0, A, 0).sum())
    close(torch.count_nonzero(x > 0), (A > 0).sum())
    # More than one block of a GPU's threads, and of a vectorized loop of the CPU.
    many = numpy.sin(numpy.arange(300_007))
    close(tensor(many, device).sum(), many.sum(), 1e-7)
    close(tensor(many, device).cumsum(0)[-1], many.sum(), 1e-7)


def test_norms(device: torch.device) -> None:
    rows = [[3.0, -4.0, 0.0], [-1.0, 2.0, -2.0]]
    x = torch.tensor(rows, device=device, dtype=torch.float64)
    close(torch.norm(x, p=1), 12.0)
    close(torch.norm(x), 34**0.5)
    close(torch.norm(x, p=float("inf")), 4.0)
    close(torch.norm(x, p=1, dim=1), [7.0, 5.0])
    close(x.norm(p=3, dim=1), [91 ** (1 / 3), 17 ** (1 / 3)])
    close(torch.norm(x, p=2, dim=0, keepdim=True), [[10**0.5, 20**0.5, 2.0]])


def test_products_of_many_kinds(device: torch.device) -> None:
    a, b = tensor(A, device), tensor(B, device)
    close(torch.einsum("ij,jk,ik->i", a, b, a), numpy.einsum("ij,jk,ik->i", A, B, A))
    close(torch.tensordot(a, b, dims=([0], [1])), numpy.tensordot(A, B, axes=([0], [1])))
    close(torch.kron(a[:3, :3], b[:2, :2]), numpy.kron(A[:3, :3], B[:2, :2]))
    close(torch.outer(a[0], b[0]), numpy.outer(A[0], B[0]))
    close(torch.linalg.cross(a[:, :3], b[:, :3]), numpy.cross(A[:, :3], B[:, :3]))
    batch, other = A.reshape(3, 4, 12), B.reshape(3, 12, 4)
    close(torch.bmm(tensor(batch, device), tensor(other, device)), batch @ other)
    close(torch.addmm(a, a, b, beta=0.5, alpha=2), 0.5 * A + 2 * A @ B)
    close(torch.linalg.multi_dot([a, b, a]), A @ B @ A)
    close(torch.mv(a, b[0]), A @ B[0])
    close(torch.complex(a, b) @ torch.complex(b, a), (A + 1j * B) @ (B + 1j * A))


def test_order_and_choice(device: torch.device) -> None:
    x, whole = tensor(A, device), tensor(WHOLE, device)
    close(torch.sort(x, dim=0).values, numpy.sort(A, axis=0))
    close(torch.argsort(x, dim=1), numpy.argsort(A, axis=1))
    close(torch.topk(x, 3).values, numpy.sort(A)[:, :-4:-1])
    values, counts = torch.unique(whole, return_counts=True)
    expected = numpy.unique(WHOLE, return_counts=True)
    close(values, expected[0])
    close(counts, expected[1])
    close(torch.bincount(whole.flatten() + 50), numpy.bincount(WHOLE.ravel() + 50))
    close(torch.histc(x, 10, -2, 2), numpy.histogram(A, 10, (-2, 2))[0].astype("float64"))
    ends = numpy.sort(A[0])
    close(torch.searchsorted(tensor(ends, device), x), numpy.searchsorted(ends, A))
    close(torch.gather(x, 1, whole.remainder(12)), numpy.take_along_axis(A, WHOLE % 12, axis=1))
    spread = numpy.zeros(12)
    numpy.add.at(spread, WHOLE.ravel() % 12, A.ravel())
    close(
        torch.zeros(12, dtype=torch.float64, device=device).scatter_add(0, whole.flatten() % 12, x.flatten()),
        spread,
    )
    close(
        torch.zeros(12, dtype=torch.float64, device=device).index_put(
            (whole.flatten() % 12,), x.flatten(), accumulate=True
        ),
        spread,
    )
    close(torch.tril(x, -1), numpy.tril(A, -1))
    close(torch.roll(x, (1, -2), (0, 1)), numpy.roll(A, (1, -2), (0, 1)))
    close(torch.nonzero(whole > 20), numpy.argwhere(WHOLE > 20))
    close(x[whole > 20], A[WHOLE > 20])
    close(torch.rot90(x), numpy.rot90(A))
    close(torch.meshgrid(x[0], x[1], indexing="ij")[1], numpy.meshgrid(A[0], A[1], indexing="ij")[1])


def test_whole_numbers_and_bits(device: torch.device) -> None:
    x, y = tensor(WHOLE, device), tensor(WHOLE.T | 1, device)
    other = WHOLE.T | 1
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "remainder", "floor_divide", "fmod"):
        close(getattr(torch, name)(x, y), getattr(numpy, name)(WHOLE, other))
    close(x << 2, WHOLE << 2)
    close(~x, ~WHOLE)
    close(x.to(torch.uint8), WHOLE.astype("uint8"))
    close((x * 3.7).to(torch.int32), (WHOLE * 3.7).astype("int32"))
    close(x.to(torch.bfloat16).double(), WHOLE.astype("float64"))  # eight bits hold these
    assert torch.tensor(1.0 + 2**-9).to(torch.bfloat16).item() == 1.0


def test_sparse_tensors_are_the_dense_ones(device: torch.device) -> None:
    kept = numpy.where(numpy.abs(A) > 1, A, 0)
    x, b = tensor(kept, device), tensor(B, device)
    for sparse in (x.to_sparse(), x.to_sparse_csr()):
        close(sparse.to_dense(), kept)
        close(sparse @ b, kept @ B)
        assert sparse.values().numel() == numpy.count_nonzero(kept)
    close(torch.sparse.sum(x.to_sparse(), dim=0).to_dense(), kept.sum(axis=0))
