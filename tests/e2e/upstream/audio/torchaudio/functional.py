"""Functions on waves; `forced_align` is registered as the C++ of torchaudio registers it."""

import math

import torch

_LIBRARY = torch.library.Library("torchaudio", "DEF")
_LIBRARY.define("forced_align(Tensor log_probs, Tensor targets, int blank) -> (Tensor, Tensor)")


def _forced_align(log_probs, targets, blank):
    steps, symbols = log_probs[0].tolist(), [blank]
    for target in targets[0].tolist():
        symbols += [target, blank]
    best = {0: (0.0, ()), 1: (0.0, ())}
    for number, step in enumerate(steps):
        after = {}
        for place, symbol in enumerate(symbols):
            skip = 2 if symbol != blank and symbol != symbols[place - 2] else 1
            before = [place] if number == 0 else range(max(0, place - skip), place + 1)
            paths = [best[each] for each in before if each in best]
            if paths:
                score, path = max(paths)
                after[place] = score + step[symbol], (*path, (symbol, step[symbol]))
        best = after
    _, path = max(best[each] for each in (len(symbols) - 1, len(symbols) - 2) if each in best)
    return (
        torch.tensor([[symbol for symbol, _ in path]], dtype=targets.dtype),
        torch.tensor([[score for _, score in path]], dtype=log_probs.dtype),
    )


_LIBRARY.impl("forced_align", _forced_align, "CPU")


def forced_align(log_probs, targets, blank=0):
    return torch.ops.torchaudio.forced_align(log_probs, targets, blank)


def resample(waveform, orig_freq, new_freq, lowpass_filter_width=32):
    """By a windowed sinc, of frequencies of which one is a multiple of the other."""
    step = orig_freq // new_freq
    reach = lowpass_filter_width * step
    at = torch.arange(-reach, reach + 1, device=waveform.device, dtype=waveform.dtype)
    kernel = torch.sinc(at / step) / step * torch.cos(at / reach * math.pi / 2) ** 2
    padded = torch.nn.functional.pad(waveform[None, None], (reach, reach))
    return torch.nn.functional.conv1d(padded, kernel[None, None], stride=step)[0, 0]


def lfilter(waveform, a_coeffs, b_coeffs):
    out = torch.zeros_like(waveform)
    for i in range(len(waveform)):
        for k in range(min(len(b_coeffs), i + 1)):
            out[i] += b_coeffs[k] * waveform[i - k] - (a_coeffs[k] * out[i - k] if k else 0)
    return out / a_coeffs[0]
