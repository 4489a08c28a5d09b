"""Keep wheels and conda packages packed in the cache, and join them to the layer of an image."""
