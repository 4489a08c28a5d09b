"""A Spack package of Argosy's self-contained bundle, which brings its own Python and all dependencies.

Copy this file to ``packages/argosy/package.py`` of your repository of packages, and run ``spack install --no-checksum
argosy`` in the folder that contains argosy-0.1.0-linux-x86_64.run.  Add the SHA-256 of the file, which the release
publishes next to it, as ``sha256=`` to have Spack check it.
"""

import os

from spack.package import *


class Argosy(Package):
    """Build GPU container images from environment files, and launch them on Slurm clusters."""

    homepage = "https://pypi.org/project/argosy/"
    url = f"file://{os.getcwd()}/argosy-0.1.0-linux-x86_64.run"
    manual_download = True

    license("Apache-2.0")

    version("0.1.0", expand=False)

    requires("platform=linux")
    requires("target=x86_64:,aarch64:", msg="bundles exist for x86_64 and aarch64")

    def url_for_version(self, version):
        machine = os.uname().machine
        return f"file://{os.getcwd()}/argosy-{version}-linux-{machine}.run"

    def install(self, spec, prefix):
        # The installer needs a folder of its own: Spack writes files into the prefix before.
        which("sh")(self.stage.archive_file, "--prefix", join_path(prefix, "argosy"))
        mkdirp(prefix.bin)
        symlink(join_path(prefix, "argosy", "bin", "argosy"), prefix.bin.argosy)

    @run_after("install")
    def check(self):
        Executable(self.prefix.bin.argosy)("--version")
