"""Ignite: trainer and evaluator with metrics, early stopping, and a checkpoint."""

import sys
import tempfile

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping
from ignite.metrics import Accuracy, ConfusionMatrix, Loss
from ignite.utils import manual_seed
from torch.utils.data import DataLoader, TensorDataset

device = sys.argv[1]
manual_seed(0)
x = torch.randn(32, 8)
loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
criterion = torch.nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, criterion, device=device)
metrics = {
    "accuracy": Accuracy(device=device),
    "loss": Loss(criterion, device=device),
    "confusion": ConfusionMatrix(2, device=device),
}
evaluator = create_supervised_evaluator(model, metrics=metrics, device=device)
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _: evaluator.run(loader))
evaluator.add_event_handler(
    Events.COMPLETED, EarlyStopping(3, lambda engine: -engine.state.metrics["loss"], trainer)
)
with tempfile.TemporaryDirectory() as folder:
    saver = Checkpoint({"model": model, "optimizer": optimizer}, DiskSaver(folder, require_empty=False))
    trainer.add_event_handler(Events.COMPLETED, saver)
    trainer.run(loader, max_epochs=4)
    Checkpoint.load_objects({"model": model}, torch.load(saver.last_checkpoint))
found = evaluator.run(loader).metrics
print(f"VALUE {found['loss']:.6f} {found['accuracy']:.4f} {found['confusion'].tolist()}")
