"""torchtune: LoRA on a small Llama with its own loss and schedule, then generation."""

import sys

import torch
from torchtune import generation, training, utils
from torchtune.models.llama3 import lora_llama3
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params

device = utils.get_device(sys.argv[1])
training.set_seed(0)
model = lora_llama3(
    lora_attn_modules=["q_proj", "v_proj"],
    vocab_size=32,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    embed_dim=16,
    max_seq_len=32,
    lora_rank=2,
    lora_alpha=4,
).to(device)
set_trainable_params(model, get_adapter_params(model))
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 0.01)
schedule = training.get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=4)
criterion = CEWithChunkedOutputLoss(num_output_chunks=2)
model.set_num_output_chunks(criterion.num_output_chunks)
rows = torch.randint(0, 32, (4, 8))
for _ in range(4):
    tokens, labels = rows[:, :-1].to(device), rows[:, 1:].to(device)
    loss = criterion(model(tokens), labels)
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
model.set_num_output_chunks(0)
model.eval()
made, _ = generation.generate(model, rows[:1, :3].to(device), max_generated_tokens=4, top_k=1)
print(f"VALUE {loss.item():.6f} {made.tolist()}")
