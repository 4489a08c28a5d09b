"""Names of instruction sets, as conda's virtual package ``__archspec`` has them: a table of facts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from argosy.nearest import nearest_word

_X86 = """
alderlake arrowlake arrowlake_s broadwell bulldozer cannonlake cascadelake core2 excavator haswell icelake ivybridge k10
mic_knl nehalem nocona piledriver sandybridge sapphirerapids skylake skylake_avx512 steamroller westmere x86_64
x86_64_v2 x86_64_v3 x86_64_v4 zen zen2 zen3 zen4 zen5 zen6
"""
_ARM = """
a64fx aarch64 ampere1 ampere1a armv8.1a armv8.2a armv8.3a armv8.4a armv8.5a armv8.6a armv9.0a armv9.2a cortex_a72 m1 m2
m3 m4 neoverse_n1 neoverse_n2 neoverse_v1 neoverse_v2 neoverse_v3ae olympus thunderx2
"""
_POWER = "power10le power8le power9le ppc64le"

ARCHSPEC: Mapping[str, frozenset[str]] = MappingProxyType(
    {"x86_64": frozenset(_X86.split()), "aarch64": frozenset(_ARM.split()), "ppc64le": frozenset(_POWER.split())}
)
"""Architecture -> its names: microarchitectures.json of archspec 0.2.7 (github.com/archspec/archspec-json)."""


def refuse_processor(name: str, arch: str) -> None:
    """Refuse a name that archspec does not have, or has for another architecture.

    Parameters
    ----------
    arch
        Architecture of the node; empty where it is not known.

    Raises
    ------
    ValueError
        Naming the nearest.
    """
    home = next((each for each, names in ARCHSPEC.items() if name in names), "")
    if not home:
        near = nearest_word(name, sorted(frozenset[str]().union(*ARCHSPEC.values())))
        hint = f"did you mean {near}?" if near else 'write one, as archspec = "zen3"'
        raise ValueError(f"archspec = {name!r} is none of archspec's names; {hint}")
    if arch in ARCHSPEC and arch != home:
        raise ValueError(f"archspec = {name!r} is a processor of {home}, and arch = {arch!r}")
