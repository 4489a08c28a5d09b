"""Records, errors, processes, files and locks: what every other package builds on."""
