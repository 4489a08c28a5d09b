"""Options of the commands that install packages: build, lock, bundle and wrap."""

from __future__ import annotations

from argosy.cli.options import table_options
from argosy.recipes.build_options import InstallOptions, PackageOptions

package_options = table_options(PackageOptions)
"""Add the options that choose packages."""

building_options = table_options(InstallOptions)
"""Add the options that choose what is installed over which base, and where the work is done."""
