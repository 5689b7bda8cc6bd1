"""Diffusers: a small UNet that learns to take noise away, and a pipeline that draws with it."""

import sys

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel

device = sys.argv[1]
torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=8,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(8, 16),
    norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
).to(device)
schedule = DDPMScheduler(num_train_timesteps=20)
optimizer = torch.optim.AdamW(unet.parameters(), 1e-3)
average = EMAModel(unet.parameters())
for _ in range(3):
    clean = torch.randn(4, 1, 8, 8).to(device)
    noise = torch.randn(clean.shape).to(device)
    steps = torch.randint(0, 20, (4,)).to(device)
    found = unet(schedule.add_noise(clean, noise, steps), steps, return_dict=False)[0]
    loss = torch.nn.functional.mse_loss(found, noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.step(unet.parameters())
pipeline = DDPMPipeline(unet, schedule).to(device)
pipeline.set_progress_bar_config(disable=True)
drawn = pipeline(
    generator=torch.Generator(device).manual_seed(0), num_inference_steps=4, output_type="np"
).images
print(f"VALUE {loss.item():.6f} {drawn.sum():.4f}")
