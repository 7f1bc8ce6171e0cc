"""Races beside the libraries one would pick instead: `make bench-setup`, then `make bench` (docs/benchmarks.md)."""
