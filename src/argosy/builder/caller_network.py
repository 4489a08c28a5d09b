"""Give the programs of a build the caller's proxies and certificates, so that they reach the network as the caller."""

from __future__ import annotations

from pathlib import Path

from argosy.builder.backends.container import OWN_FOLDER, BuildContainer
from argosy.core.model import Bind
from argosy.recipes.pip_settings import CERTIFICATE_VARIABLES, PROXY_VARIABLES

PROXIES = tuple(name for low in PROXY_VARIABLES for name in (low, low.upper()))
CERTIFICATES = (*CERTIFICATE_VARIABLES, "SSL_CERT_DIR", "PIP_CERT", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS")
"""Variables that name a file or folder of certificates: of OpenSSL, requests, curl, pip, git and Node.js."""

INSIDE = f"{OWN_FOLDER}certificates/"


def with_network(build_container: BuildContainer) -> tuple[BuildContainer, dict[str, str]]:
    """Mount the caller's certificates; return the container and the variables of its proxies and certificates."""
    host = build_container.session.host
    given = {name: value for name in (*PROXIES, *CERTIFICATES) if (value := host.environment.get(name))}
    files = {name: str(Path(host.cwd, given[name])) for name in CERTIFICATES if name in given}
    there = [path for path in dict.fromkeys(files.values()) if Path(path).exists()]
    inside = {path: f"{INSIDE}{number}/{Path(path).name}" for number, path in enumerate(there)}
    variables = {name: inside.get(files.get(name, ""), value) for name, value in given.items()}
    return build_container.with_mounts(*(Bind(path, inside[path], read_only=True) for path in there)), variables
