"""References to images in registries, and how to fetch them."""
