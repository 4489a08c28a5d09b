"""Draft a site profile by asking the cluster."""
