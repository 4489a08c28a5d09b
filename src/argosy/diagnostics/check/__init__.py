"""Check before the queue whether an image works at a site."""
