"""Tools for those who extend torch."""
