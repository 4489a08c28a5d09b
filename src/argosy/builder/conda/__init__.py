"""Conda environments in a layer."""
