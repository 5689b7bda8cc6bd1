"""Stores, indexes, the gate and promotion."""
