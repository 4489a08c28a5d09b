"""Slurm: directives, commands, replies and refusals."""
