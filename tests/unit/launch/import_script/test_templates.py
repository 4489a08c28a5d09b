"""A template of a job script is refused with its placeholders; other text in such brackets is not one."""

from __future__ import annotations

import pytest

from argosy.core.errors import UsageError
from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import ImportedScript


def read(*lines: str) -> ImportedScript:
    return import_script("j.sh", "\n".join(("#!/bin/bash", *lines, "srun ./a", "")))


@pytest.mark.parametrize(
    ("lines", "evidence"),
    [
        (("#SBATCH --account=<project>",), "line 2: <project>"),
        (("#SBATCH -p <partition name>  # <a comment>",), "line 2: <partition name>"),
        (("#SBATCH --mail-user=<me@x.org>", "#SBATCH -t <HH:MM:SS>"), "line 2: <me@x.org>\nline 3: <HH:MM:SS>"),
        (("#SBATCH --nodes={{ nodes }}", "{% if mail %}", "{%- endif %}"),
         "line 2: {{ nodes }}\nline 3: {% if mail %}\nline 4: {%- endif %}"),
        (("cd /scratch/<project>/<user>", 'echo "{{ name }}"', "srun ./a {{ arguments }}"),
         "line 2: <project> <user>\nline 3: {{ name }}\nline 4: {{ arguments }}"),
        (("#SBATCH <options>", "# <a>", 'DATA="<path of the data>"'), "line 2: <options>\nline 4: <path of the data>"),
        (("export WANDB_API_KEY=<your_key>",), "line 2: <your_key>"),
        (tuple(f"#SBATCH --comment=<{number}x>" for number in "abcdefg"),
         "\n".join(f"line {at}: <{number}x>" for at, number in enumerate("abcde", 2)) + "\nand 2 more lines"),
    ],
)  # fmt: skip
def test_a_template_is_refused_with_the_lines_of_its_placeholders(lines: tuple[str, ...], evidence: str) -> None:
    with pytest.raises(UsageError) as error:
        read(*lines)
    assert error.value.evidence == evidence
    assert "template" in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --account=p1  # <your project>",
        "# #SBATCH --account=<project>",
        "podman ps --format '{{.Names}}'",
        "podman ps --format '{{ .Names }}' > names",
        """vllm serve m --chat-template '{% for m in messages %}{{ m }}{% endfor %}'""",
        "cat > t.jinja <<E\n{{ name }} /data/<name>\nE",
        "sort <in >out",
        "./a --pad='<pad>'",
        "./a <(sort in) >(cat)",
        "echo ${X%%{*} ${Y#*{{}",
        "./a {{a,b},c}",
        "f() {\n{ ./b; }\n}",
        "while read x; do echo $x; done </data/list>/data/out",
    ],
)
def test_text_that_only_looks_like_a_placeholder_is_imported(line: str) -> None:
    imported = read(line)
    assert imported.jobs[-1].program == "./a"
    lines = {each.line for each in imported.translations}
    assert (2 in lines) != line.startswith("# "), "all but a comment is translated or reported"
