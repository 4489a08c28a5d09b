"""Verify what a run used: network, GPUs, CPU binding."""
