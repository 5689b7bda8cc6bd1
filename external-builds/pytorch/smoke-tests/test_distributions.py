"""torch.distributions: densities by their formulas, and samples with the moments that belong to them."""

import math

import pytest
import torch
from torch import distributions as D  # noqa: N812 - as its users call it

PI = math.pi


def beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


# What is drawn from, a value, the logarithm of its density there, mean and variance.
TABLE = {
    "Normal": (
        lambda t: D.Normal(t(1.0), t(2.0)),
        0.5,
        -(0.25**2) / 2 - math.log(2 * math.sqrt(2 * PI)),
        1.0,
        4.0,
    ),
    "LogNormal": (
        lambda t: D.LogNormal(t(0.0), t(0.5)),
        2.0,
        -((math.log(2) / 0.5) ** 2) / 2 - math.log(2 * 0.5 * math.sqrt(2 * PI)),
        math.exp(0.125),
        (math.exp(0.25) - 1) * math.exp(0.25),
    ),
    "Uniform": (lambda t: D.Uniform(t(-1.0), t(3.0)), 0.0, -math.log(4), 1.0, 16 / 12),
    "Exponential": (lambda t: D.Exponential(t(2.0)), 0.7, math.log(2) - 1.4, 0.5, 0.25),
    "Gamma": (
        lambda t: D.Gamma(t(3.0), t(2.0)),
        1.2,
        3 * math.log(2) + 2 * math.log(1.2) - 2.4 - math.lgamma(3),
        1.5,
        0.75,
    ),
    "Beta": (
        lambda t: D.Beta(t(2.0), t(3.0)),
        0.3,
        math.log(0.3) + 2 * math.log(0.7) - beta(2, 3),
        0.4,
        0.04,
    ),
    "Laplace": (lambda t: D.Laplace(t(1.0), t(2.0)), 4.0, -1.5 - math.log(4), 1.0, 8.0),
    "Gumbel": (
        lambda t: D.Gumbel(t(0.0), t(1.0)),
        0.5,
        -0.5 - math.exp(-0.5),
        0.5772156649,
        PI**2 / 6,
    ),
    "StudentT": (
        lambda t: D.StudentT(t(5.0)),
        0.5,
        math.lgamma(3) - math.lgamma(2.5) - math.log(5 * PI) / 2 - 3 * math.log(1 + 0.05),
        0.0,
        5 / 3,
    ),
    "Bernoulli": (lambda t: D.Bernoulli(t(0.3)), 1.0, math.log(0.3), 0.3, 0.21),
    "Geometric": (lambda t: D.Geometric(t(0.25)), 2.0, math.log(0.25 * 0.75**2), 3.0, 12.0),
    "Poisson": (lambda t: D.Poisson(t(4.0)), 3.0, 3 * math.log(4) - 4 - math.log(6), 4.0, 4.0),
    "Binomial": (
        lambda t: D.Binomial(10, t(0.3)),
        4.0,
        math.log(210) + 4 * math.log(0.3) + 6 * math.log(0.7),
        3.0,
        2.1,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_density_and_moments(device: torch.device, name: str) -> None:
    make, value, logarithm, mean, variance = TABLE[name]
    made = make(lambda number: torch.tensor(number, device=device))
    assert made.log_prob(torch.tensor(value, device=device)).item() == pytest.approx(logarithm, rel=1e-4)
    assert made.mean.item() == pytest.approx(mean, rel=1e-4, abs=1e-6)
    assert made.variance.item() == pytest.approx(variance, rel=1e-4)
    torch.manual_seed(0)
    drawn = made.sample((50_000,)).double()
    # Six standard errors of the mean; of the variance, what the widest of these tails leaves.
    assert drawn.mean().item() == pytest.approx(mean, abs=6 * math.sqrt(variance / 50_000))
    assert drawn.var().item() == pytest.approx(variance, rel=0.25)


def test_normal_distribution_from_end_to_end(device: torch.device) -> None:
    made = D.Normal(torch.tensor(1.0, device=device), torch.tensor(2.0, device=device))
    chance = (1 + math.erf(0.5 / math.sqrt(2))) / 2
    assert made.cdf(torch.tensor(2.0, device=device)).item() == pytest.approx(chance)
    assert made.icdf(torch.tensor(chance, device=device)).item() == pytest.approx(2.0, rel=1e-4)
    assert made.entropy().item() == pytest.approx(math.log(2 * math.sqrt(2 * PI * math.e)))
    other = D.Normal(torch.tensor(0.0, device=device), torch.tensor(1.0, device=device))
    assert D.kl_divergence(made, other).item() == pytest.approx((4 + 1) / 2 - 0.5 - math.log(2))
    # What is drawn moves with the parameters: by one with the mean, by the standard draw with the deviation.
    mean = torch.tensor(1.0, device=device, requires_grad=True)
    deviation = torch.tensor(2.0, device=device, requires_grad=True)
    drawn = D.Normal(mean, deviation).rsample((100,))
    drawn.sum().backward()
    assert mean.grad is not None
    assert deviation.grad is not None
    assert mean.grad.item() == 100
    assert deviation.grad.item() == pytest.approx(
        ((drawn - mean) / deviation).sum().item(), rel=1e-3, abs=1e-3
    )
    # torch.compile turns off what is asked for here (torch/_dynamo/eval_frame.py).
    with pytest.raises(ValueError, match="constraint"):
        D.Normal(torch.tensor(0.0), torch.tensor(-1.0), validate_args=True)


def test_distributions_of_several_values(device: torch.device) -> None:
    chances = torch.tensor([0.2, 0.5, 0.3], device=device)
    torch.manual_seed(0)
    drawn = D.Categorical(chances).sample((50_000,))
    torch.testing.assert_close(drawn.bincount() / 50_000, chances, rtol=0, atol=0.02)
    assert D.Categorical(chances).log_prob(torch.tensor(1, device=device)).item() == pytest.approx(
        math.log(0.5)
    )
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]], device=device)
    made = D.MultivariateNormal(torch.zeros(2, device=device), covariance)
    # At (1, 0) the exponent is half of the corner of the inverse, 1 / 1.75; the determinant is 1.75.
    expected = -math.log(2 * PI) - math.log(1.75) / 2 - 0.5 / 1.75
    assert made.log_prob(torch.tensor([1.0, 0.0], device=device)).item() == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(made.sample((50_000,)).T.cov(), covariance, rtol=0, atol=0.06)
    dirichlet = D.Dirichlet(torch.tensor([1.0, 2.0, 3.0], device=device))
    torch.testing.assert_close(
        dirichlet.sample((50_000,)).mean(0).cpu(), torch.tensor([1, 2, 3]) / 6, rtol=0, atol=0.02
    )
    mixed = D.MixtureSameFamily(D.Categorical(chances), D.Normal(torch.arange(3.0, device=device), 1.0))
    assert mixed.mean.item() == pytest.approx(1.1)
    assert D.Independent(D.Normal(torch.zeros(3), 1.0), 1).event_shape == (3,)


def test_transformed_distributions(device: torch.device) -> None:
    base = D.Normal(torch.tensor(0.0, device=device), torch.tensor(0.5, device=device))
    made = D.TransformedDistribution(base, [D.transforms.ExpTransform()])
    x = torch.tensor(2.0, device=device)
    log_normal = D.LogNormal(base.loc, base.scale)
    torch.testing.assert_close(made.log_prob(x), log_normal.log_prob(x))


def test_random_tensors_have_the_moments_that_they_are_named_for(device: torch.device) -> None:
    torch.manual_seed(0)
    normal, uniform = torch.randn(200_000, device=device), torch.rand(200_000, device=device)
    assert abs(normal.mean().item()) < 0.02
    assert normal.std().item() == pytest.approx(1.0, abs=0.02)
    assert (normal.abs() < 1).double().mean().item() == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.01)
    assert uniform.mean().item() == pytest.approx(0.5, abs=0.01)
    assert uniform.var().item() == pytest.approx(1 / 12, abs=0.005)
    assert torch.randperm(1000, device=device).sort().values.tolist() == list(range(1000))
    whole = torch.randint(-3, 4, (50_000,), device=device)
    assert sorted(set(whole.tolist())) == list(range(-3, 4))
    state = torch.get_rng_state()
    first = torch.rand(4)
    torch.set_rng_state(state)
    assert torch.equal(torch.rand(4), first)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        inside = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), inside)
    picked = torch.multinomial(torch.tensor([0.0, 0.0, 1.0, 3.0], device=device), 10_000, replacement=True)
    assert (picked == 3).double().mean().item() == pytest.approx(0.75, abs=0.03)
    assert torch.quasirandom.SobolEngine(2).draw(4).tolist() == [
        [0, 0],
        [0.5, 0.5],
        [0.75, 0.25],
        [0.25, 0.75],
    ]
