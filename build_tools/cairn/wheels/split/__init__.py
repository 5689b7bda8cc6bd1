"""Device code in wheels of its own, one a target: `split.split` takes it out, `join.join` puts it back."""
