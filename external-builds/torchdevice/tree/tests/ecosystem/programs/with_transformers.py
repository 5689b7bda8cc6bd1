"""Transformers: a small Llama by `Trainer`, evaluated, then asked to go on by `generate`."""

import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(0)
config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    pad_token_id=0,
)
model = LlamaForCausalLM(config)
rows = [{"input_ids": (row := torch.randint(1, 32, (8,))), "labels": row} for _ in range(16)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        num_train_epochs=2,
        logging_steps=2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=sys.argv[1] == "cpu",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    evaluated = trainer.evaluate()
losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
asked = torch.tensor([[1, 2, 3]], device=model.device)
made = model.generate(asked, max_new_tokens=5, do_sample=False, attention_mask=torch.ones_like(asked))
print("VALUE", *losses, f"{evaluated['eval_loss']:.6f}", made.tolist())
