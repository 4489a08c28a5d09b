"""A job while it runs: what its ranks use, their last output, and their stacks."""
