"""Image formats: SIF and squashfs, and telling them apart."""
