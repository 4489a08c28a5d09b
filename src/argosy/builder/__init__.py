"""Build an image from a recipe and a base."""
