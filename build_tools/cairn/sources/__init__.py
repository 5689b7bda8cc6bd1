"""From upstream repositories to trees that can be built: checkout, pins, hipify, manifest."""
