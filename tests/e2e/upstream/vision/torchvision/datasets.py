"""Stand-in: empty."""
