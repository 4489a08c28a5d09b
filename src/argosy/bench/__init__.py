"""Benchmarks: collectives, nodes, settings, start-up."""
