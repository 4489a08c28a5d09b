"""Site profiles: the format, conditions, partitions, modes and where each value comes from."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.cli.__main__ import run_app
from argosy.core.errors import SiteError
from argosy.core.model import Mark
from argosy.core.shell import ShellExpr
from argosy.core.toml_lines import find_line
from argosy.sites.binding import parse_ranges, plan_masks
from argosy.sites.conditions import Facts, evaluate_condition, parse_condition, render_condition
from argosy.sites.faults import read_faults
from argosy.sites.job_settings import (
    INFINIBAND,
    at_partition,
    choose_mode,
    choose_site_settings,
    full_address,
    late_word,
)
from argosy.sites.load import advise_on_site, load_site
from argosy.sites.partitions import PartitionNeeds, choose_partition, time_limit
from argosy.sites.profile import Node, Partition, Site, Slurm
from argosy.sites.profile_parts import Evident, SiteOption
from argosy.sites.read import (
    DATA,
    NOT_SHIPPED,
    describe_source,
    find_profile,
    read_site,
    read_sites,
    read_table,
    search_path,
    site_names,
)
from argosy.sites.show import explain_site
from tests.unit.machines import make_host

LEAST = 'name = "x"\ntitle = "X"\nscheduler = "slurm"\n'


def written(folder: Path, text: str, name: str = "x.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def refusal(folder: Path, text: str) -> SiteError:
    with pytest.raises(SiteError) as caught:
        read_site(written(folder, text))
    return caught.value


def is_empty(part: Evident) -> bool:
    """Tell whether a part says nothing but its name."""
    return part == msgspec.convert({"name": part.name} if isinstance(part, Partition) else {}, type(part))


@pytest.mark.parametrize("name", site_names())
def test_every_value_of_a_shipped_profile_has_a_public_source(name: str) -> None:
    site = read_site(name)
    parts: list[Evident] = [*site.settings, *site.caches, *site.binds, *site.options, *site.partitions]
    parts += [*site.modes.values(), *site.images.bases, msgspec.structs.replace(site.images, bases=()), site.build]
    parts += [site.node, site.slurm, site.runtime, site.modules, site.launcher, site.network]
    parts += [site.identity] if site.identity.has_marks else []
    for part in parts:
        sources = [*filter(None, (part.source, *part.sources.values()))]
        assert sources or is_empty(part), f"{name}: {part}"
        for address in (each for source in sources for each in full_address(site, source).split("; ")):
            assert re.match(r"https?://", address), f"{name}: {address}"
    for part in (*site.settings, *site.caches, *site.binds, *site.options, *site.images.bases):
        assert part.why
        assert part.source
        assert part.checked or site.checked
        assert part.proof == "documented"


@pytest.mark.parametrize("name", [name for name in site_names() if read_site(name).scheduler == "slurm"])
def test_every_shipped_profile_lists_its_open_questions(name: str) -> None:
    assert read_site(name).open_questions


@pytest.mark.parametrize("name", [name for name in site_names() if read_site(name).has_slurm])
def test_every_shipped_profile_can_be_detected_or_has_a_reason(name: str) -> None:
    identity = read_site(name).identity
    assert identity.has_marks != bool(identity.not_detected)


@pytest.mark.parametrize("name", site_names())
def test_the_map_of_every_shipped_profile_fits_its_node(name: str) -> None:
    node = read_site(name).node
    masks = plan_masks(node)
    usable = frozenset(range(node.cores)) - parse_ranges(node.reserved)
    assert all(mask < 1 << node.cores for mask in masks)
    assert not masks or sum(mask.bit_count() for mask in masks) <= len(usable)


def test_an_unknown_key_is_refused_with_its_line_and_the_nearest(tmp_path: Path) -> None:
    error = refusal(tmp_path, LEAST + '\n[slurm]\nrequired = ["time"]\ngpu_optoin = "gres"\n')
    assert error.evidence == f"{tmp_path}/x.toml:7: slurm.gpu_optoin"
    assert error.hint == "did you mean 'gpu_option'?"


FAULTY = """\
name = "x"
title = "X"
checked = 2026-11-20
use = "slingshot-amd"

[identity]
files = ["a", "/b", "c"]

[node]
cores = "64"
cuda = "twelve"
rocm = "six"
memory_mb = "512G"
local_disk = "yes"
cpu_modl = "EPYC"

[partitions]
name = "p"

[[settings]]
name = "A B"
value = 1

[[settings]]
value = "1"
when = "nodes > 1"

[[binds]]
paths = ["/a"]
if_there = true

[[binds]]
paths = ["b"]
when = { node = "> 1" }

[slurm]
polling_seconds = 0

[[modes]]
"""

FAULTS = (
    (3, 'checked: expected text in quotes, found a date without quotes -> write checked = "2026-11-20"'),
    (4, 'use: expected a list in [ ], found text in quotes -> write use = ["slingshot-amd"]'),
    (7, "identity.files.0: 'a' is not an absolute path -> write the path from / on"),
    (7, "identity.files.2: 'c' is not an absolute path -> write the path from / on"),
    (10, "node.cores: expected a whole number, found text in quotes -> write cores = 64, without quotes"),
    (11, "node.cuda: cuda = 'twelve' is not a version -> write cuda = \"12.8\""),
    (12, "node.rocm: rocm = 'six' is not a version -> write rocm = \"6.4\""),
    (13, "node.memory_mb: expected a whole number, found text in quotes -> write memory_mb = NUMBER, in MB"),
    (14, "node.local_disk: expected true or false, found text in quotes -> write local_disk = true, without quotes"),
    (15, "node.cpu_modl:  -> did you mean 'cpu_model'?"),
    (17, "partitions: expected a list in [ ], found a table -> write [[partitions]] instead of [partitions]"),
    (21, "settings.0.name: 'A B' is not a valid name of a variable -> write letters, digits and _ only"),
    (22, 'settings.0.value: expected text in quotes, found a whole number -> write value = "1"'),
    (24, "settings.1: it has no name -> add name = …"),
    (26, "settings.1.when: expected a table, found text in quotes -> write when = { nodes ="),
    (33, "binds.1.paths.0: 'b' is not an absolute path -> write the path from / on"),
    (34, "binds.1.when: when: unknown fact 'node' -> did you mean 'nodes'?"),
    (37, "slurm.polling_seconds: 0 is not > 0.0 -> write a number > 0.0"),
    (39, "modes: expected a table, found a list in [ ] -> write [modes.NAME] instead of [[modes]]"),
)
"""Line of the file above, and the fault there with its correction."""


def test_all_faults_of_a_profile_are_found_in_one_run(tmp_path: Path) -> None:
    found = read_faults(Path(written(tmp_path, FAULTY)))
    shown = [(fault.line, f"{fault.key}: {fault.what} -> {fault.hint}") for fault in found]
    assert len(shown) == len(FAULTS)
    for (line, text), (expected_line, expected) in zip(shown, FAULTS, strict=True):
        assert (line, text[: len(expected)]) == (expected_line, expected)
    error = refusal(tmp_path, FAULTY)
    assert error.what == f"invalid profile x.toml: {len(FAULTS)} faults"
    assert len(error.evidence.splitlines()) == len(FAULTS)
    assert "argosy sites lint" in error.hint


def test_two_values_that_contradict_each_other_are_one_fault(tmp_path: Path) -> None:
    text = (
        LEAST + '[[settings]]\nname = "A"\nvalue = "1"\nlate = "{user}"\n[node]\narchspec = "zen3"\narch = "aarch64"\n'
    )
    found = read_faults(Path(written(tmp_path, text)))
    assert [(fault.line, fault.key) for fault in found] == [(6, "settings.0.value"), (9, "node.archspec")]


def test_an_unknown_key_in_a_list_is_found_in_the_right_part(tmp_path: Path) -> None:
    part = '[[settings]]\nname = "A"\nvalue = "1"\n'
    error = refusal(tmp_path, LEAST + part + part + 'valu = "2"\n')
    assert error.evidence == f"{tmp_path}/x.toml:10: settings.1.valu"
    assert error.hint == "did you mean 'value'?"


def test_a_wrong_type_is_refused_with_its_line(tmp_path: Path) -> None:
    error = refusal(tmp_path, LEAST + '[node]\ncores = "many"\n')
    assert error.evidence == f"{tmp_path}/x.toml:5: node.cores: expected a whole number, found text in quotes"


def test_an_invalid_choice_is_refused_with_its_line(tmp_path: Path) -> None:
    error = refusal(tmp_path, LEAST + '[slurm]\ngpu_option = "tres"\n')
    assert error.evidence == f"{tmp_path}/x.toml:5: slurm.gpu_option: 'tres' is not one of its values"
    assert error.hint == "did you mean 'gres'?"
    assert refusal(tmp_path, LEAST + '[slurm]\ngpu_option = "x"\n').hint == "use one of gpus-per-node, gres, none"
    assert refusal(tmp_path, LEAST + '[slurm]\nrequired = ["acount"]\n').hint == "did you mean 'account'?"


def test_a_site_cannot_start_all_programs_with_ray_and_is_told_why(tmp_path: Path) -> None:
    error = refusal(tmp_path, LEAST + '[launcher]\ndefault = "ray"\n')
    assert error.evidence == f"{tmp_path}/x.toml:5: launcher.default: 'ray' is not one of its values"
    assert "first node only" in error.hint
    assert "--launcher ray" in error.hint


def test_broken_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    assert f"{tmp_path}/x.toml:4:" in refusal(tmp_path, LEAST + "[node\n").evidence


def test_a_condition_on_an_unknown_fact_names_the_nearest(tmp_path: Path) -> None:
    error = refusal(tmp_path, LEAST + '[[settings]]\nname = "A"\nvalue = "1"\nwhen = { node = "1" }\n')
    assert error.hint == "did you mean 'nodes'?"
    assert "x.toml:7: settings.0.when" in error.evidence


@pytest.mark.parametrize("suffix", ["; reboot", "$(id)", "`id`", "a b", "x\ny"])
def test_a_suffix_that_could_run_something_is_refused(tmp_path: Path, suffix: str) -> None:
    error = refusal(tmp_path, f"{LEAST}[slurm]\nmaster_suffix = {json.dumps(suffix)}\n")
    assert "is not part of a host name" in error.evidence


@pytest.mark.parametrize("name", ["x\nreboot", "../x", "a b", "$(id)"])
def test_an_invalid_name_is_refused(tmp_path: Path, name: str) -> None:
    error = refusal(tmp_path, f'name = {json.dumps(name)}\ntitle = "X"\n')
    assert "may only contain letters" in error.evidence


def test_a_site_extends_another_and_its_ancestors(tmp_path: Path) -> None:
    base = read_site("lumi-g")
    text = (
        LEAST + 'use = ["lumi-g"]\n[slurm]\npolling_seconds = 60\n[[settings]]\nname = "CXI_FORK_SAFE"\nvalue = "0"\n'
    )
    site = read_site(written(tmp_path, text))
    assert (site.name, site.node, site.slurm.polling_seconds) == ("x", base.node, 60)
    assert site.slurm.required == base.slurm.required
    own, other = ({s.name: s.value for s in each.settings} for each in (site, base))
    assert own == other | {"CXI_FORK_SAFE": "0"}
    rows = {row.key: row.origin for row in explain_site(str(tmp_path / "x.toml"))}
    assert rows["node.cores"].startswith(str(DATA / "lumi-g.toml"))
    assert "_slingshot-amd.toml" in rows["settings.NCCL_SOCKET_IFNAME"]


def test_each_value_of_a_profile_that_builds_on_another_keeps_its_own_source_and_proof(tmp_path: Path) -> None:
    proofs = '[slurm.proofs]\nmem = "2026"\nversion = "2026"\n'
    one = f'[slurm]\nmem = "1G"\nversion = "23.02"\nsource = "https://a.example/"\n{proofs}'
    written(tmp_path, f"{LEAST}{one}", "one.toml")
    for source in ("", 'source = "https://b.example/"\n'):
        text = f'{LEAST}use = ["one"]\n[slurm]\nmem = "2G"\n{source}'
        slurm = read_site(written(tmp_path, text, "two.toml")).slurm
        assert (slurm.mem, slurm.version, slurm.proofs) == ("2G", "23.02", {"version": "2026"})
        told = {row.key: row.source for row in explain_site(str(tmp_path / "two.toml"))}
        assert told["slurm.mem"] == source[10:-2]
        assert told["slurm.version"].startswith("https://a.example/")


def test_a_profile_of_ones_own_builds_on_the_shipped_one_of_its_name_and_no_two_on_each_other(tmp_path: Path) -> None:
    folders = (tmp_path, DATA)
    written(
        tmp_path, 'name = "lumi-g"\ntitle = "mine"\nuse = ["lumi-g"]\n[slurm]\npolling_seconds = 60\n', "lumi-g.toml"
    )
    site = read_site("lumi-g", folders)
    assert (site.title, site.node.cores, site.slurm.polling_seconds) == ("mine", 64, 60)


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c"), ("a",)])
def test_profiles_that_include_each_other_are_refused_with_the_whole_cycle(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name, other in zip(names, (*names[1:], names[0]), strict=True):
        written(tmp_path, f'name = "{name}"\ntitle = "t"\nuse = ["{other}"]\n', f"{name}.toml")
    with pytest.raises(SiteError) as caught:
        read_site("a", (tmp_path, DATA))
    assert " -> ".join((*names, "a")) in caught.value.what
    assert f"{tmp_path}/{names[-1]}.toml:3: use" in caught.value.evidence
    assert "did you mean" not in caught.value.hint


def test_a_cycle_below_a_profile_is_shown_without_the_profile(tmp_path: Path) -> None:
    for name, other in (("top", "a"), ("a", "b"), ("b", "a")):
        written(tmp_path, f'name = "{name}"\ntitle = "t"\nuse = ["{other}"]\n', f"{name}.toml")
    with pytest.raises(SiteError, match="include each other: a -> b -> a"):
        read_site("top", (tmp_path, DATA))


def test_an_unknown_fragment_names_the_nearest(tmp_path: Path) -> None:
    error = refusal(tmp_path, 'name = "x"\ntitle = "X"\nuse = ["slingshot-amdd"]\n')
    assert error.hint == "did you mean 'slingshot-amd'?"
    assert "x.toml:3" in error.evidence


def test_a_profile_without_a_name_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, 'title = "X"\n').hint == 'add name = "…"'


def test_an_unknown_site_names_the_nearest() -> None:
    with pytest.raises(SiteError) as caught:
        read_site("lumig")
    assert "lumi-g" in caught.value.hint


def test_the_projects_profile_wins_over_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "argosy-sites").mkdir()
    written(tmp_path / "argosy-sites", 'name = "lumi-g"\ntitle = "mine"\nscheduler = "slurm"\n', "lumi-g.toml")
    folders = search_path({"HOME": "/home/alice"}, tmp_path)
    assert folders[1:] == (Path("/home/alice/.config/argosy/sites"), Path("/etc/argosy/sites"), DATA)
    assert read_site("lumi-g", folders).title == "mine"


def test_a_sites_setting_replaces_that_of_its_fragment(tmp_path: Path) -> None:
    use = 'use = ["slingshot-amd"]\n'
    own = '[[settings]]\nname = "NCCL_SOCKET_IFNAME"\nvalue = "hsn0"\n'
    site = read_site(written(tmp_path, LEAST + use + own))
    assert [s.value for s in site.settings if s.name == "NCCL_SOCKET_IFNAME"] == ["hsn0"]
    assert site.caches
    assert site.network.plugin == "aws-ofi-rccl"


def test_a_url_of_the_short_name_source_is_merged_as_any_other(tmp_path: Path) -> None:
    written(tmp_path, LEAST + '[sources]\nA = "https://a.example/"\n', "other.toml")
    own = 'use = ["other"]\n[sources]\nsource = "https://b.example/"\n'
    site = read_site(written(tmp_path, LEAST + own))
    assert site.sources == {"A": "https://a.example/", "source": "https://b.example/"}


def test_every_key_of_every_shipped_profile_is_found_on_its_line() -> None:
    for path in DATA.glob("*.toml"):
        text = path.read_text()
        lines = text.splitlines()
        for key in read_table(path):
            assert re.search(rf"\b{re.escape(key)}\b", lines[find_line(text, (key,)) - 1]), (path, key)


@pytest.mark.parametrize(
    ("when", "facts", "expected"),
    [
        ({}, Facts(), True),
        ({"nodes": "> 1"}, Facts(nodes="2"), True),
        ({"nodes": "> 1"}, Facts(nodes="1"), False),
        ({"rocm": "< 6.2"}, Facts(rocm="6.1.3"), True),
        ({"rocm": "< 6.2"}, Facts(rocm="6.2.0"), False),
        ({"rocm": "< 6.2"}, Facts(rocm="7.0"), False),
        ({"rocm": "< 6.2"}, Facts(rocm="6.10"), False),
        ({"rocm": "< 6.2"}, Facts(), None),
        ({"rocm": "< 6.2", "nodes": "> 1"}, Facts(nodes="1"), False),
        ({"partition": "a | b"}, Facts(partition="b"), True),
        ({"partition": "a | b"}, Facts(partition="c"), False),
        ({"torch": ">= 2.9"}, Facts(torch="2.11.0+rocm7"), True),
        ({"mode": "!= FLAT"}, Facts(mode="COMPOSITE"), True),
        ({"rocm": "< 6.2"}, Facts(rocm="nightly"), None),
    ],
)
def test_conditions_are_judged_true_false_or_unknown(
    when: dict[str, str], facts: Facts, *, expected: bool | None
) -> None:
    assert evaluate_condition(parse_condition(when), facts) is expected


@pytest.mark.parametrize(
    "when",
    [{"nodes": ""}, {"nodes": ">"}, {"rocm": "< new"}, {"color": "red"}, {"nodes": "1 |"}, {"nodes": "> 1 and < 4"}],
)
def test_an_invalid_condition_is_refused(when: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="when:"):
        parse_condition(when)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3), st.text(max_size=8))
def test_any_text_is_a_condition_or_is_refused_and_never_anything_else(when: dict[str, str], fact: str) -> None:
    try:
        condition = parse_condition(when)
    except ValueError:
        return
    assert evaluate_condition(condition, Facts(nodes=fact, rocm=fact)) in {True, False, None}


def test_a_condition_reads_as_a_sentence() -> None:
    assert render_condition({"nodes": "> 1", "mode": "cray"}) == "nodes > 1 and mode = cray"


@pytest.mark.parametrize("value", ["$(reboot)", "`id`", 'a"b\\c$HOME', "two  blanks", "{user}", "a\nb"])
def test_a_value_arrives_as_it_is_whatever_signs_it_holds(tmp_path: Path, value: str) -> None:
    toml = json.dumps(value)  # a basic string of TOML is written as JSON writes it
    site = read_site(written(tmp_path, f'{LEAST}[[settings]]\nname = "A"\nvalue = {toml}\n'))
    assert [v.value for v in choose_site_settings(site, Facts(), 0).variables] == [value]


def test_a_late_text_expands_known_names_and_quotes_the_rest() -> None:
    assert late_word("/tmp/{user}-$x-`y`", 0) == ShellExpr("/tmp/${USER:-$SLURM_JOB_USER}-\\$x-\\`y\\`")  # noqa: S108
    assert late_word("{devices}", 3) == "0,1,2"


def test_an_infiniband_setting_is_empty_on_a_node_without_infiniband() -> None:
    word = late_word("{infiniband}", 0)
    assert isinstance(word, ShellExpr)
    told = subprocess.run(["/bin/sh", "-c", f'echo "{word.expression}"'], capture_output=True, text=True, check=True)
    has_all = all(Path(path).exists() for path in INFINIBAND.split())
    assert told.stdout == ("all\n" if has_all else "void\n")


def test_whole_nodes_and_parts_of_nodes_choose_their_partition() -> None:
    site = read_site("lumi-g")
    whole, _ = choose_partition(site, "", PartitionNeeds(2, 8))
    part, _ = choose_partition(site, "", PartitionNeeds(1, 2))
    assert whole is not None
    assert part is not None
    assert (whole.name, part.name) == ("standard-g", "small-g")


@pytest.mark.parametrize(
    ("needs", "name", "why"),
    [
        (PartitionNeeds(1, cores_per_node=8), "small", "parts of nodes"),
        (PartitionNeeds(1, cores_per_node=128), "standard", "whole nodes"),
        (PartitionNeeds(2, cores_per_node=1, exclusive=True), "standard", "whole nodes"),
        (PartitionNeeds(8, cores_per_node=1), "standard", "the first one that allows this job"),
    ],
)
def test_nodes_without_gpus_are_whole_if_all_cores_are_used(needs: PartitionNeeds, name: str, why: str) -> None:
    partition, (row,) = choose_partition(read_site("lumi-c"), "", needs)
    assert partition is not None
    assert partition.name == name
    assert why in row.why


def test_a_part_of_a_node_that_is_billed_whole_is_noted() -> None:
    _, rows = choose_partition(read_site("lumi-g"), "standard-g", PartitionNeeds(1, 2))
    assert [(row.key, row.value) for row in rows] == [("billed", "8 GPUs per node")]
    assert "small-g" in rows[0].why
    _, rows = choose_partition(read_site("alps-daint"), "", PartitionNeeds(1, 1))
    assert [(row.key, row.value) for row in rows if row.key == "billed"] == [("billed", "4 GPUs per node")]


def test_a_partition_without_gpus_may_exist_beside_others(tmp_path: Path) -> None:
    rows = '[node]\ngpus = 4\ncores = 64\n[[partitions]]\nname = "cpu"\ngpus = 0\nchoose = true\n'
    file = written(tmp_path, f'{LEAST}{rows}[[partitions]]\nname = "gpu"\nchoose = true\n')
    site = read_site(file)
    assert at_partition(site, site.partition("cpu")).node.gpus == 0
    assert [row.value for row in explain_site(file) if row.key == "partitions.cpu"] == ["choose, gpus 0"]
    with pytest.raises(SiteError) as caught:
        choose_partition(site, "cpu", PartitionNeeds(1, 2))
    assert (caught.value.evidence, caught.value.hint) == (
        "2 GPUs per node requested, its nodes have 0",
        "use --partition gpu",
    )
    chosen = [choose_partition(site, "", PartitionNeeds(1, gpus))[0] for gpus in (0, 2)]
    assert [partition.name for partition in chosen if partition] == ["cpu", "gpu"]


@pytest.mark.parametrize(
    ("partition", "needs", "evidence"),
    [
        ("small-g", PartitionNeeds(5, 8), "at most 4"),
        ("dev-g", PartitionNeeds(1, 8, "04:00:00"), "03:00:00"),
        ("standard-g", PartitionNeeds(1025, 8), "at most 1024"),
    ],
)
def test_a_partition_that_does_not_allow_the_job_is_refused_with_both_numbers(
    partition: str, needs: PartitionNeeds, evidence: str
) -> None:
    with pytest.raises(SiteError) as caught:
        choose_partition(read_site("lumi-g"), partition, needs)
    assert evidence in caught.value.evidence
    assert caught.value.code == 3


def test_an_unknown_partition_is_left_to_slurm_with_a_note() -> None:
    partition, (row,) = choose_partition(read_site("lumi-g"), "secret", PartitionNeeds(1, 8))
    assert partition is None
    assert (row.key, row.value, row.source) == ("partition", "secret", "option")
    assert row.mark is Mark.DOUBTFUL, "a warning before the submission"
    assert "standard-g" in row.why


def test_of_several_partitions_only_the_unknown_ones_have_a_note() -> None:
    assert choose_partition(read_site("lumi-g"), "standard-g,small-g", PartitionNeeds(1, 8)) == (None, ())
    _, (row,) = choose_partition(read_site("lumi-g"), "standard-g,smal-g", PartitionNeeds(1, 8))
    assert (row.value, "did you mean small-g?" in row.why) == ("smal-g", True)


def test_the_time_limit_follows_the_size_of_the_job() -> None:
    batch = read_site("frontier").partition("batch")
    assert batch is not None
    assert [time_limit(batch, nodes) for nodes in (1, 91, 92, 184)] == ["02:00:00"] * 2 + ["06:00:00", "12:00:00"]


def test_modes_change_the_devices_of_a_gpu() -> None:
    dawn = read_site("dawn")
    assert [(choose_mode(dawn, mode)[0].node.devices_per_gpu) for mode in ("", "FLAT", "COMPOSITE")] == [2, 2, 1]


def test_an_image_with_its_own_network_libraries_is_launched_in_its_mode() -> None:
    lumi, own = read_site("lumi-g"), "/appl/local/laifs/containers/lumi-multitorch-latest.sif"
    assert [choose_mode(lumi, asked, own)[1] for asked in ("", "cray")] == ["laif", "cray"]
    assert choose_mode(lumi, "", "/project/mine.sif")[1] == "cray"


def test_an_unknown_mode_names_the_nearest() -> None:
    with pytest.raises(SiteError) as caught:
        choose_mode(read_site("dawn"), "composit")
    assert caught.value.hint == "did you mean --mode COMPOSITE?"


def test_undecided_settings_are_omitted_with_a_row() -> None:
    facts = Facts(nodes="2", vendor="amd", mode="cray", gpus_per_node="8", launcher="torchrun")
    site_settings = choose_site_settings(read_site("lumi-g"), facts, 8)
    assert "NCCL_NET_GDR_LEVEL" not in {variable.name for variable in site_settings.variables}
    assert [row.value for row in site_settings.choices if row.key == "NCCL_NET_GDR_LEVEL"] == ["not set"]


@pytest.mark.parametrize(
    ("to", "key"),
    [("runtime", "runtime-option"), ("srun-always", "srun"), ("sbatch", "sbatch"), ("annotation", "annotation")],
)
def test_an_option_has_the_same_key_whether_it_is_set_or_not(to: str, key: str) -> None:
    option = SiteOption(to=to, word="--x", when={"nodes": "> 1"})  # type: ignore[arg-type]  # one of the words
    site = Site(name="lab", title="t", options=(option,))
    shown = [choose_site_settings(site, facts, 0).choices for facts in (Facts(nodes="2"), Facts())]
    assert [(row.key, row.value) for rows in shown for row in rows] == [(key, "--x"), (key, "not set")]


@pytest.mark.parametrize(("rocm", "is_set"), [("6.1.3", True), ("6.2", False), ("6.2.4", False), ("7.0.2", False)])
def test_the_gdr_level_is_set_for_old_rocm_only(rocm: str, *, is_set: bool) -> None:
    facts = Facts(nodes="2", vendor="amd", mode="cray", rocm=rocm)
    names = {variable.name for variable in choose_site_settings(read_site("lumi-g"), facts, 8).variables}
    assert ("NCCL_NET_GDR_LEVEL" in names) is is_set


def test_each_choice_of_a_site_knows_its_source_and_date() -> None:
    facts = Facts(nodes="2", vendor="amd", mode="cray")
    rows = choose_site_settings(read_site("lumi-g"), facts, 8).choices
    assert rows
    for row in rows:
        assert row.evidence.startswith("https://")
        assert row.checked == "2026-11-20"
        assert row.proof == "documented"
        assert row.source == "site lumi-g"


HEAD = 'name = "x"\ntitle = "t"\nscheduler = "slurm"\nchecked = "2026-11-20"\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[[settings]]\nname = "A;reboot"\nvalue = "1"\n', 6, "is not a valid name of a variable"),
        ('[[caches]]\nvariables = ["A B"]\npath = "/tmp/x"\n', 5, "is not a valid name of a variable"),
        ('[[settings]]\nname = "A"\nvalue = "1"\nlate = "{user}"\n', 7, "both value and late"),
        ('[[settings]]\nname = "A"\nlate = "{home}"\n', 7, "known: {user}, {job}, {infiniband}, {devices}"),
        ('[[binds]]\npaths = ["a/b"]\n', 6, "not an absolute path"),
        ('[[caches]]\nvariables = ["X"]\npath = "/tmp/$(touch a)-{job}"\n', 5, "without blanks"),
        ('[[options]]\nto = "sbatch"\nword = "--x\\nreboot"\n', 5, "a line break"),
        ('[[partitions]]\nname = "a\\nb"\n', 6, "not a valid name of a partition"),
        ('[[partitions]]\nname = "p"\nmax_time = "soon"\n', 7, "not a time limit"),
        ('[[partitions]]\nname = "p"\ntime_by_nodes = { "1-91" = "2:00:00" }\n', 7, "'1-91' is not a number of nodes"),
        ("[node]\ndevices_per_gpu = 0\n", 6, ">= 1"),
        ('[slurm]\nrequired = ["acount"]\n', 6, "acount"),
        ("[slurm]\npolling_seconds = 0\n", 6, "> 0"),
        ("[node]\ncores = -8\n", 6, ">= 0"),
        ('[launcher]\ntorchrun = "a; b"\n', 6, "not a valid name of a Python module"),
    ],
)
def test_an_impossible_profile_is_refused_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(HEAD + text)
    with pytest.raises(SiteError, match="invalid profile") as caught:
        read_site(str(path))
    assert f"x.toml:{line}: " in caught.value.evidence
    assert said in caught.value.evidence
    assert caught.value.code == 3


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ('reserved = "0"\ngpu_cpus = ["0-3", "4-7"]', "cores that jobs cannot use"),
        ('gpu_cpus = ["0-3", "3-7"]', "cores of another GPU"),
        ('gpu_cpus = ["0-7"]', "does not fit"),
        ('gpu_cpus = ["7-0", "1"]', "invalid list of cores"),
        ('gpu_cpus = ["0-99999999999", "1"]', "invalid list of cores"),
    ],
)
def test_a_map_that_contradicts_its_node_is_refused_with_file_and_line(tmp_path: Path, node: str, said: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f"{HEAD}[node]\ncores = 8\ngpus = 2\n{node}\n")
    with pytest.raises(SiteError, match=said) as caught:
        load_site(str(path), make_host())
    assert re.search(r"x\.toml:[89]: node\.gpu_cpus", caught.value.evidence)


@pytest.mark.parametrize(
    ("options", "text", "place"),
    [
        ([], '[slurm]\nrequired = ["account"]\n', "x.toml:8: slurm.required"),
        (["--nodes", "3"], '[[partitions]]\nname = "p"\nmax_nodes = 2\nchoose = true\n', "x.toml:7: partitions.p"),
        (
            ["--partition", "p", "--time", "5:00"],
            '[[partitions]]\nname = "p"\nmax_time = "2"\n',
            "x.toml:7: partitions",
        ),
        (["--gpus", "3"], "[node]\ngpus = 2\n", "x.toml:8: node.gpus"),
        (["--gpus", "1"], '[node]\ncores = 8\ngpus = 2\nreserved = "3-x"\n', "x.toml:10: node.reserved"),
        (
            ["--nodes", "2", "--gpus", "2"],
            "[node]\ngpus = 2\n[slurm]\nseveral_nodes_whole = true\n",
            "x.toml:10: slurm",
        ),
    ],
)
def test_an_option_that_a_site_forbids_is_refused_with_its_line(
    options: list[str], text: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f'{HEAD}[runtime]\nname = "apptainer"\n{text}')
    assert run_app(["launch", "/x.sif", "--site", str(path), *options, "--dry-run", "--", "true"]) in {2, 3}
    assert f"{tmp_path}/{place}" in capsys.readouterr().err


KINDS = Site(
    name="kinds",
    title="nodes of several kinds",
    scheduler="slurm",
    node=Node(cores=96, gpus=4, gpu_vendor="nvidia", gpu_cpus=("72-95", "0-23", "48-71", "24-47"), reserved="12"),
    slurm=Slurm(several_nodes_whole=True),
    partitions=(
        Partition(name="whole", whole_nodes=True, choose=True),
        Partition(name="eight", whole_nodes=True, gpus=8, cores=128),
        Partition(name="two", gpus=2, cores=32),
        Partition(name="newer", gpu_model="H100", gpus=4),
        Partition(name="shared"),
    ),
)


@pytest.mark.parametrize(("name", "has_map"), [("whole", True), ("eight", False), ("two", False), ("newer", False)])
def test_a_partition_with_other_nodes_has_no_map_of_cores(name: str, *, has_map: bool) -> None:
    node = at_partition(KINDS, KINDS.partition(name)).node
    assert (bool(node.gpu_cpus), bool(node.reserved)) == (has_map, name in {"whole", "newer"})


@pytest.mark.parametrize(("gpus", "name"), [(0, "four"), (4, "four"), (8, "eight"), (9, "four")])
def test_a_job_with_more_gpus_than_the_first_partitions_nodes_have_goes_to_one_that_has_them(
    gpus: int, name: str
) -> None:
    kinds = (Partition(name="four", choose=True), Partition(name="eight", choose=True, gpus=8))
    site = Site(name="het", title="het", scheduler="slurm", node=Node(gpus=4), partitions=kinds)
    chosen, _ = choose_partition(site, "", PartitionNeeds(1, gpus))
    assert (chosen.name if chosen else "") == name


def test_billing_counts_the_partitions_gpus_and_suggests_the_same_nodes() -> None:
    _, (row,) = choose_partition(KINDS, "eight", PartitionNeeds(1, 4))
    assert (row.value, "4 of 8 GPUs" in row.why, "--partition" in row.why) == ("8 GPUs per node", True, False)
    _, (_, row) = choose_partition(KINDS, "", PartitionNeeds(1, 2))
    assert "--partition shared bills only what is used" in row.why
    assert choose_partition(KINDS, "two", PartitionNeeds(1, 2))[1] == ()


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\ntitle = "X"\n', encoding="utf-8-sig")
    assert read_site(str(file)).name == "x"


def test_a_profile_whose_file_has_another_name_is_listed_nowhere_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "argosy-sites"
    folder.mkdir()
    for file in ("mine", "mine-2025"):
        (folder / f"{file}.toml").write_text('name = "mine"\ntitle = "Mine"\n')
    assert run_app(["sites", "ls"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines() if line.startswith("mine")] == ["mine"]
    assert "mine-2025.toml" in err
    assert 'name = "mine-2025"' in err


def test_advice_on_the_site_has_one_note_about_all_skipped_profiles(tmp_path: Path) -> None:
    folder = tmp_path / "argosy-sites"
    folder.mkdir()
    host = make_host("sbatch", cwd=str(tmp_path))
    assert "skipped" not in advise_on_site(host)
    (folder / "mine.toml").write_text('name = "other"\ntitle = "Mine"\n')
    assert "1 profile was skipped ('argosy sites ls' says why)" in advise_on_site(host)
    (folder / "broken.toml").write_text("name = 3\n")
    assert "2 profiles were skipped ('argosy sites ls' says why)" in advise_on_site(host)


def test_a_folder_of_profiles_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> list[Path]:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "closed").mkdir()
    folders = (tmp_path / "absent", tmp_path / "closed", DATA)
    skipped: list[SiteError] = []
    with monkeypatch.context() as patched:
        patched.setattr("argosy.sites.read.os.listdir", lambda path: refuse(path) if "closed" in str(path) else [])
        assert list(read_sites(folders, skipped.append))
        with pytest.raises(SiteError, match="unknown site 'mine'") as error:
            find_profile("mine", folders)
    assert str(tmp_path / "closed") in skipped[0].evidence
    assert str(tmp_path / "closed") in error.value.evidence
    assert "Permission denied" in error.value.evidence


def test_the_list_of_images_reports_a_profile_whose_folders_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "argosy-sites").mkdir()
    (tmp_path / "argosy-sites/mine.toml").write_bytes(b"\xff")
    assert run_app(["images", "ls"]) == 0
    assert "skipped: cannot read the profile mine.toml" in capsys.readouterr().err


def test_a_profile_that_replaces_another_names_it(tmp_path: Path) -> None:
    project, user, system = folders = [tmp_path / name for name in ("project", "user", "system")]
    for folder in folders:
        folder.mkdir()
    for folder in (user, system):
        (folder / "mine.toml").write_text('name = "mine"\ntitle = "Mine"\n')
    path, source = describe_source("mine", [*folders, DATA])
    assert path == user / "mine.toml"
    assert source == f"{NOT_SHIPPED}; it replaces {system}/mine.toml"
    assert describe_source("mine", [project, system, DATA])[1] == NOT_SHIPPED


def test_a_profile_in_the_folder_is_suggested_for_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text(LEAST)
    with pytest.raises(SiteError, match="unknown site 'my'") as caught:
        find_profile("my", (DATA,))
    assert caught.value.hint == "did you mean my.toml?"
