"""Command lines of the scripts that keep upstream's names and flags (ROCm/TheRock, external-builds)."""
