"""Wrap environments and images as plain commands."""
