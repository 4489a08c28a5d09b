"""Build backends: run programs inside a base's root file system."""
