"""Site profiles: values with their evidence, detection, partitions, CPU binding."""
