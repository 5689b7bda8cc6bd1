"""Contract: packages inside packages are in the wheel, also those that were added since the last build."""


def warp_size(target: str) -> int:
    """The threads that run in lockstep on a target: 64 on GCN and CDNA (gfx9xx), 32 on RDNA (gfx1xxx)."""
    if not target.startswith("gfx") or len(target) not in (6, 7):
        raise ValueError(f"unknown target: {target}")
    return 64 if target.startswith("gfx9") else 32
