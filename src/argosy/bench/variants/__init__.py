"""Compare settings of a user's program in one job."""
