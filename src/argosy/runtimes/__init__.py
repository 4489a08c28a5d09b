"""Container runtimes: plan how a container is entered, and run commands in it."""
