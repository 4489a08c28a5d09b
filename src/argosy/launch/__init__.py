"""Plan a launch, render its script, submit it."""
