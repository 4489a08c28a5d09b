"""What environment files, project files and locks ask for."""
