"""Image files: open, find, fetch, send and describe them."""
