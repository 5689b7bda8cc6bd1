"""Hugging Face's Trainer with two devices, against what `DataParallel` does, by hand and without TorchDevice.

With CAIRN_TEST_TORCH_PYTHON, an interpreter that has torch, transformers and accelerate. The loss of a
classifier is twice what it is on one device: its forward takes `**kwargs` and leaves `num_items_in_batch`
alone, and the Trainer multiplies by the number of devices, also on GPUs. A language model's is the same.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[3] / "external-builds/torchdevice/tree/src"
PROGRAM = """
import json, sys, torch
from transformers import (
    BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
)

class Replicas(torch.nn.Module):  # what DataParallel does, one after another and where the data is
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, **inputs):
        parts = [{name: value.chunk(2)[index] for name, value in inputs.items()} for index in range(2)]
        return {"loss": torch.stack([self.module(**part)["loss"] for part in parts])}

class Two(TrainingArguments):
    n_gpu = property(lambda self: 2)

kind, by_hand, folder = sys.argv[1], sys.argv[2] == "by hand", sys.argv[3]
if by_hand:
    torch.nn.DataParallel = Replicas
torch.manual_seed(0)
small = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=32)
if kind == "classifier":
    config = BertConfig(**small, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    model = BertForSequenceClassification(config)
else:
    model = LlamaForCausalLM(LlamaConfig(**small, num_key_value_heads=2))
rows = torch.randint(0, 32, (16, 8))
data = [{"input_ids": row, "labels": row if kind == "language model" else row[0] % 2} for row in rows]
one = sys.argv[2] == "one device"
arguments = (Two if by_hand else TrainingArguments)(
    folder, per_device_train_batch_size=8 if one else 4, max_steps=2, logging_steps=1, report_to=[],
    save_strategy="no", disable_tqdm=True, use_cpu=by_hand or one,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data)
assert arguments.n_gpu == (0 if one else 2)
trainer.train()
steps = [row for row in trainer.state.log_history if "loss" in row]
print("LOSSES", json.dumps([[row["loss"], row["grad_norm"]] for row in steps]))
"""


def losses(folder: Path, kind: str, how: str, *options: str) -> Any:
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    python = os.environ.get("CAIRN_TEST_TORCH_PYTHON", sys.executable)
    by = ["-m", "torchdevice", "--to=cpu", "--devices=2", *options] if how == "torchdevice" else []
    done = subprocess.run(
        [python, "-W", "ignore", *by, "program.py", kind, how, "out"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.split("LOSSES ")[1])


@pytest.mark.by_hand
@pytest.mark.parametrize("kind", ["classifier", "language model"])
def test_two_devices_give_what_two_replicas_give(kind: str, tmp_path: Path) -> None:
    one = losses(tmp_path, kind, "one device")
    expected = losses(tmp_path, kind, "by hand")
    factor = 2 if kind == "classifier" else 1
    assert expected[0] == pytest.approx([factor * value for value in one[0]], rel=1e-4)
    for options in ((), ("--strict",)):
        found = losses(tmp_path, kind, "torchdevice", *options)
        assert found == [pytest.approx(step, rel=1e-5) for step in expected], options
