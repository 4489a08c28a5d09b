"""What conda is asked, how its answers are read, what activation becomes: by value, without conda."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.builder.conda import refuse_pip_over_conda
from argosy.builder.conda_packages import PackageMeta, read_meta, write_meta
from argosy.builder.conda_scripts import packages_with_scripts, parse_activation, render_ask_activation, unshare
from argosy.builder.python.base_python import BasePython
from argosy.core.errors import ArgosyError, CheckFailed, ToolFailed, ToolMissing, UsageError
from argosy.core.layout import render_env_script
from argosy.core.process import Reply
from argosy.core.records import replace
from argosy.recipes import conda_worker
from argosy.recipes.conda_answer import LONGEST_LINE, MOST_LINES, parse_answer, shorten_tree
from argosy.recipes.conda_request import (
    CondaPackage,
    CondaPlan,
    CondaTarget,
    parse_cuda,
    parse_glibc,
    plan_conda,
    render_request,
)
from argosy.recipes.conda_spec import parse_conda_spec
from argosy.recipes.condarc import Condarc, parse_condarc, read_condarc
from argosy.recipes.lock import LockedPackage, PackageKind
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import Recipe, Where

TARGET = CondaTarget("x86_64", "2.36")
CWD = Path("/project")


def recipe_of(folder: Path, text: str) -> Recipe:
    (folder / "environment.yml").write_text(text)
    return read_recipe(["environment.yml"], cwd=folder)


def plan_of(folder: Path, text: str, condarc: Condarc = Condarc(), **variables: str) -> CondaPlan:  # noqa: B008 - frozen
    return plan_conda(recipe_of(folder, text), condarc, TARGET, environment=variables, cwd=CWD)


def environment(*packages: str, channels: str = "conda-forge") -> str:
    return f"channels: [{channels}]\ndependencies: [{', '.join(packages)}]\n"


class TestChannels:
    @pytest.mark.parametrize(
        ("names", "addresses"),
        [
            ("conda-forge", ["https://conda.anaconda.org/conda-forge"]),
            ("pytorch/label/nightly", ["https://conda.anaconda.org/pytorch/label/nightly"]),
            ("defaults, bioconda", [*Condarc().default_channels, "https://conda.anaconda.org/bioconda"]),
            ("conda-forge, nodefaults", ["https://conda.anaconda.org/conda-forge"]),
            ("https://a.example/x/, https://a.example/x", ["https://a.example/x"]),
            (
                "file:///srv/channel, ./mine, /srv/other",
                ["file:///srv/channel", "file:///project/mine", "file:///srv/other"],
            ),
            ('"https://a.example/t/${TOKEN}/x"', ["https://a.example/t/s3cret/x"]),
        ],
    )
    def test_names_become_addresses_in_their_order(self, tmp_path: Path, names: str, addresses: list[str]) -> None:
        assert plan_of(tmp_path, environment("a", channels=names), TOKEN="s3cret").channels == tuple(addresses)  # noqa: S106 - planted

    def test_names_in_a_condarc_are_resolved(self, tmp_path: Path) -> None:
        condarc = parse_condarc(
            "channel_alias: https://mirror.example/conda/\n"
            "default_channels: [https://mirror.example/main]\n"
            "custom_channels: {lab: https://lab.example}\n",
            "condarc",
            Condarc(),
        )
        plan = plan_of(tmp_path, environment("a", channels="defaults, conda-forge, lab"), condarc)
        names = ("main", "conda/conda-forge")
        assert plan.channels == (*(f"https://mirror.example/{name}" for name in names), "https://lab.example/lab")

    def test_without_channels_those_of_the_configuration_are_taken_else_conda_forge(self, tmp_path: Path) -> None:
        text = "dependencies: [a]\n"
        plan = plan_of(tmp_path, text)
        assert plan.channels == ("https://conda.anaconda.org/conda-forge",)
        assert "using conda-forge" in plan.notes[0]
        plan = plan_of(tmp_path, text, parse_condarc("channels: [bioconda]\n", "condarc", Condarc()))
        assert plan.channels == ("https://conda.anaconda.org/bioconda",)
        assert plan.notes == ()

    @pytest.mark.parametrize("name", ["'not a name'", "local", "'https://a.example/$UNSET_X'", "ftp://a"])
    def test_an_invalid_channel_is_refused_with_its_line(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError, match=r"environment\.yml:1"):
            plan_of(tmp_path, environment("a", channels=name))

    def test_the_channel_of_a_package_is_looked_at_last(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, environment('"nvidia::cuda-nvcc=12.*"'))
        assert plan.channels[-1] == "https://conda.anaconda.org/nvidia"
        assert plan.direct == ("nvidia::cuda-nvcc=12",)
        assert plan.names == ()

    def test_the_channel_of_a_package_is_where_the_configuration_has_it(self, tmp_path: Path) -> None:
        condarc = parse_condarc("channel_alias: https://mirror.example/conda\n", "condarc", Condarc())
        plan = plan_of(tmp_path, environment("'nvidia::cuda-nvcc=12.*'", "defaults::requests"), condarc)
        assert plan.direct == (
            "https://mirror.example/conda/nvidia::cuda-nvcc=12",
            "https://repo.anaconda.com/pkgs/main::requests",
        )
        assert plan.channels[-3:] == (
            "https://mirror.example/conda/nvidia",
            "https://repo.anaconda.com/pkgs/main",
            "https://repo.anaconda.com/pkgs/r",
        )


class TestSpecifications:
    def test_packages_are_requested_by_name_and_versions_are_constraints(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, environment("python=3.11", "numpy", "'scipy>=1.11,<2'", '"h5py=*=mpi*"'))
        assert plan.names == ("python", "numpy", "scipy", "h5py")
        assert plan.constraints == ("python=3.11", "scipy>=1.11,<2", "h5py=*=mpi*")
        assert plan.direct == ()

    def test_a_pip_section_brings_python_and_pip(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, "channels: [c]\ndependencies:\n  - numpy\n  - pip: [tqdm]\n")
        assert plan.names == ("numpy", "python", "pip")

    def test_the_build_of_python_is_kept(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, environment('"python=3.11.*=*_cpython"', "numpy"))
        assert plan.constraints == ("python[build='*_cpython',version='=3.11']",)


class TestTarget:
    def test_the_gpu_is_that_which_the_user_names_and_the_processor_the_common_one(self) -> None:
        from argosy.recipes.conda_request import plan_virtual_packages  # noqa: PLC0415

        rows = {name: (version, build) for name, version, build in plan_virtual_packages(TARGET)}
        assert rows["__glibc"] == ("2.36", "0")
        assert rows["__archspec"] == ("1", "x86_64")
        assert "__cuda" not in rows
        assert ("__cuda", "12.8", "0") in plan_virtual_packages(replace(TARGET, cuda="12.8"))
        assert not [row for row in plan_virtual_packages(replace(TARGET, glibc="")) if row[0] == "__glibc"]

    def test_an_architecture_without_packages_is_refused(self) -> None:
        assert CondaTarget("aarch64", "2.36").subdir == "linux-aarch64"
        with pytest.raises(UsageError):
            _ = CondaTarget("s390x", "2.36").subdir

    @pytest.mark.parametrize(
        ("said", "version"),
        [
            ("glibc 2.36\n", "2.36"),
            ("ldd (Debian GLIBC 2.36-9+deb12u4) 2.36\nCopyright\n", "2.36"),
            ("ldd (GNU libc) 2.28\n", "2.28"),
            ("ldd (Ubuntu GLIBC 2.39-0ubuntu8.4) 2.39\n", "2.39"),
            ("musl libc (x86_64)\nVersion 1.2.4\n", ""),
            ("", ""),
        ],
    )
    def test_the_version_of_the_c_library_is_read(self, said: str, version: str) -> None:
        assert parse_glibc(said) == version

    @pytest.mark.parametrize("text", ["12.8.1", "cu128", "12,8", "-1"])
    def test_an_invalid_cuda_version_is_refused(self, text: str) -> None:
        assert parse_cuda("12.8") == "12.8"
        with pytest.raises(UsageError):
            parse_cuda(text)


class TestCondarc:
    def test_the_users_file_wins_over_the_sites(self, tmp_path: Path) -> None:
        (tmp_path / ".condarc").write_text("channel_alias: https://a.example\nssl_verify: false\n")
        (tmp_path / "mine").write_text("channel_alias: https://b.example\nchannel_priority: disabled\n")
        condarc = read_condarc({"CONDARC": str(tmp_path / "mine")}, tmp_path)
        assert (condarc.channel_alias, condarc.ssl_verify, condarc.priority) == ("https://b.example", False, "Disabled")
        assert condarc.files == (str(tmp_path / ".condarc"), str(tmp_path / "mine"))

    @pytest.mark.parametrize("text", ["[1", "- a\n", "channel_priority: sometimes\n", "custom_channels: [a]\n"])
    def test_a_broken_file_is_named(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"/home/me/\.condarc"):
            parse_condarc(text, "/home/me/.condarc", Condarc())

    def test_network_settings_of_a_condarc_are_used(self, tmp_path: Path) -> None:
        condarc = parse_condarc(
            "mirrored_channels: {conda-forge: [https://m.example/cf]}\nssl_verify: /etc/site.pem\n", "c", Condarc()
        )
        config = plan_of(tmp_path, environment("a"), condarc).config
        assert 'tls-root-certs = "system"' in config
        assert '"https://conda.anaconda.org/conda-forge" = ["https://m.example/cf"]' in config


PLAN = CondaPlan(("https://me:planted@a.example/c",), ("a",), (), (), (("__glibc", "2.36", "0"),), "linux-64")


def said(kind: str, message: str, code: int = 1) -> Reply:
    return Reply(
        code, json.dumps({"event": "error", "kind": kind, "message": message}) + "\n", "reading the channels\n"
    )


class TestAnswers:
    def test_packages_are_read_without_their_credentials_even_from_a_crashed_process(self) -> None:
        row = {"name": "a", "version": "1", "build": "h0_0", "url": "https://me:planted@a.example/c/noarch/a.conda"}
        text = json.dumps({"event": "done", "packages": [row | {"sha256": "f" * 64, "md5": "", "size": 1}]})
        (found,) = parse_answer(Reply(139, text + "\n", ""), PLAN)
        address = "https://***@a.example/c/noarch/a.conda"
        assert found == CondaPackage("a", "1", "h0_0", address, "f" * 64, size=1, login_url=row["url"])
        assert "planted" not in repr(found)

    @pytest.mark.parametrize("out", ["", "half a li", '["done"]', '{"event": "what"}', "12"])
    @pytest.mark.parametrize("code", [0, 1, 137])
    def test_no_answer_is_a_failure_whatever_the_exit_code(self, out: str, code: int) -> None:
        with pytest.raises(ToolFailed, match="without a message") as caught:
            parse_answer(Reply(code, out, "thread panicked at https://me:planted@a\n"), PLAN)
        assert "panicked" in caught.value.evidence
        assert "planted" not in str(caught.value)
        assert ("memory" in caught.value.hint) == (code == 137)

    @pytest.mark.parametrize(
        ("kind", "message", "error", "words"),
        [
            (
                "SolverError",
                "Cannot solve the request because of: No candidates were found for a *.",
                CheckFailed,
                "'a'",
            ),
            (
                "GatewayError",
                "could not find subdir 'noarch' in channel 'https://x/'",
                UsageError,
                "no such channel: https://x",
            ),
            ("GatewayError", "HTTP status client error (401 Unauthorized) for url (https://x/y)", ToolFailed, "netrc"),
            ("GatewayError", "HTTP status client error (403 Forbidden) for url (https://x/y)", ToolFailed, "403"),
            (
                "GatewayError",
                "HTTP status client error (429 Too Many Requests) for url (https://x)",
                ToolFailed,
                "too many requests",
            ),
            ("GatewayError", "HTTP status server error (502 Bad Gateway) for url (https://x)", ToolFailed, "502"),
            ("GatewayError", "Request failed after 3 retries\nCaused by: dns error", ToolFailed, "login node"),
            (
                "InstallerError",
                "failed to fetch a.conda\nCaused by: hash mismatch when extracting",
                CheckFailed,
                "channel's index",
            ),
            ("InstallerError", "No space left on device (os error 28)", CheckFailed, "no space"),
            ("ModuleNotFoundError", "No module named 'rattler'", ToolMissing, "py-rattler"),
            ("PanicException", "called `unwrap` on https://me:planted@a.example", ToolFailed, "PanicException"),
        ],
    )
    def test_each_failure_is_explained(self, kind: str, message: str, error: type, words: str) -> None:
        with pytest.raises(ArgosyError) as caught:
            parse_answer(said(kind, message), PLAN)
        assert type(caught.value) is error
        assert words in str(caught.value)
        assert "planted" not in str(caught.value)

    def test_a_missing_system_package_is_explained_by_the_solvers_platform(self) -> None:
        tree = "x\n└─ x 1.0 would require\n   └─ {} >=99, for which no candidates were found."
        with pytest.raises(CheckFailed) as caught:
            parse_answer(said("SolverError", tree.format("__glibc")), PLAN)
        assert "the base has glibc 2.36" in caught.value.hint
        with pytest.raises(CheckFailed) as caught:
            parse_answer(said("SolverError", tree.format("__cuda")), PLAN)
        assert "--cuda" in caught.value.hint

    def test_a_missing_python_that_only_pip_packages_need_is_explained_with_their_line(self, tmp_path: Path) -> None:
        text = "channels:\n  - https://c.example/own\ndependencies:\n  - tool\n  - pip:\n      - six\n"
        plan = plan_of(tmp_path, text)
        message = "Cannot solve the request because of: No candidates were found for python *."
        with pytest.raises(CheckFailed, match="no channel has a package 'python'") as caught:
            parse_answer(said("SolverError", message), plan)
        assert caught.value.evidence == (
            "environment.yml:6: a package of 'pip:', which needs python\nchannels: https://c.example/own"
        )
        assert caught.value.hint == "add a channel that has it, for example conda-forge"

    NEEDS_GPU = (
        "Cannot solve the request because of: lib * cannot be installed because there are no viable options:\n"
        "└─ lib 3.0 would require\n"
        "   └─ __cuda *, for which no candidates were found.\n"
    )
    NO_SUCH = (
        "The following packages are incompatible\n└─ lib * can be installed with any of the following options:\n"
        "   └─ lib 2.1\n└─ the constraint {} cannot be fulfilled\n"
    )
    APP = (
        "Cannot solve the request because of: app * cannot be installed because there are no viable options:\n"
        "└─ app 1.0 would require\n"
        "   └─ lib >=3, which cannot be installed because there are no viable options:\n"
        "      └─ lib 3.0 would require\n"
        "         └─ __cuda *, for which no candidates were found.\n"
    )

    @pytest.mark.parametrize(
        ("message", "asked", "helps"),
        [
            (NEEDS_GPU + NO_SUCH.format("lib 1.*"), ["lib=1"], False),
            (NEEDS_GPU + NO_SUCH.format("lib 3.*"), ["lib=3"], True),
            (NEEDS_GPU + NO_SUCH.format("lib >=3"), ["lib>=3"], True),
            (NEEDS_GPU + NO_SUCH.format("lib 1.*"), [], False),
            (APP, ["app"], True),
            (APP, ["app", "lib=2"], False),
        ],
    )
    def test_another_cuda_is_suggested_only_if_a_package_that_needs_it_fits(
        self, message: str, asked: list[str], *, helps: bool
    ) -> None:
        plan = replace(PLAN, asked=tuple(parse_conda_spec(text, Where("e.yml", 1)) for text in asked))
        with pytest.raises(CheckFailed) as caught:
            parse_answer(said("SolverError", message), plan)
        assert ("--cuda" in caught.value.hint) == helps
        assert ("change one of these versions" in caught.value.hint) == (not helps)

    def test_another_cause_beside_a_missing_cuda_is_not_hidden_by_the_hint(self) -> None:
        with pytest.raises(CheckFailed) as caught:
            parse_answer(said("SolverError", self.NEEDS_GPU + self.NO_SUCH.format("other 1.*")), PLAN)
        assert "--cuda" in caught.value.hint
        assert "change one of these versions" in caught.value.hint

    def test_a_package_for_newer_processors_needs_a_site(self) -> None:
        tree = "simd * cannot be installed\n└─ simd 1.0 would require\n   └─ __archspec ==1 x86_64_v4, for which no ..."
        plan = replace(PLAN, virtual=(("__archspec", "1", "x86_64"),))
        with pytest.raises(CheckFailed) as caught:
            parse_answer(said("SolverError", tree), plan)
        assert caught.value.hint.startswith("solved for processors of type x86_64; ")
        assert "--site" in caught.value.hint

    @pytest.mark.parametrize(
        "message",
        [
            "Cannot solve the request because of: No candidates were found for vc ==14.2=h21ff451_1.",
            "vc ==14.2=h21ff451_1 cannot be installed because there are no viable options",
        ],
    )
    @pytest.mark.parametrize(("spec", "said_so"), [("vc=14.2=h21ff451_1", True), ("vc=14.2", False)])
    def test_a_build_for_another_platform_is_reported(self, message: str, spec: str, *, said_so: bool) -> None:
        plan = replace(PLAN, asked=(parse_conda_spec(spec, Where("win.yml", 7)),))
        with pytest.raises(CheckFailed) as caught:
            parse_answer(said("SolverError", message), plan)
        assert ("--from-history" in caught.value.hint) == said_so
        assert "win.yml:7: vc==14.2=h21ff451_1" in caught.value.evidence or not said_so


@given(st.lists(st.tuples(st.integers(0, 9), st.text("ab cd", min_size=1), st.booleans()), max_size=80))
def test_a_shortened_tree_is_short_and_made_of_the_trees_own_lines(rows: list[tuple[int, str, bool]]) -> None:
    ends = {True: ", for which no candidates were found.", False: ""}
    text = "\n".join(f"{'   ' * depth}└─ {words}{ends[cause]}" for depth, words, cause in rows)
    found = shorten_tree(text)
    assert len(found) <= MOST_LINES + 1
    assert all(len(line) <= LONGEST_LINE + 3 for line in found)
    assert {line for line in found if not line.startswith("…")} <= {line.rstrip() for line in text.splitlines()}


def test_a_repeated_cause_is_shown_once() -> None:
    told = shorten_tree(
        "├─ the constraint numpy <1.26 cannot be fulfilled\n└─ the constraint numpy <1.26 cannot be fulfilled"
    )
    assert told == ["└─ the constraint numpy <1.26 cannot be fulfilled"]


def test_a_deep_cause_is_shown_below_its_origin() -> None:
    noise = "\n".join(f"   ├─ other {n}" for n in range(200))
    text = (
        f"The following packages are incompatible\n└─ a * can be installed\n{noise}\n   └─ b 1 would require\n      └─ "
    )
    found = shorten_tree(text + "c >=2, for which no candidates were found.")
    assert [line.strip("└─ ") for line in found] == [
        "The following packages are incompatible",
        "a * can be installed",
        "b 1 would require",
        "c >=2, for which no candidates were found.",
    ]


def activation(*scripts: str, tmp_path: Path, **before: str) -> str:
    """Run the script that asks, over scripts of packages, and give ``env.sh``."""
    folder = tmp_path / "etc/conda/activate.d"
    folder.mkdir(parents=True)
    for number, text in enumerate(scripts):
        (folder / f"{number}.sh").write_text(text)
    variables = {"CONDA_PREFIX": str(tmp_path), "PATH": "/usr/bin:/bin"} | before
    words = ("/bin/sh", "-c", render_ask_activation())
    out = subprocess.run(words, env=variables, capture_output=True, check=True, encoding="utf-8").stdout
    return render_env_script(parse_activation(out.replace(str(tmp_path), "/opt/argosy/env"), "mine", (("A", "file"),)))


class TestActivation:
    def test_variables_of_scripts_become_plain_exports(self, tmp_path: Path) -> None:
        script = activation(
            'export DATA="$CONDA_PREFIX/share"\nexport A=package\nfunction_of_its_own() { :; }\n',
            'PATH="$CONDA_PREFIX/more:$PATH"\nexport CONDA_BACKUP_X=1\n_hidden=1\nfalse\n',
            tmp_path=tmp_path,
        )
        assert "export DATA=/opt/argosy/env/share\n" in script
        assert "PATH=/opt/argosy/env/more:/opt/argosy/env/bin" in script
        assert "export A=file\n" in script
        assert not re.search("BACKUP|_hidden|VIRTUAL_ENV|package", script)

    def test_lists_are_prepended_to_the_value_at_run_time(self, tmp_path: Path) -> None:
        here = "/.argosy/what-was-there"
        script = activation(
            'export LD_LIBRARY_PATH="$CONDA_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\n',
            tmp_path=tmp_path,
            LD_LIBRARY_PATH=here,
        )
        assert here not in script
        (tmp_path / "env.sh").write_text(script)
        ask = f'. {tmp_path}/env.sh; . {tmp_path}/env.sh; printf %s "$LD_LIBRARY_PATH"'
        for before, after in (({}, "/opt/argosy/env/lib"), ({"LD_LIBRARY_PATH": "/x"}, "/opt/argosy/env/lib:/x")):
            done = subprocess.run(
                ("/bin/sh", "-euc", ask), env=before, capture_output=True, check=True, encoding="utf-8"
            )
            assert done.stdout == after

    def test_an_environment_without_scripts_has_conda_s_own_variables(self) -> None:
        found = parse_activation("", "", ())
        assert ("CONDA_DEFAULT_ENV", "/opt/argosy/env") in found.identity
        assert found.prepend == (("PATH", "/opt/argosy/env/bin"),)


class TestPrefix:
    def test_records_of_packages_are_the_same_from_any_cache_and_hold_no_login(self, tmp_path: Path) -> None:
        texts = []
        for cache in ("one", "two"):
            meta = tmp_path / cache / "conda-meta"
            meta.mkdir(parents=True)
            record = {"name": "a", "link": {"source": cache}, "extracted_package_dir": cache}
            address = "https://me:planted@a.example/t/planted/x/a.conda"
            record["url"] = address
            (meta / "a.json").write_text(json.dumps(record))
            packages = [CondaPackage("a", "1", "0", "https://a.example/x/a.conda", login_url=address)]
            write_meta(tmp_path / cache, packages, read_meta(tmp_path / cache, packages), ("a >=1",), time=0)
            texts.append("".join(path.read_text() for path in sorted(meta.iterdir())))
        assert texts[0] == texts[1]
        assert '"requested_specs": [\n  "a >=1"\n ]' in texts[0]
        assert "planted" not in texts[0] + repr(packages)

    def test_link_scripts_run_in_the_order_of_the_packages(self, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        for name in ("a", "b-c", "gone"):
            (tmp_path / f"bin/.{name}-post-link.sh").touch()
        depends = {"a": ["b-c >=1", "x"], "b-c": [], "x": ["a"]}
        meta = {name: PackageMeta({"depends": names}) for name, names in depends.items()}
        packages = [CondaPackage(name, "1", "0", "") for name in ("a", "b-c", "x")]
        assert [package.name for package in packages_with_scripts(tmp_path, packages, meta)] == ["b-c", "a"]

    def test_an_unshared_file_no_longer_changes_the_cache(self, tmp_path: Path) -> None:
        (tmp_path / "env").mkdir()
        (tmp_path / "cached").write_text("as downloaded")
        (tmp_path / "env/file").hardlink_to(tmp_path / "cached")
        unshare(tmp_path / "env")
        (tmp_path / "env/file").write_text("changed")
        assert (tmp_path / "cached").read_text() == "as downloaded"


class TestPipBesideConda:
    HELD = (LockedPackage("pytorch", "2.5.1", kind=PackageKind.CONDA), LockedPackage("own", "1.0"))
    PYTHON = BasePython("3.11.7", "/opt/argosy/env/bin/python", (("torch", "2.5.1"), ("own", "1.0")), ())

    @pytest.mark.parametrize("line", ["torch==2.4", "torch<2", "Torch @ https://x.example/torch.whl"])
    def test_conda_packages_are_not_replaced(self, tmp_path: Path, line: str) -> None:
        recipe = recipe_of(tmp_path, f"dependencies:\n  - pip:\n      - {line}\n")
        with pytest.raises(CheckFailed, match="pip would replace the conda package torch") as caught:
            refuse_pip_over_conda(recipe, self.PYTHON, self.HELD)
        assert "environment.yml:3" in caught.value.evidence
        assert caught.value.evidence.splitlines()[-1] == "conda installed torch (for Python: torch==2.5.1)"

    def test_the_conda_package_in_the_way_is_named_once_with_its_build(self, tmp_path: Path) -> None:
        held = (LockedPackage("numpy", "2.1.0", kind=PackageKind.CONDA, build="py311_0"),)
        python = replace(self.PYTHON, packages=(("numpy", "2.1.0"),))
        recipe = recipe_of(tmp_path, "dependencies:\n  - pip:\n      - numpy<2\n")
        with pytest.raises(CheckFailed) as caught:
            refuse_pip_over_conda(recipe, python, held)
        assert caught.value.evidence.splitlines() == [
            "environment.yml:3: numpy<2",
            "conda installed numpy 2.1.0 py311_0 (for Python: numpy==2.1.0)",
        ]

    @pytest.mark.parametrize("line", ["torch", "torch>=2.5", "own==2.0", "other==9"])
    def test_other_pip_requirements_pass(self, tmp_path: Path, line: str) -> None:
        refuse_pip_over_conda(recipe_of(tmp_path, f"dependencies:\n  - pip:\n      - {line}\n"), self.PYTHON, self.HELD)


class TestWorker:
    def test_the_bytes_of_a_local_package_are_checked(self, tmp_path: Path) -> None:
        file = tmp_path / "a b.conda"
        file.write_bytes(b"x")
        address = f"file://{str(file).replace(' ', '%20')}"
        conda_worker.refuse_damaged_package(address, None, None)
        conda_worker.refuse_damaged_package("https://elsewhere", b"0" * 32, None)
        with pytest.raises(conda_worker.HashMismatch, match="announced"):
            conda_worker.refuse_damaged_package(address, b"0" * 32, None)
        with pytest.raises(conda_worker.HashMismatch):
            conda_worker.refuse_damaged_package(address, None, b"0" * 16)

    def test_a_senseless_request_is_an_explained_error(self) -> None:
        assert conda_worker.answer({})["event"] == "error"

    def test_the_request_has_the_contents_of_the_plan(self, tmp_path: Path) -> None:
        text = render_request(PLAN, cache=tmp_path)
        assert json.loads(text)["channels"] == list(PLAN.channels)
        assert "planted" not in repr(PLAN)
