"""Environment files, project files and locks."""
