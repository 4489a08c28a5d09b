"""The program that runs inside the container: it needs Python's standard library and the driver's library only."""
