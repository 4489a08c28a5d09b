"""Draw a node of a site as SVG, and render the site's profile as one self-contained HTML page.

The picture has cores, reserved cores, GPUs, network cards, and the CPU binding of ranks. A node without a GPU -> CPU
map shows its GPUs apart from its cores, and its cores without numbers, since nothing is known about which belong
together. The same holds for network cards without `gpu_nics`. A node whose number of cores is unknown has no picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from argosy.core.errors import SiteError
from argosy.core.pages import page_templates
from argosy.sites.binding import parse_ranges
from argosy.sites.node_drawing import COLORS, Box, NodeParts, draw_node, has_map, knows_cards
from argosy.sites.profile import Node, Site
from argosy.sites.show import ProfileValue
from argosy.version import VERSION

TEMPLATES = Path(__file__).with_name("templates")


def render_site(site: Site, rows: Sequence[ProfileValue]) -> str:
    """Render the page of a site.

    Parameters
    ----------
    rows
        Values of the profile (`argosy.sites.show.explain_site`).
    """
    sections = [(name, tuple(own)) for name, own in groupby(rows, key=lambda row: row.key.partition(".")[0])]
    return (
        page_templates(TEMPLATES)
        .get_template("site.html")
        .render(
            argosy=VERSION,
            site=site,
            picture=Markup(render_picture(site)),  # noqa: S704 - the picture escapes its texts
            missing=picture_missing(site.node),
            sections=sections,
            sources=lambda row: row.source.split("; ") if row.source else [],
        )
    )


def picture_missing(node: Node) -> str:
    """Return why a node cannot be drawn; empty if it can."""
    return "" if node.cores else "the profile does not have the number of cores of a node"


def draw_site_node(site: Site) -> str:
    """Return a picture (SVG) of a node of the site.

    Raises
    ------
    SiteError
        If the profile does not describe enough of the node.
    """
    if missing := picture_missing(site.node):
        raise SiteError(f"cannot draw a node of {site.name}", evidence=missing, hint="add node.cores to the profile")
    return render_picture(site)


def render_picture(site: Site) -> str:
    """Render a node of the site; empty if its cores are unknown (see `picture_missing`)."""
    node = site.node
    if picture_missing(node):
        return ""
    parts = NodeParts(
        title=site.title or site.name,
        label=f"A node of {site.title or site.name}",
        facts=render_facts(node),
        description=_describe(node),
        cores={core: _core(node, core) for core in range(node.cores)},
        gpus=tuple(_gpu(node, gpu) for gpu in range(node.gpus)),
        cards=tuple(Box("plain", "NIC", on_color=True) for _ in range(node.nics)),
        notes=(_legend(node),),
    )
    return draw_node(node, parts)


def _describe(node: Node) -> str:
    cards = f"; {node.nics} network cards" if node.nics else ""
    if not has_map(node):
        return f"{node.cores} cores" + (f", {node.gpus} GPUs" if node.gpus else "") + cards
    served = [f", network card {card}" for card in node.gpu_nics] if knows_cards(node) else [""] * node.gpus
    return "; ".join(f"GPU {gpu}: cores {cores}{served[gpu]}" for gpu, cores in enumerate(node.gpu_cpus)) + cards


def render_facts(node: Node) -> str:
    """Render CPU, cores, memory and network of a node in one line."""
    reserved = len(parse_ranges(node.reserved))
    speed = f", {node.nic_gbit} Gbit/s each" if node.nic_gbit else ""
    facts = [
        node.cpu_model,
        f"{node.cores} cores" + (f", {reserved} reserved by the system" if reserved else ""),
        f"{node.numa} NUMA nodes" if node.numa else "",
        f"{node.memory_mb // 1024} GB memory" if node.memory_mb else "",
        f"{node.nics} x {node.nic or 'network card'}{speed}" if node.nics else "",
    ]
    return " · ".join(filter(None, facts))


def _core(node: Node, core: int) -> Box:
    """Return a core in the colour of the GPU whose rank is bound to it; without a map, one without a number."""
    if not has_map(node):
        return Box("free")
    gpu = next((gpu for gpu, text in enumerate(node.gpu_cpus) if core in parse_ranges(text)), None)
    if gpu is not None:
        return Box(f"c{gpu % COLORS}", str(core), f"core {core}: rank of GPU {gpu}", on_color=True)
    if core in parse_ranges(node.reserved):
        return Box("free", str(core), f"core {core}: reserved by the system", crossed=True)
    return Box("free", str(core), f"core {core}: no rank is bound here")


def _gpu(node: Node, gpu: int) -> Box:
    below = f"cores {node.gpu_cpus[gpu]}" if has_map(node) else node.gpu_model
    below = f"bus {node.gpu_pci[gpu]}" if len(node.gpu_pci) == node.gpus else below
    return Box(f"c{gpu % COLORS}" if has_map(node) else "plain", f"GPU {gpu}", below=below, on_color=True)


def _legend(node: Node) -> str:
    if not has_map(node):
        missing = "; the profile has no map of GPUs to cores" if node.gpus else ""
        return f"Each rank gets its share of the cores{missing}"
    crossed = " · crossed: reserved" if node.reserved else ""
    return f"A core has the colour of the GPU whose rank is bound to it{crossed} · grey: no rank"
