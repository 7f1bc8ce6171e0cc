"""Time and memory of the same work, side by side."""
