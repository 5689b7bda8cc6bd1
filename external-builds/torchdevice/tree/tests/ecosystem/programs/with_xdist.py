"""pytest-xdist: a suite in two processes, by the plugin's own options."""

import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = """
import pytest, torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

@pytest.fixture(scope="session")
def model():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2).to(DEVICE)

@pytest.mark.parametrize("size", range(6))
def test_forward(model, size):
    out = model(torch.ones(size, 4, device=DEVICE))
    assert out.shape == (size, 2) and out.device.type == model.weight.device.type

def test_numbers(model):
    assert model(torch.ones(1, 4, device=DEVICE)).cpu().detach().numpy().shape == (1, 2)
"""
OPTIONS = {"off": [], "redirect": ["--torchdevice"], "strict": ["--torchdevice-strict"]}
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "test_it.py").write_text(TESTS)
    plugin = [] if sys.argv[2] == "off" else ["-p", "torchdevice.pytest_plugin", *OPTIONS[sys.argv[2]]]
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "-p", "no:cacheprovider", *plugin, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
print("VALUE", done.stdout.strip().splitlines()[-1].partition(" in ")[0], done.returncode)
