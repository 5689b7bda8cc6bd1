"""What is legal on a GPU and stays without an alarm: a hundred lines that programs have.

Each is run under `strict` with two devices: `x` of four elements and `m`, 4x4, on the first GPU, `c` on the
CPU, `y` on the second GPU, and `net`, a small network on the first.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchdevice
from torch import nn

IMPORTS = """
import copy, io, pickle, threading
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
"""
LINES = """
x * torch.tensor(2.0)
x + 1
torch.tensor(2.0) - x
x.add(torch.tensor(1.0), alpha=2)
torch.where(x > 0, x, torch.tensor(0.0))
torch.where(x > 0, x, 0.0)
x.masked_fill(x > 0, torch.tensor(1.0))
x[torch.tensor([0, 1])]
x[c.bool()]
m[torch.tensor([0]), :]
m[[0, 1], torch.tensor([1, 2])]
x.__setitem__(torch.tensor([0]), torch.tensor(3.0))
x.__setitem__(slice(0, 2), c[:2])
x.copy_(c)
c.copy_(x)
x.to(y)
x.to("cuda:1").device == y.device
x.to(y.device) + y
y.copy_(x, non_blocking=True)
x.type_as(c).numpy()
float(x.sum()) + x.max().item()
[v for v in x.tolist()]
bool(x.all()) or int(x[0])
x.cpu().numpy()
x.numpy(force=True)
np.asarray(x.detach().cpu())
torch.from_numpy(np.ones(4, dtype=np.float32)).to(x.device) + x
torch.as_tensor([1.0] * 4, device=x.device) + x
x.new_zeros(4) + x.new_tensor([1.0] * 4)
torch.zeros_like(x) + torch.randn_like(x) + torch.empty_like(x).fill_(0)
torch.arange(4, device=x.device) + x
torch.full((4,), 2.0, device=x.device, pin_memory=False) * x
torch.equal(x.cpu(), x.cpu())
torch.cat([x, y.to(x.device), c.cuda()])
torch.stack([t.to("cuda:0") for t in (x, y, c)])
torch.linspace(0, 1, 4).cuda() + x
torch.einsum("i,ij->j", x, m)
torch.addmm(m, m, m, beta=0.5)
F.one_hot(torch.tensor([1, 2], device="cuda"), 4) * m[:2]
F.embedding(torch.tensor([0, 1], device="cuda"), m)
F.pad(x, (1, 1)).unfold(0, 2, 1)
F.interpolate(m[None, None], scale_factor=2.0)
F.scaled_dot_product_attention(m[None], m[None], m[None], is_causal=True)
F.cross_entropy(m, torch.tensor([0, 1, 2, 3], device="cuda"), weight=torch.ones(4, device="cuda"))
F.ctc_loss(m[:, None].log_softmax(-1), torch.tensor([[1]], device="cuda"), (4,), (1,))
torch.quantile(x, 0.5)
torch.bincount(torch.tensor([0, 1], device="cuda"), minlength=2)
torch.linalg.lstsq(m + torch.eye(4, device="cuda"), m).solution
torch.fft.rfft(x).abs()
torch.sparse_coo_tensor(torch.tensor([[0, 1]], device="cuda"), x[:2], (4,)).to_dense() + x
torch.tensor_split(x, torch.tensor([1, 2]))
x.repeat_interleave(torch.tensor([1, 2, 1, 1], device="cuda"))
torch.isin(x, torch.tensor([1.0], device="cuda"))
torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
torch.vmap(lambda row: row * x)(m)
torch.func.grad(lambda v: (v * x).sum())(x)
torch.func.functional_call(net, dict(net.named_parameters()), (m,))
torch.autograd.functional.jacobian(lambda v: v * x, x)
torch.utils.checkpoint.checkpoint(net, m.requires_grad_(), use_reentrant=False).sum().backward()
""".strip().splitlines()
PROGRAMS = """
# lazy
lazy = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()).cuda()
lazy(m).sum().backward()
# lazy convolution
nn.LazyConv2d(2, 3).to('cuda:1')(torch.ones(1, 1, 4, 4, device='cuda:1'))
# on meta first
n = nn.Linear(4, 4, device='meta').to_empty(device='cuda')
n.reset_parameters()
n(m)
# skipped initialization
nn.utils.skip_init(nn.Linear, 4, 4, device='cuda')(m)
# two devices in a model
a, b = (nn.Linear(4, 4).to(f'cuda:{index}') for index in range(2))
b(a(m).to('cuda:1')).sum().backward()
# the loss comes back
b = nn.Linear(4, 4).to('cuda:1')
loss = b(m.to('cuda:1')).mean().to('cuda:0') + net(m).mean()
loss.backward()
# data parallel
nn.DataParallel(net)(m).sum().backward()
assert net[0].weight.grad.device == x.device
# data parallel of data on the CPU
nn.DataParallel(net)(torch.ones(4, 4))
# replicas by hand
rs = nn.parallel.replicate(net, [0, 1])
nn.parallel.parallel_apply(rs, nn.parallel.scatter(m, [0, 1]))
# optimizer
o = torch.optim.Adam(net.parameters())
net(m).sum().backward()
o.step()
o.zero_grad()
# optimizer of two devices
o = torch.optim.AdamW([x.requires_grad_(), y.requires_grad_()], foreach=True)
(x.sum() + y.to(x.device).sum()).backward()
o.step()
# optimizer that was loaded
o = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
net(m).sum().backward()
o.step()
o.load_state_dict(copy.deepcopy(o.state_dict()))
o.step()
# capturable
o = torch.optim.Adam(net.parameters(), fused=True)
net(m).sum().backward()
o.step()
# clipping
net(m).sum().backward()
nn.utils.clip_grad_norm_(net.parameters(), 1.0)
# gradient scaler
s = torch.amp.GradScaler('cuda')
o = torch.optim.SGD(net.parameters(), 0.1)
s.scale(net(m).sum()).backward()
s.unscale_(o)
s.step(o)
s.update()
# autocast
with torch.autocast('cuda', dtype=torch.bfloat16): assert net(m).is_cuda
# averaged model
a = torch.optim.swa_utils.AveragedModel(net)
a.update_parameters(net)
a(m)
# state from the CPU
net.load_state_dict({k: v.cpu() for k, v in net.state_dict().items()})
net(m)
# a file
f = io.BytesIO()
torch.save(net.state_dict(), f)
f.seek(0)
net.load_state_dict(torch.load(f, map_location='cuda:0'))
net(m)
# a file to the CPU
f = io.BytesIO()
torch.save(x, f)
f.seek(0)
torch.load(f, map_location='cpu').numpy()
# pickled
pickle.loads(pickle.dumps(x)) + x
# copied
copy.deepcopy(net)(m)
# default device
with torch.device('cuda'): n = nn.Linear(4, 4)
n(m)
# current device
with torch.cuda.device(1): z = torch.ones(4, device='cuda')
z + y
# accelerator
d = torch.accelerator.current_accelerator()
torch.ones(4, device=d) + x
# generator
g = torch.Generator('cuda').manual_seed(0)
torch.randn(4, generator=g, device='cuda') + x
x.normal_(generator=g)
# streams
s = torch.cuda.Stream()
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s): z = x + 1
torch.cuda.current_stream().wait_stream(s)
z.record_stream(s)
# events
a, b = (torch.cuda.Event(enable_timing=True) for _ in 'ab')
a.record()
x + 1
b.record()
torch.cuda.synchronize()
a.elapsed_time(b)
# a loader that pins
for (b,) in DataLoader(TensorDataset(torch.ones(4, 4)), batch_size=2, pin_memory=True):
    net(b.cuda(non_blocking=True))
# data on the GPU
for (b,) in DataLoader(TensorDataset(m), batch_size=2, shuffle=True): net(b)
# packed
p = nn.utils.rnn.pack_padded_sequence(m[None], torch.tensor([4]), batch_first=True)
nn.LSTM(4, 3, batch_first=True).cuda()(p)
# lengths from the GPU
n = torch.tensor([4], device='cuda')
nn.utils.rnn.pack_padded_sequence(m[None], n.cpu(), batch_first=True)
# hooks
h = net[0].register_forward_hook(lambda n, a, out: out * 2)
net(m)
h.remove()
net[0].register_full_backward_hook(lambda n, i, o: None)
net(m.requires_grad_()).sum().backward()
# a thread
found = []
t = threading.Thread(target=lambda: found.append(net(m)))
t.start()
t.join()
assert found[0].is_cuda
# compiled
torch.compile(net)(m).sum().backward()
# compiled with a mode
torch.compile(lambda v: v * x, mode='max-autotune', fullgraph=True)(x)
# scripted
torch.jit.script(nn.Linear(4, 4).cuda())(m)
# traced
torch.jit.trace(net, m)(m)
# exported
torch.export.export(net, (m,)).module()(m)
# exported on the CPU
torch.export.export(nn.Linear(4, 4), (torch.ones(2, 4),)).module()(torch.ones(2, 4))
# exported, with what it makes
torch.export.export(Positions(), (m,)).module()(m)
# symbolically traced
torch.fx.symbolic_trace(net)(m)
# parametrized
nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)).cuda()(m)
# pruned
import torch.nn.utils.prune as p
n = nn.Linear(4, 4).cuda()
p.l1_unstructured(n, 'weight', 0.5)
n(m)
# distributions
d = torch.distributions.Normal(torch.zeros(4, device='cuda'), 1.0)
d.log_prob(d.sample()) + x
# double backward
(g,) = torch.autograd.grad((x.requires_grad_() ** 3).sum(), x, create_graph=True)
g.sum().backward()
# a number as gradient
x.requires_grad_().sum().backward(torch.tensor(1.0))
# a buffer
net.register_buffer('scale', torch.ones(4))
net.cuda()
net.scale * x
# anomaly
with torch.autograd.detect_anomaly(check_nan=True): net(m).sum().backward()
# half
net.half()(m.half()).float() + m[:, :4]
# channels last
nn.Conv2d(1, 2, 3).cuda().to(memory_format=torch.channels_last)(torch.ones(1, 1, 4, 4, device='cuda'))
# printed
assert 'cuda:0' in repr(x)
# shared memory
c.share_memory_()
c.cuda() + x
# out
torch.add(x, x, out=torch.empty(4, device='cuda'))
""".strip()


class Positions(nn.Module):
    """A forward that makes tensors where its input is."""

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return data + torch.arange(data.shape[1], device=data.device)


IDIOMS = {line: line for line in LINES} | dict(block.split("\n", 1) for block in PROGRAMS[2:].split("\n# "))


def test_there_are_a_hundred() -> None:
    assert len(set(IDIOMS.values())) >= 100


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", IDIOMS)
def test_no_alarm(name: str) -> None:
    with torchdevice.redirected("cpu", count=2, strict=True):
        names: dict[str, Any] = {
            "Positions": Positions,
            "x": torch.ones(4, device="cuda"),
            "m": torch.ones(4, 4, device="cuda"),
            "c": torch.ones(4),
            "y": torch.ones(4, device="cuda:1"),
            "net": nn.Sequential(nn.Linear(4, 4), nn.ReLU()).cuda(),
        }
        exec(IMPORTS + IDIOMS[name], names)
