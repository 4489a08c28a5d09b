"""Examine machines, images, runs, logs and sites, and report findings."""
