"""Python packages in a layer: uv, wheels, byte code, PyTorch indexes."""
