"""Draw a node as SVG: boxes of cores with their GPUs and network cards; pure.

The caller decides what each core, GPU and card shows. The style sheet `node.css` lies in the SVG and has a light and a
dark form, so that the picture can be used alone and inside a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

import msgspec

from argosy.sites.binding import parse_ranges
from argosy.sites.profile import Node

STYLE = Path(__file__).parent / "templates/node.css"

COLORS = 8
"""Number of colours in the style sheet: classes c0 to c7. Each has contrast with its text in both forms."""

CELL, GAP, PAD, MARGIN = 22, 3, 14, 24
"""Sizes in pixels: a core, the gap between cores, the padding of a box, the margin around the node."""
GPU_HEIGHT, CARD_HEIGHT, HEAD, LINE = 44, 20, 64, 17
"""Heights in pixels: a GPU, a network card, the heading, a line of text below the node."""
GPU_WIDTH = 74
"""Least width of a GPU or of a network card in pixels."""
CHARACTER = 6
"""Width of a character of the text below the node, in pixels."""
MOST_ACROSS = 4
"""Boxes of cores side by side."""
FEW_COLUMNS, MORE_COLUMNS = 8, 12
"""Cores in a row, for NUMA nodes with few and with many cores."""


class Box(msgspec.Struct, frozen=True):
    """The look of a core, a GPU or a network card."""

    kind: str
    """Classes of the style sheet."""
    text: str = ""
    title: str = ""
    """Explanation that a browser shows under the pointer."""
    below: str = ""
    """Second line of a GPU."""
    on_color: bool = False
    """Whether the text lies on a colour."""
    crossed: bool = False
    """Whether the part is crossed out."""


class NodeParts(msgspec.Struct, frozen=True):
    """The texts and parts of a picture."""

    title: str
    label: str
    """Name of the picture, for example ``A node of lumi-g``."""
    facts: str
    description: str
    """The picture in words, for readers who cannot see it."""
    cores: Mapping[int, Box]
    gpus: Sequence[Box] = ()
    cards: Sequence[Box] = ()
    """One part for each network card of the profile."""
    notes: Sequence[str] = ()
    """Lines below the node."""


class Domain(msgspec.Struct, frozen=True):
    """A box of the picture: a NUMA node with its GPUs, or a GPU with its cores."""

    numa: int | None
    """Number of the NUMA node; None if the map does not follow the NUMA nodes."""
    cores: tuple[int, ...]
    gpus: tuple[int, ...]


class _Sizes(msgspec.Struct, frozen=True):
    """Sizes of a picture in pixels; `columns` is the number of cores in a row."""

    columns: int
    wide: int
    high: int
    across: int
    width: int
    top: int


def has_map(node: Node) -> bool:
    """Return whether the profile has the cores of each GPU."""
    return bool(node.gpus) and len(node.gpu_cpus) == node.gpus


def knows_cards(node: Node) -> bool:
    """Return whether the profile has the network card of each GPU."""
    return bool(node.nics) and len(node.gpu_nics) == node.gpus and has_map(node)


def draw_node(node: Node, parts: NodeParts) -> str:
    """Draw a node whose number of cores is known."""
    domains = _domains(node)
    sizes = _measure(node, domains, parts)
    bottom = sizes.top + -(-len(domains) // sizes.across) * (sizes.high + PAD) - PAD
    cards_below = bool(parts.cards) and not knows_cards(node)
    foot = bottom + (CARD_HEIGHT + PAD if cards_below else 0)
    lines = [*_head(parts, sizes.width, foot + PAD + LINE * len(parts.notes) + PAD)]
    inner = sizes.width - 2 * MARGIN
    if parts.gpus and not has_map(node):
        lines += _draw_row(parts.gpus, (MARGIN, HEAD), inner, GPU_HEIGHT)
    for index, domain in enumerate(domains):
        corner = (
            MARGIN + index % sizes.across * (sizes.wide + PAD),
            sizes.top + index // sizes.across * (sizes.high + PAD),
        )
        lines += _draw_domain(node, domain, corner, sizes, parts)
    if cards_below:
        lines += _draw_row(parts.cards, (MARGIN, bottom + PAD), inner, CARD_HEIGHT)
    for number, note in enumerate(parts.notes, 1):
        lines.append(f'<text x="{MARGIN}" y="{foot + PAD + LINE * number - 4}" class="soft">{escape(note)}</text>')
    return "\n".join((*lines, "</svg>", ""))


def _measure(node: Node, domains: Sequence[Domain], parts: NodeParts) -> _Sizes:
    most_cores = max(len(domain.cores) for domain in domains)
    columns = min(_columns(domains), most_cores)
    gpus = max(len(domain.gpus) for domain in domains)
    wide = max(columns * (CELL + GAP) - GAP, gpus * (GPU_WIDTH + GAP) - GAP, GPU_WIDTH) + 2 * PAD
    rows = -(-most_cores // columns)
    high = _cores_top(node) + rows * (CELL + GAP) - GAP + PAD
    across = min(len(domains), MOST_ACROSS)
    apart = 0 if has_map(node) else len(parts.gpus)
    texts = CHARACTER * max(map(len, (parts.facts, *parts.notes)))
    inner = max(across * (wide + PAD) - PAD, apart * (GPU_WIDTH + GAP), texts)
    top = HEAD + (GPU_HEIGHT + PAD if apart else 0)
    return _Sizes(columns, wide, high, across, inner + 2 * MARGIN, top)


def _columns(domains: Sequence[Domain]) -> int:
    """Return the cores in a row of a box: all boxes together are about as wide for one domain as for four."""
    if len(domains) < MOST_ACROSS:
        return FEW_COLUMNS * MOST_ACROSS // len(domains)
    return FEW_COLUMNS if max(len(domain.cores) for domain in domains) <= FEW_COLUMNS**2 else MORE_COLUMNS


def _cores_top(node: Node) -> int:
    """Return the distance of the cores from the top of their box."""
    gpus = GPU_HEIGHT + PAD if has_map(node) else 0
    return PAD + 16 + gpus + (CARD_HEIGHT + GAP if knows_cards(node) else 0)


def _domains(node: Node) -> tuple[Domain, ...]:
    """Divide the cores among NUMA nodes if the map agrees with equal blocks, else among GPUs."""
    if not has_map(node):
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


def _head(parts: NodeParts, width: int, height: int) -> Iterator[str]:
    title = escape(parts.title)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" class="node-picture">\n<title>{escape(parts.label)}</title>\n'
        f"<desc>{escape(parts.description)}</desc>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>"
    )
    yield f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10" class="back"/>'
    yield f'<text x="{MARGIN}" y="30" class="head">{title}</text>'
    yield f'<text x="{MARGIN}" y="50" class="soft">{escape(parts.facts)}</text>'


def _draw_domain(node: Node, domain: Domain, corner: tuple[int, int], sizes: _Sizes, parts: NodeParts) -> Iterator[str]:
    left, top = corner
    inner = sizes.wide - 2 * PAD
    yield f'<rect x="{left}" y="{top}" width="{sizes.wide}" height="{sizes.high}" rx="7" class="box"/>'
    if domain.numa is not None:
        yield f'<text x="{left + PAD}" y="{top + 19}" class="soft">NUMA node {domain.numa}</text>'
    row = top + PAD + 16
    if knows_cards(node) and domain.gpus:
        yield from _draw_cards(node, domain.gpus, (left + PAD, row), inner, parts.cards)
    row += CARD_HEIGHT + GAP if knows_cards(node) else 0
    if has_map(node):
        yield from _draw_row([parts.gpus[gpu] for gpu in domain.gpus], (left + PAD, row), inner, GPU_HEIGHT)
    for position, core in enumerate(domain.cores):
        x = left + PAD + position % sizes.columns * (CELL + GAP)
        y = top + _cores_top(node) + position // sizes.columns * (CELL + GAP)
        if core in parts.cores:
            yield from _draw_part(parts.cores[core], (x, y), (CELL, CELL))


def _draw_cards(
    node: Node, gpus: Sequence[int], corner: tuple[int, int], wide: int, cards: Sequence[Box]
) -> Iterator[str]:
    """Draw the network cards of neighbouring GPUs, each as wide as the GPUs that it serves."""
    left, top = corner
    share = (wide + GAP) / len(gpus)
    at = 0
    for card, served in groupby(gpus, key=lambda gpu: node.gpu_nics[gpu]):
        count = len(list(served))
        if card < len(cards):
            yield from _draw_part(cards[card], (left + at * share, top), (count * share - GAP, CARD_HEIGHT))
        at += count


def _draw_row(parts: Sequence[Box], corner: tuple[int, int], wide: int, high: int) -> Iterator[str]:
    """Draw parts side by side."""
    left, top = corner
    for column, part in enumerate(parts):
        share = (wide + GAP) / len(parts)
        yield from _draw_part(part, (left + column * share, top), (share - GAP, high))


def _draw_part(part: Box, corner: tuple[float, float], size: tuple[float, float]) -> Iterator[str]:
    (left, top), (wide, high) = corner, size
    middle = left + wide / 2
    color = "on" if part.on_color else "soft"
    title = f"<title>{escape(part.title)}</title>" if part.title else ""
    yield (
        f'<g>{title}<rect x="{left:g}" y="{top:g}" width="{wide:g}" height="{high:g}" rx="{4 if high > CELL else 3}" '
        f'class="{part.kind}"/>'
    )
    if part.crossed:
        yield f'<path d="M{left + 3:g} {top + 3:g}l16 16m0 -16l-16 16" class="cross"/>'
    if part.text:
        size_class = "strong" if high > CELL else "small"
        base = top + 19 if part.below else top + high / 2 + 4
        yield f'<text x="{middle:g}" y="{base:g}" class="{color} middle {size_class}">{escape(part.text)}</text>'
    if part.below:
        yield f'<text x="{middle:g}" y="{top + 35:g}" class="{color} middle small">{escape(part.below)}</text>'
    yield "</g>"
