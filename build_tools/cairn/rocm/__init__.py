"""The ROCm SDK as pip packages: making, installing and querying them."""
