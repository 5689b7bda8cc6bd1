"""TorchRL: a value network from a replay buffer, with the loss of DQN and a target that follows."""

import sys

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

device = torch.device(sys.argv[1])
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
actor = QValueActor(network, in_keys=["observation"], spec=OneHot(2)).to(device)
buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(64, device=device), batch_size=16)
observation = torch.randn(64, 4)
buffer.extend(
    TensorDict(
        {
            "observation": observation,
            "action": torch.nn.functional.one_hot(torch.randint(0, 2, (64,)), 2),
            "next": {
                "observation": observation.roll(1, 0),
                "reward": observation[:, :1],
                "done": torch.zeros(64, 1, dtype=torch.bool),
                "terminated": torch.zeros(64, 1, dtype=torch.bool),
            },
        },
        [64],
    )
)
loss_module = DQNLoss(actor, action_space="one-hot", delay_value=True)
target = SoftUpdate(loss_module, eps=0.9)
optimizer = torch.optim.Adam(loss_module.parameters(), 0.01)
for _ in range(5):
    loss = loss_module(buffer.sample())["loss"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    target.step()
acted = actor(TensorDict({"observation": observation.to(device)}, [64], device=device))
assert isinstance(actor, TensorDictModule)
print(f"VALUE {loss.item():.6f} {acted['chosen_action_value'].mean().item():.6f}")
