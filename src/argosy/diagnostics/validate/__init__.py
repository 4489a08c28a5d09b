"""Validate a site profile with one small job."""
