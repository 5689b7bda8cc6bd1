"""Tags the words of sentences: an LSTM over packed sequences, a loss with weights, a clipped step."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.register_buffer("positions", torch.linspace(0, 1, 12)[:, None])
        self.lstm = nn.LSTM(8, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 4)

    def forward(self, words, lengths):
        x = self.embedding(words)
        x = x + self.positions[: words.shape[1]]
        state = (torch.zeros(2, len(words), 8, device=words.device), x.new_zeros(2, len(words), 8))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        packed, _ = self.lstm(packed, state)
        x, _ = pad_packed_sequence(packed, batch_first=True)
        mask = torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None]
        return self.head(x) * mask[..., None]


def collate(rows):
    words, tags = zip(*rows, strict=True)
    lengths = torch.tensor([len(row) for row in words])
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True), lengths


torch.manual_seed(0)
rows = [(torch.randint(1, 20, (n,)), torch.randint(0, 4, (n,))) for n in (5, 7, 12, 3, 9, 4)]
model = Tagger().to(device)
criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 1.0, 2.0], device=device))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
losses, seen = [], torch.zeros(4, device=device)
for _ in range(2):
    for batch in DataLoader(rows, batch_size=3, collate_fn=collate, pin_memory=True):
        words, tags = batch[0].to(device, non_blocking=True), batch[1].to(device)
        scores = model(words, batch[2])
        loss = criterion(scores.flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += torch.bincount(tags.flatten(), minlength=4)
        losses.append(loss.item())
values = [*losses, *seen.cpu().numpy().tolist()]
