"""The version, as a constant: importlib.metadata would cost 30 ms of every start."""

VERSION = "0.1.0"
