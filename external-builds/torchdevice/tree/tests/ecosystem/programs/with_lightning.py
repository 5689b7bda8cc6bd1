"""Lightning: a `Trainer` with a checkpoint, validation and gradient clipping."""

import sys
import tempfile

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        self.register_buffer("scale", torch.ones(8))

    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.net(x * self.scale), y)

    def validation_step(self, batch, index):
        self.log("loss", self.training_step(batch, index))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


lightning.seed_everything(0, verbose=False)
x = torch.randn(32, 8)
loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8)
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        accelerator="gpu" if sys.argv[1] == "cuda" else "cpu",
        devices=1,
        max_epochs=2,
        gradient_clip_val=1.0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    model = Classifier()
    trainer.fit(model, loader, loader)
    (validated,) = trainer.validate(model, loader, ckpt_path="best", verbose=False)
print(f"VALUE {validated['loss']:.6f} {trainer.callback_metrics['loss'].item():.6f}")
