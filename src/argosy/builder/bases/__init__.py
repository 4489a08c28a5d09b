"""Bases: open, fetch or make the root file system that an image builds on."""
