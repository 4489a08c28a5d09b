"""Prepare the Python of Argosy's bundle: it runs at each start, for the command `argosy` and for what it starts."""

import os
from pathlib import Path

_TOOLS = Path(__file__).parents[4] / "tools"
# OpenSSL of the bundle looks in /etc/ssl, as Debian and SUSE have it. Red Hat's systems have one file elsewhere.
_RED_HAT = "/etc/pki/tls/certs/ca-bundle.crt"

os.environ["PATH"] = f"{_TOOLS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
if not os.environ.keys() & {"SSL_CERT_FILE", "SSL_CERT_DIR"} and Path(_RED_HAT).is_file():
    os.environ["SSL_CERT_FILE"] = _RED_HAT
