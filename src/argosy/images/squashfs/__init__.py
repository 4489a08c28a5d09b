"""Read, pack and join squashfs file systems."""
