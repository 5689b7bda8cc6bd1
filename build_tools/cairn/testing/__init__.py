"""What was run on which bytes, on which hardware, and the verdict."""
