"""`cairn rocm`: fetch ROCm's artifacts, make and install the packages of its SDK; one module per command."""
