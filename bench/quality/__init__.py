"""The race for quality: everyone's predictions, tuned alike and trained alike (docs/benchmarks.md)."""
