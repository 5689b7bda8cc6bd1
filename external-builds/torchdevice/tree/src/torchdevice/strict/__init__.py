"""`strict`: tensors have the device that was asked for, and devices that are mixed raise PyTorch's own error.

Everything computes on the CPU. `places` keeps the device of each storage, `mode` sees every call and asks the
rules in `rules`, `mixing` finds what is wrong where devices differ, and `patches` does what no mode sees.
"""
