"""Write images in every output format, and push them."""
