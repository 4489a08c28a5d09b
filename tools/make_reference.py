# noqa: INP001 - a program, not a package
"""Write the pages of docs/reference that the program itself knows: its command line, a profile's keys, the sites.

Run it after a change of an option or of a profile's record.  It starts nothing else.

Usage: python tools/make_reference.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from argosy.cli.app import app
from argosy.core.layout import NOT_FROM_CALLER
from argosy.runtimes.runtime import AUTOMATIC, FORMS, RUNTIMES, VARIABLE_PREFIXES, load_runtime
from argosy.sites import profile as records
from argosy.sites.conditions import KNOWN
from argosy.sites.node_picture import picture_missing, render_picture
from argosy.sites.profile import Site
from argosy.sites.read import DATA, read_site, site_names
from argosy.sites.show import Row, tell_site

RUNTIMES_PAGE = """\
# Runtimes

What starts containers; `--runtime` names one, a site profile has its own, and else the first of {automatic} that works
here is taken. **Proof** says whether the tests start it for real (`ran`), or only compare its words with its
documentation (`rendered`). A runtime that cannot do what is asked says so before anything starts. This page is made by
`python tools/make_reference.py`.

| runtime | proof | starts | needs |
|---|---|---|---|
{rows}

## What enters of your environment

Software of the host is never named inside: {dropped} are removed, and PATH is the image's. Everything that a plan sets
(`--env`, a site's settings, MASTER_ADDR) is forced by its name, since an image's own value would win; so are the
variables by which you tune the network ({tuning}), if they are set where you launch. What tells ranks who they are
({families}) always enters. `argosy explain` says it for a job.

| runtime | of the caller's variables enters | unlike the others |
|---|---|---|
{policy}
"""
REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
WIDTH = 110
CLI = """\
# The command line

Every command, in the words of its own `--help`. This page is made by `python tools/make_reference.py`; a test keeps it
up to date. Exit codes are on [a page of their own](exit-codes.md), variables and folders on
[another](files-and-variables.md).
"""
SHELLS = """\
## Shell completion

The shell asks `argosy` itself for the words that fit, so what is completed is what the installed version knows.

| shell | line | in the file |
|---|---|---|
| bash 4.4 or later | `eval "$(argosy completion bash)"` | `~/.bashrc` |
| zsh | `eval "$(argosy completion zsh)"` | `~/.zshrc`, after `compinit` |
| fish | `argosy completion fish \\| source` | `~/.config/fish/config.fish` |
"""
SITE = """\
# The keys of a site profile

A site profile is one TOML file; [many nodes](../how-to/many-nodes.md#write-a-profile) shows how to write one. A key
that is not in these tables is an error that names the nearest one. This page is made by
`python tools/make_reference.py` out of the records that read a profile; a test keeps it up to date.

Every table may carry its evidence:

| key | meaning |
|---|---|
| `why` | the reason, as half a sentence; it stands in the script beside the value |
| `source` | public address of the fact |
| `checked` | date on which somebody last looked at the source |
| `proof` | `documented`, or `proved` by a run at the site |
| `sources` | for a table with several keys: key and its own source |
| `proofs` | key and the run that has shown its value: date, job, versions; `argosy sites merge` writes it |

`when` is a table of conditions, all of which must hold: `when = { nodes = "> 1" }`. It may ask for %s.
"""
SITES = """\
# Sites

What is publicly known of each machine, as Argosy's profiles have it: a picture of a node where its map is known, the
plans for one GPU, one node and two nodes, and each value with reason, source and date. These pages are made by
`python tools/make_reference.py`; `argosy sites show NAME` says the same at the terminal.

"""
MADE = "This page is made from the profile by `python tools/make_reference.py`."
PLANS = {"one-gpu": "one GPU", "one-node": "one node", "many-nodes": "two nodes"}
TABLES = (
    ("The file", "Site"),
    ("`[identity]`", "Identity"),
    ("`[node]`", "Node"),
    ("`[[partitions]]`", "Partition"),
    ("`[slurm]`", "Slurm"),
    ("`[runtime]`", "RuntimeFacts"),
    ("`[modules]`", "Modules"),
    ("`[launcher]`", "LauncherPolicy"),
    ("`[modes.NAME]`", "Mode"),
    ("`[[settings]]`", "Setting"),
    ("`[[options]]`", "Option"),
    ("`[[avoid]]`", "Avoid"),
    ("`[[binds]]`", "SiteBind"),
    ("`[[caches]]`", "Cache"),
    ("`[network]`", "Network"),
    ("`[[network.expected]]`", "Bandwidth"),
    ("`[images]`", "Images"),
    ("`[[images.bases]]`", "Base"),
    ("`[build]`", "Build"),
    ("`[proved]`", "Validated"),
)


def main() -> None:
    """Write the pages."""
    (REFERENCE / "sites").mkdir(exist_ok=True)
    for name, text in render_pages().items():
        (REFERENCE / name).write_text(text)


def render_pages() -> dict[str, str]:
    """Render every page that is made: name and text."""
    own = {"cli.md": render_cli(), "site-profile.md": render_site(), "runtimes.md": render_runtimes()}
    return {**own, **render_sites()}


def render_cli() -> str:
    """Render the help of all commands."""
    parts = [CLI]
    for path, command in walk("argosy", app, None):
        title = f"{'#' * min(3, 1 + len(path.split()))} `{path}`"
        parts.append(f"{title}\n\n```text\n{render_help(path, command)}\n```\n")
    return "\n".join((*parts, SHELLS))


def walk(path: str, command: click.Command, parent: click.Context | None) -> Iterator[tuple[str, click.Command]]:
    """Give a command and those below it, in the order of the help."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path, parent=parent)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from walk(f"{path} {name}", below, context)


def render_help(path: str, command: click.Command) -> str:
    """Render the help of one command at a fixed width, whatever the terminal's is."""
    context = click.Context(
        command,
        info_name=path,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    return command.get_help(context)


def render_site() -> str:
    """Render the keys of a site profile."""
    parts = [SITE % ", ".join(f"`{name}`" for name in KNOWN)]
    for title, name in TABLES:
        kind = getattr(records, name)
        doc = inspect.getdoc(kind) or ""
        meanings = read_attributes(doc)
        summary = doc.splitlines()[0].replace("``", "`")
        shared = records.Conditional.__struct_fields__ if issubclass(kind, records.Evident) else ()
        rows = [
            f"| `{field.name}` | {render_default(field)} | {meanings.get(field.name) or name_table(field.name)} |"
            for field in msgspec.structs.fields(kind)
            if field.name not in shared
        ]
        parts.append(
            "\n".join((f"## {title}\n", f"{summary}\n", "| key | default | meaning |", "|---|---|---|", *rows, ""))
        )
    return "\n".join(parts)


def name_table(key: str) -> str:
    """Name the table that holds a key's own keys; an error where it has neither that nor a meaning."""
    title = next(title for title, _ in TABLES if re.match(rf"`\[+(\w+\.)?{key}\b", title))
    return f"{title}, see [below](#{re.sub(r'[^a-z.]', '', title.lower()).replace('.', '')})"


def render_default(field: msgspec.structs.FieldInfo) -> str:
    """Render what holds where the key is not given."""
    if field.required:
        return "required"
    made = field.default if field.default is not msgspec.NODEFAULT else None
    if isinstance(made, str | int | float | bool) and made != "":
        return f"`{str(made).lower() if isinstance(made, bool) else made}`"
    return "none"


def render_runtimes() -> str:
    """Render the page of the runtimes from their table."""
    loaded = [load_runtime(name) for name in RUNTIMES]
    forms = {r.name: ", ".join(FORMS[form] for form in FORMS if form in r.traits.images) for r in loaded}
    forms |= {r.name: f"{forms[r.name]}, an image that it has ({r.traits.store})" for r in loaded if r.traits.store}
    return RUNTIMES_PAGE.format(
        automatic=", ".join(AUTOMATIC),
        rows="\n".join(f"| `{r.name}` | {r.proof} | {forms[r.name]} | {r.package} |" for r in loaded),
        policy="\n".join(f"| `{r.name}` | {r.traits.caller} | {r.traits.unlike or '-'} |" for r in loaded),
        dropped=", ".join(f"`{name}`" for name in NOT_FROM_CALLER),
        families=", ".join(f"`{family}*`" for family in VARIABLE_PREFIXES),
        tuning="`NCCL_*`, `RCCL_*`, `UCX_*`, `FI_*`, `CCL_*`, `I_MPI_*`",
    )


def read_attributes(doc: str) -> dict[str, str]:
    """Read the Attributes section of a docstring: name and meaning."""
    section = doc.partition("Attributes\n----------\n")[2]
    meanings: dict[str, str] = {}
    for names, text in re.findall(r"^(\S.*)\n((?:    .*\n?)+)", section, re.MULTILINE):
        meaning = " ".join(text.split()).replace("``", "`").replace("|", "\\|")
        meanings |= {name.strip(): meaning for name in names.split(",")}
    return meanings


def render_sites() -> dict[str, str]:
    """Render a page and, where a map is known, a picture for each shipped profile, and the page that lists them."""
    pages: dict[str, str] = {}
    rows: list[str] = []
    for name in site_names((DATA,)):
        site = read_site(name, (DATA,))
        if picture := render_picture(site):
            pages[f"sites/{name}.svg"] = picture
        pages[f"sites/{name}.md"] = render_site_page(site, drawn=bool(picture))
        facts = [site.node.gpu_model or site.node.gpu_vendor, site.runtime.name, site.launcher.default]
        rows.append(f"| [{name}]({name}.md) | {site.title} | " + " | ".join(fact or "-" for fact in facts) + " |")
    head = "| profile | machine | GPU | runtime | launcher |\n|---|---|---|---|---|\n"
    pages["sites/README.md"] = SITES + head + "\n".join(rows) + "\n"
    return pages


def render_site_page(site: Site, *, drawn: bool) -> str:
    """Render what a profile knows: picture, open questions, the plans that tests hold, and each value's evidence."""
    parts = [f"# {site.name}\n", f"{site.title}. {MADE}\n"]
    if drawn:
        parts.append(f"![Cores and GPUs of a node of {site.name}]({site.name}.svg)\n")
    elif site.node.gpus:
        parts.append(f"No picture: {picture_missing(site.node)}.\n")
    if site.open_questions:
        parts.append("## Not known\n\n" + "\n".join(f"- {question}" for question in site.open_questions) + "\n")
    parts += render_plans(site.name)
    parts.append("## Every value and its evidence\n\n| value | | when | why | evidence |\n|---|---|---|---|---|")
    parts += [render_fact(row) for row in tell_site(site.name, (DATA,))]
    return "\n".join(parts) + "\n"


def render_plans(name: str) -> Iterator[str]:
    """Render the scripts that tests hold for a site: what `argosy launch --site NAME --dry-run` prints."""
    plans = {title: GOLDEN / name / f"{stem}.sh" for stem, title in PLANS.items()}
    if any(path.exists() for path in plans.values()):
        yield "## The plans\n\nWhat `argosy launch --dry-run` prints for a training script there; a test holds each.\n"
    for title, path in plans.items():
        if path.exists():
            yield f"<details><summary>{title}</summary>\n\n```sh\n{path.read_text().rstrip()}\n```\n\n</details>\n"


def render_fact(row: Row) -> str:
    """Render a value and where it is from as a row of a table."""
    links = [f"[{number}]({address})" for number, address in enumerate(row.source.split("; "), 1) if "://" in address]
    said = f"{row.proof} {row.checked} {' '.join(links)}".strip()
    cells = [f"`{row.key}`", row.value, row.when, row.why, said]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


if __name__ == "__main__":
    main()
