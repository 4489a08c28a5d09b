"""Facts about this machine: programs, GPUs, CDI files, emulators."""
