"""The generated pages of docs/reference, one module per kind of page."""
