"""The picture of a node draws what the profile knows, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from markupsafe import escape

from argosy.cli.app import app
from argosy.core.errors import SiteError
from argosy.sites.binding import parse_ranges
from argosy.sites.node_drawing import STYLE
from argosy.sites.page import picture_missing, render_picture
from argosy.sites.profile import Node, Site
from argosy.sites.read import DATA, read_site, site_names
from argosy.sites.show import explain_site
from tests.unit.core.test_plots import contrast

MAPPED = ("lumi-g", "alps-daint", "alps-clariden")


def drawn_cores(site: Site) -> dict[int, tuple[str, str]]:
    """Give each core that is drawn: what its title says, and its class."""
    found = re.findall(
        r'<title>core (\d+): ([^<]+)</title><rect [^>]*class="(\w+)"',
        render_picture(site),
    )
    return {int(core): (told, colour) for core, told, colour in found}


@pytest.mark.parametrize("name", MAPPED)
def test_each_core_of_a_node_has_the_colour_of_the_gpu_that_it_is_bound_to(name: str) -> None:
    site = read_site(name, (DATA,))
    cores = drawn_cores(site)
    assert set(cores) == set(range(site.node.cores))
    for gpu, text in enumerate(site.node.gpu_cpus):
        for core in parse_ranges(text):
            assert cores[core] == (f"rank of GPU {gpu}", f"c{gpu}")


def test_reserved_cores_are_crossed_and_bound_to_no_rank() -> None:
    site = read_site("lumi-g", (DATA,))
    cores = drawn_cores(site)
    reserved = {core for core, (told, _) in cores.items() if told == "reserved by the system"}
    assert reserved == parse_ranges(site.node.reserved)
    assert render_picture(site).count('class="cross"') == len(reserved)


@pytest.mark.parametrize("name", MAPPED)
def test_a_picture_is_well_formed(name: str) -> None:
    assert ET.fromstring(render_picture(read_site(name, (DATA,)))).tag.endswith("svg")  # noqa: S314 - our own


def test_a_title_with_signs_of_xml_is_text() -> None:
    site = Site(name="x", title="<A&B>", node=Node(cores=4, gpus=2, gpu_cpus=("0-1", "2-3")))
    root = ET.fromstring(render_picture(site))  # noqa: S314 - our own
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "A node of <A&B>"


@pytest.mark.parametrize(
    ("name", "gpus", "numas"), [("perlmutter", 4, 0), ("leonardo", 4, 0), ("juwels-booster", 4, 8), ("lumi-c", 0, 8)]
)
def test_without_a_map_the_picture_has_the_cores_and_gpus_and_binds_nothing(name: str, gpus: int, numas: int) -> None:
    site = read_site(name, (DATA,))
    root = ET.fromstring(render_picture(site))  # noqa: S314 - our own
    words = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    squares = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if each.get("class") == "free"]
    assert len(squares) == site.node.cores
    assert len([word for word in words if word.startswith("GPU ")]) == gpus
    assert len([word for word in words if word.startswith("NUMA node ")]) == numas
    assert drawn_cores(site) == {}
    assert words[-1].startswith("Each rank gets its share of the cores")


@pytest.mark.parametrize("name", ["dawn", "mn5-acc"])
def test_without_the_number_of_cores_there_is_no_picture(name: str, tmp_path: Path) -> None:
    site = read_site(name, (DATA,))
    assert picture_missing(site.node)
    assert render_picture(site) == ""
    ran = CliRunner().invoke(app, ["sites", "picture", name, "-o", str(tmp_path / "x.svg")])
    assert isinstance(ran.exception, SiteError)
    assert not (tmp_path / "x.svg").exists()


def test_network_cards_are_drawn_above_the_gpus_that_they_serve() -> None:
    root = ET.fromstring(render_picture(read_site("lumi-g", (DATA,))))  # noqa: S314 - our own
    places = [
        (text.text, float(rect.get("x", "")), float(rect.get("x", "")) + float(rect.get("width", "")))
        for group in root.iter("{http://www.w3.org/2000/svg}g")
        if (text := group.find("{http://www.w3.org/2000/svg}text")) is not None
        and (rect := group.find("{http://www.w3.org/2000/svg}rect")) is not None
    ]
    cards = {(left, right) for name, left, right in places if name == "NIC"}
    gpus = {name: (left, right) for name, left, right in places}
    pairs = ((f"GPU {gpu}", f"GPU {gpu + 1}") for gpu in (0, 2, 4, 6))
    assert cards == {(gpus[first][0], gpus[second][1]) for first, second in pairs}


def test_network_cards_without_a_map_are_drawn_apart_and_without_numbers() -> None:
    picture = render_picture(Site(name="x", node=Node(cores=8, gpus=2, gpu_cpus=("0-1", "2-3"), nics=2, nic="HDR")))
    assert picture.count(">NIC</text>") == 2
    assert "2 x HDR" in picture


def test_text_has_contrast_on_every_part_in_both_forms() -> None:
    light, _, dark = STYLE.read_text(encoding="utf-8").partition("@media")
    rule = re.compile(r"\.node-picture \.?([\w]+)(?:, \.node-picture \.\w+)? \{ fill: (#\w{6})")
    for text in (light, dark):
        colors = dict(rule.findall(text))
        for part in (f"c{number}" for number in range(8)):
            assert contrast(colors["on"], colors[part]) >= 4.5, part
        assert contrast(colors["on"], colors["plain"]) >= 4.5
        for part in ("back", "box", "free"):
            assert contrast(colors["soft"], colors[part]) >= 4.5, part
            assert contrast(colors["text"], colors[part]) >= 4.5, part


def test_cores_without_a_near_gpu_are_drawn_apart() -> None:
    site = Site(name="x", node=Node(cores=6, gpus=2, gpu_cpus=("0-1", "2-3")))
    assert drawn_cores(site)[5][0] == "no rank is bound here"


@pytest.mark.parametrize("name", site_names((DATA,)))
def test_the_page_of_a_site_has_the_picture_and_every_value(name: str, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["sites", "show", name, "--html", str(tmp_path / "site.html")])
    assert (ran.exit_code, ran.output) == (0, "")
    page = (tmp_path / "site.html").read_text(encoding="utf-8")
    site = read_site(name, (DATA,))
    assert page.count("<svg") == (0 if picture_missing(site.node) else 1)
    assert all(f"<code>{escape(row.key)}</code>" in page for row in explain_site(name, (DATA,)))
    assert all(escape(question) in page for question in site.open_questions)


def test_a_page_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["sites", "show", "lumi-g", "--html", str(tmp_path)])
    assert ran.exit_code == 2
