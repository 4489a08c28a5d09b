"""Draw a node of a site as SVG: its cores, reserved cores, GPUs, NICs, and the CPU binding of ranks.

A node without a GPU -> CPU map shows its GPUs apart from its cores, and its cores without numbers, since nothing is
known about which belong together. A node whose number of cores is unknown has no picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from argosy.core.errors import SiteError
from argosy.sites.binding import parse_ranges
from argosy.sites.profile import Node, Site

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733", "#009988")
"""Colours of the GPUs, also distinct for colour-blind readers (Paul Tol's bright and vibrant schemes)."""
NO_MAP = "#555555"
DARK_TEXT = frozenset({"#ccbb44", "#66ccee"})

CELL, GAP, PAD, MARGIN = 22, 3, 14, 24
"""Sizes in pixels: a core, the gap between cores, the padding of a box, the margin around the node."""
GPU_HEIGHT, HEAD, FOOT = 44, 64, 62
MOST_ACROSS = 4
"""Boxes of cores side by side."""
FEW_COLUMNS, MORE_COLUMNS = 8, 12
"""Cores in a row, for NUMA nodes with few and with many cores."""


class Domain(msgspec.Struct, frozen=True):
    """A box of the picture: a NUMA node with its GPUs, or a GPU with its cores.

    Attributes
    ----------
    numa
        Number of the NUMA node; None if the map does not follow the NUMA nodes.
    """

    numa: int | None
    cores: tuple[int, ...]
    gpus: tuple[int, ...]


def picture_missing(node: Node) -> str:
    """Return why a node cannot be drawn; empty if it can."""
    return "" if node.cores else "the profile does not have the number of cores of a node"


def _has_map(node: Node) -> bool:
    return bool(node.gpus) and len(node.gpu_cpus) == node.gpus


def draw_node(site: Site) -> str:
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
    domains = _domains(node)
    columns = _columns(domains)
    wide = columns * (CELL + GAP) - GAP + 2 * PAD
    rows = max(-(-len(domain.cores) // columns) for domain in domains)
    high = _cores_top(node) + rows * (CELL + GAP) - GAP + PAD
    across = min(len(domains), MOST_ACROSS)
    width = 2 * MARGIN + across * (wide + PAD) - PAD
    top = HEAD if _has_map(node) or not node.gpus else HEAD + GPU_HEIGHT + PAD
    bottom = top + -(-len(domains) // across) * (high + PAD) - PAD
    parts = [_head(site, width, bottom + FOOT)]
    if top > HEAD:
        parts += _draw_gpus(node, range(node.gpus), (MARGIN, HEAD), width - 2 * MARGIN)
    for index, domain in enumerate(domains):
        corner = MARGIN + index % across * (wide + PAD), top + index // across * (high + PAD)
        parts += _draw_domain(node, domain, corner, (wide, high), columns)
    parts += _foot(node, width, bottom)
    return "\n".join((*parts, "</svg>", ""))


def _columns(domains: Sequence[Domain]) -> int:
    """Return the cores in a row of a box: all boxes together are about as wide for one domain as for four."""
    if len(domains) < MOST_ACROSS:
        return FEW_COLUMNS * MOST_ACROSS // len(domains)
    return FEW_COLUMNS if max(len(domain.cores) for domain in domains) <= FEW_COLUMNS**2 else MORE_COLUMNS


def _cores_top(node: Node) -> int:
    """Return the distance of the cores from the top of their box."""
    return PAD + 16 + (GPU_HEIGHT + PAD if _has_map(node) else 0)


def _domains(node: Node) -> tuple[Domain, ...]:
    """Divide the cores among NUMA nodes if the map agrees with equal blocks, else among GPUs."""
    if not _has_map(node):
        return _blocks(node)
    numas = node.numa
    if numas and node.cores % numas == 0 and len(node.gpu_numa) == node.gpus:
        block = node.cores // numas
        homes = [{core // block for core in parse_ranges(text)} for text in node.gpu_cpus]
        if all(home == {numa} for home, numa in zip(homes, node.gpu_numa, strict=True)):
            return tuple(
                Domain(
                    numa,
                    tuple(range(numa * block, (numa + 1) * block)),
                    tuple(gpu for gpu in range(node.gpus) if node.gpu_numa[gpu] == numa),
                )
                for numa in range(numas)
            )
    mapped = [tuple(sorted(parse_ranges(text))) for text in node.gpu_cpus]
    rest = tuple(sorted(frozenset(range(node.cores)) - {core for cores in mapped for core in cores}))
    own = tuple(Domain(None, cores, (gpu,)) for gpu, cores in enumerate(mapped))
    return (*own, Domain(None, rest, ())) if rest else own


def _blocks(node: Node) -> tuple[Domain, ...]:
    """Divide the cores evenly among the NUMA nodes, or among the sockets."""
    number = next((count for count in (node.numa, node.sockets) if count and node.cores % count == 0), 1)
    block = node.cores // number
    return tuple(
        Domain(index if number == node.numa else None, tuple(range(index * block, (index + 1) * block)), ())
        for index in range(number)
    )


def _head(site: Site, width: int, height: int) -> str:
    title = escape(site.title or site.name)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="system-ui, sans-serif">\n'
        f"<title>A node of {title}</title>\n<desc>{escape(_describe(site.node))}</desc>\n"
        f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10" fill="#ffffff" stroke="#888888"/>\n'
        f'<text x="{MARGIN}" y="30" font-size="17" font-weight="600" fill="#222222">{title}</text>\n'
        f'<text x="{MARGIN}" y="50" font-size="12" fill="#555555">{escape(_render_facts(site.node))}</text>'
    )


def _describe(node: Node) -> str:
    """Describe the picture in text."""
    if not _has_map(node):
        return f"{node.cores} cores" + (f", {node.gpus} GPUs" if node.gpus else "")
    return "; ".join(f"GPU {gpu}: cores {cores}" for gpu, cores in enumerate(node.gpu_cpus))


def _render_facts(node: Node) -> str:
    reserved = len(parse_ranges(node.reserved))
    facts = [
        node.cpu_model,
        f"{node.cores} cores" + (f", {reserved} reserved by the system" if reserved else ""),
        f"{node.numa} NUMA nodes" if node.numa else "",
        f"{node.memory_mb // 1024} GB memory" if node.memory_mb else "",
    ]
    return " · ".join(filter(None, facts))


def _draw_domain(
    node: Node, domain: Domain, corner: tuple[int, int], size: tuple[int, int], columns: int
) -> Iterator[str]:
    (left, top), (wide, high) = corner, size
    yield f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" rx="7" fill="#f6f6f4" stroke="#cccccc"/>'
    if domain.numa is not None:
        yield f'<text x="{left + PAD}" y="{top + 19}" font-size="12" fill="#555555">NUMA node {domain.numa}</text>'
    yield from _draw_gpus(node, domain.gpus, (left + PAD, top + PAD + 16), wide - 2 * PAD)
    owner = {core: gpu for gpu in domain.gpus for core in parse_ranges(node.gpu_cpus[gpu])}
    reserved = parse_ranges(node.reserved)
    for position, core in enumerate(domain.cores):
        x = left + PAD + position % columns * (CELL + GAP)
        y = top + _cores_top(node) + position // columns * (CELL + GAP)
        yield (
            _draw_core(core, (x, y), owner.get(core), reserved=core in reserved)
            if _has_map(node)
            else (f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="3" fill="#e4e4e0"/>')
        )


def _draw_gpus(node: Node, gpus: Sequence[int], corner: tuple[int, int], wide: int) -> Iterator[str]:
    """Draw GPUs side by side."""
    left, top = corner
    for column, gpu in enumerate(gpus):
        share = (wide + GAP) / len(gpus)
        yield from _draw_gpu(node, gpu, (left + column * share, top), share - GAP)


def _draw_gpu(node: Node, gpu: int, corner: tuple[float, float], wide: float) -> Iterator[str]:
    (left, top), colour = corner, COLOURS[gpu % len(COLOURS)] if _has_map(node) else NO_MAP
    text = "#222222" if colour in DARK_TEXT else "#ffffff"
    below = f"cores {node.gpu_cpus[gpu]}" if _has_map(node) else node.gpu_model
    below = f"bus {node.gpu_pci[gpu]}" if len(node.gpu_pci) == node.gpus else below
    middle = left + wide / 2
    yield f'<rect x="{left:g}" y="{top:g}" width="{wide:g}" height="{GPU_HEIGHT}" rx="5" fill="{colour}"/>'
    yield (
        f'<text x="{middle:g}" y="{top + 19:g}" font-size="13" font-weight="600" text-anchor="middle" '
        f'fill="{text}">GPU {gpu}</text>'
    )
    yield (
        f'<text x="{middle:g}" y="{top + 35:g}" font-size="10.5" text-anchor="middle" fill="{text}">'
        f"{escape(below)}</text>"
    )


def _draw_core(core: int, corner: tuple[int, int], gpu: int | None, *, reserved: bool) -> str:
    left, top = corner
    colour, text, title, cross = "#e4e4e0", "#777777", "no rank is bound here", ""
    if gpu is not None:
        colour, title = COLOURS[gpu % len(COLOURS)], f"rank of GPU {gpu}"
        text = "#222222" if colour in DARK_TEXT else "#ffffff"
    if reserved:
        title, size = "reserved by the system", CELL - 6
        cross = (
            f'<path d="M{left + 3} {top + 3}l{size} {size}m0 {-size}l{-size} {size}" '
            f'stroke="#bbbbbb" stroke-width="1.5"/>'
        )
    return (
        f'<g><title>core {core}: {title}</title><rect x="{left}" y="{top}" width="{CELL}" height="{CELL}" rx="3" '
        f'fill="{colour}"/>{cross}<text x="{left + CELL / 2:g}" y="{top + 15}" font-size="10" text-anchor="middle" '
        f'fill="{text}">{core}</text></g>'
    )


def _foot(node: Node, width: int, top: int) -> Iterator[str]:
    if node.nics:
        speed = f", {node.nic_gbit} Gbit/s each" if node.nic_gbit else ""
        yield (
            f'<rect x="{MARGIN}" y="{top + 12}" width="{width - 2 * MARGIN}" height="18" rx="4" fill="#444444"/>'
            f'<text x="{width / 2:g}" y="{top + 25}" font-size="11" text-anchor="middle" fill="#ffffff">'
            f"{node.nics} x {escape(node.nic or 'network interface')}{speed}</text>"
        )
    crossed = " · crossed: reserved" if node.reserved else ""
    text = f"A core has the colour of the GPU whose rank is bound to it{crossed} · grey: no rank"
    if not _has_map(node):
        text = "Each rank gets its share of the cores" + (
            "; the profile has no map of GPUs to cores" if node.gpus else ""
        )
    yield f'<text x="{MARGIN}" y="{top + 49}" font-size="11" fill="#555555">{text}</text>'
