"""PyTorch Geometric: graphs in batches, convolutions and attention, pooled and classified."""

import sys

import torch
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool
from torch_geometric.utils import to_undirected


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(4, 8)
        self.second = GATConv(8, 8, heads=2, concat=False)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, data):
        x = self.first(data.x, data.edge_index).relu()
        x = self.second(x, data.edge_index).relu()
        return self.head(global_mean_pool(x, data.batch))


device = torch.device(sys.argv[1])
seed_everything(0)
graphs = []
for index in range(16):
    edges = to_undirected(torch.randint(0, 6, (2, 12)))
    graphs.append(Data(x=torch.randn(6, 4), edge_index=edges, y=torch.tensor([index % 2])))
loader = DataLoader(graphs, batch_size=4, shuffle=True)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(3):
    for batch in loader:
        graph = batch.to(device)
        loss = torch.nn.functional.cross_entropy(model(graph), graph.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    right = sum(int((model(batch).argmax(1) == batch.y).sum()) for batch in (b.to(device) for b in loader))
print(f"VALUE {loss.item():.6f} {right}")
