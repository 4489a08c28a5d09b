"""Steps and stages of a project file, and the users' own scripts."""
