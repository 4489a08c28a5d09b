"""Wrapped commands under bubblewrap: they behave as installed ones, and a change of the prefix never disturbs them."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from argosy.images.tree_digests import digest_tree
from tests.patience import wait_until_written
from tests.real.test_interrupts import wait_for

if TYPE_CHECKING:
    from tests.real.conftest import Ended, Shop

pytestmark = pytest.mark.real

SAMPLE, SAMPLE_OF_NEW = 4, 2
FULL = 50
SEED = int(os.environ.get("ARGOSY_SEED", "20"))
AS_ALICE = ("setpriv", "--reuid", "2001", "--regid", "2001", "--clear-groups", "--inh-caps=-all", "--")

TELL_USR1 = """
import signal
# A handler would run too late for a signal that arrives just before a call that waits.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
print("saved", flush=True)
raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def prefix(pool: Shop) -> Path:
    """Wrap one small environment; the tests that change a prefix make their own."""
    folder = Path(tempfile.mkdtemp(prefix="wrap, it-", dir=pool.folder))
    folder.chmod(0o755)
    own = replace(pool, folder=folder)
    own.write("beside.txt", "by-script\n")
    lines = (
        "#!/bin/bash",
        "read -r name < beside.txt; [[ -d $env_root ]] || exit 1",
        "python - << 'END' > \"$CW_INSTALLATION_PATH/$name\"",
    )
    script = own.write("after.sh", "\n".join((*lines, "import tinypkg; print(tinypkg.VERSION)", "END", "")))
    more = ("--base", own.base, "--post-install", script)
    done = wrap(own, own.write("requirements.txt", "tinypkg\n"), folder / "my env", *more)
    assert done.code == 0, done.err
    return folder / "my env"


def copy(prefix: Path, target: Path) -> None:
    """Copy a prefix by hard links: nothing changes a file of one; its unpacked trees are links to those there are."""
    trees = prefix / "cache/trees"
    link = partial(os.link, follow_symlinks=False)
    shutil.copytree(prefix, target, symlinks=True, copy_function=link, ignore=lambda folder, names:
                    [name for name in names if Path(folder) == trees and (trees / name).is_dir()])  # fmt: skip
    for tree in trees.iterdir():
        if tree.is_dir():
            (target / "cache/trees" / tree.name).symlink_to(tree)


def wrap(shop: Shop, source: Path, prefix: Path, *more: str | Path) -> Ended:
    return shop.argosy("wrap", source, "--prefix", prefix, *more)


def call(prefix: Path, *words: str, name: str = "python", around: tuple[str, ...] = (), **more: object) -> str:
    """Call a wrapped command, and give what it prints."""
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin", "HOME": str(prefix.parent), "USER": "somebody"}
    command = [*around, str(prefix / "bin" / name), *words]
    options = {"env": environment, "cwd": prefix.parent, "capture_output": True} | more
    done = subprocess.run(command, check=False, **options)  # type: ignore[call-overload] # a test changes some
    assert done.returncode == 0, done.stderr.decode()
    text: str = done.stdout.decode()
    return text.strip()


def test_a_wrapped_command_runs_with_its_packages(prefix: Path) -> None:
    assert call(prefix, name="tinypkg") == "tinypkg 2.0"
    assert call(prefix, "-c", "import tinydep, sys; print(tinydep.VERSION, sys.prefix)") == f"1.5 {prefix}"


def test_the_names_of_modules_lead_into_the_image_not_through_the_prefix(prefix: Path) -> None:
    code = "import sys, tinydep; print(tinydep.__file__, [path for path in sys.path if path.startswith(sys.prefix)])"
    assert re.fullmatch(r"/opt/argosy/env/lib/python3\.\d+/site-packages/tinydep\S* \[\]", call(prefix, "-c", code))


@pytest.mark.parametrize("paths", ["/opt/argosy/env/bin/python", "env,python3"])
def test_a_python_wrapped_alone_keeps_its_packages(shop: Shop, prefix: Path, paths: str) -> None:
    own, name = shop.folder / "own", "python" if "/" in paths else "python3"
    done = wrap(shop, prefix, own, "-w", paths)
    assert done.code == 0, done.err
    assert call(own, "-c", "import tinydep, sys; print(tinydep.VERSION, sys.prefix)", name=name) == f"1.5 {own}"
    checked = shop.argosy("wrap", "check", own)
    assert checked.code == 0, checked.out
    (own / "versions/1/inside/pyvenv.cfg").unlink()
    checked = shop.argosy("wrap", "check", own)
    assert (checked.code, f"{name} has the packages of /usr instead of /opt/argosy/env" in checked.out) == (7, True)


def test_files_of_a_script_are_in_the_layer(prefix: Path) -> None:
    assert call(prefix, "-c", "print(open('/opt/argosy/by-script').read())") == "2.0"


def test_the_interpreters_path_is_right_inside_and_outside(prefix: Path) -> None:
    ask = "import subprocess, sys; print(sys.executable, flush=True); subprocess.run([sys.executable, *sys.argv[1:]])"
    again = "import os, sys; print(sys.executable, os.path.exists('/opt/argosy'))"
    assert call(prefix, "-c", ask, "-c", again).splitlines() == [f"{prefix}/bin/python", f"{prefix}/bin/python True"]


def test_standard_streams_carry_any_bytes(prefix: Path) -> None:
    data = bytes(range(256)) * 4096
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    done = subprocess.run([prefix / "bin/python", "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout == data


@pytest.mark.parametrize(("count", "size"), [(5, 95_000), (50_000, 5)])
def test_half_a_megabyte_of_arguments_arrives(prefix: Path, count: int, size: int) -> None:
    words = [f"{n:05d}{'x' * size}" for n in range(count)] + ["", "a b", "*", "$HOME", "new\nline"]
    code = "import hashlib, sys; print(hashlib.sha256(repr(sys.argv[1:]).encode()).hexdigest())"
    import hashlib  # noqa: PLC0415

    assert call(prefix, "-c", code, *words) == hashlib.sha256(repr(words).encode()).hexdigest()


def test_exit_codes_and_signals_are_the_programs_own(prefix: Path) -> None:
    assert subprocess.run([prefix / "bin/python", "-c", "raise SystemExit(7)"], check=False).returncode == 7
    with subprocess.Popen([prefix / "bin/python", "-c", TELL_USR1], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGUSR1)
        assert child.stdout.readline() == "saved\n"
        assert child.wait() == 3


TELL_INTERPRETER = """
import json, sys
print(json.dumps({"versionInfo": list(sys.version_info), "sysPrefix": sys.prefix, "sysVersion": sys.version,
                  "is64Bit": sys.maxsize > 2**32, "executable": sys.executable}))
"""

DEBUG = """
import socket, subprocess, sys
listening = socket.create_server(("127.0.0.1", 0))
words = [sys.executable, "-X", "frozen_modules=off", sys.argv[1], "--connect", str(listening.getsockname()[1])]
with subprocess.Popen(words) as child:
    with listening.accept()[0] as adapter:
        print(adapter.makefile().readline(), end="", flush=True)
        adapter.sendall(b"go on\\n")
    raise SystemExit(child.wait())
"""

DEBUGGED = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as adapter:
    adapter.sendall(f"{sys.executable} {sys._xoptions}\\n".encode())
    raise SystemExit(0 if adapter.recv(99) == b"go on\\n" else 1)
"""


def test_an_editor_asks_the_interpreter_lists_its_packages_and_debugs_a_child_by_a_socket(prefix: Path) -> None:
    ask, debug = prefix.parent / "interpreter info.py", prefix.parent / "debug.py"
    ask.write_text(TELL_INTERPRETER)
    debug.write_text(DEBUG)
    (prefix.parent / "debugged.py").write_text(DEBUGGED)
    told = json.loads(call(prefix, "-I", str(ask)))
    assert (told["executable"], told["sysPrefix"]) == (f"{prefix}/bin/python", str(prefix))
    listed = call(prefix, "-c", "from importlib.metadata import distributions as d; print(*(x.name for x in d()))")
    assert {"tinypkg", "tinydep"} <= set(listed.split())
    said = call(prefix, str(debug), str(prefix.parent / "debugged.py"))
    assert said == f"{prefix}/bin/python {{'frozen_modules': 'off'}}"


def test_an_environment_made_on_top_sees_the_packages_and_starts_the_same_container(prefix: Path) -> None:
    top = prefix.parent / "on top"
    call(prefix, "-m", "venv", "--system-site-packages", "--without-pip", str(top))
    assert (top / "bin/python").readlink() == prefix / "bin/python"
    ask = "import sys, tinypkg, os; print(sys.prefix, tinypkg.VERSION, os.environ['PATH'].split(':')[0])"
    done = subprocess.run([top / "bin/python", "-c", ask], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"{top} 2.0 {top}/bin", done.stderr


def test_a_prefix_works_for_other_users_and_after_a_move(shop: Shop, prefix: Path) -> None:
    moved = shop.folder / "moved"
    shop.home.chmod(0o777)
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin", "HOME": str(shop.home), "USER": "alice"}
    ask = "import os, pwd, sys; print(pwd.getpwuid(os.getuid()).pw_name, sys.executable)"
    prefix.rename(moved)
    try:
        assert call(moved, "-c", ask, around=AS_ALICE, env=environment) == f"alice {moved}/bin/python"
    finally:
        moved.rename(prefix)


def test_a_prefix_is_called_by_a_link_to_it_or_to_a_folder_above(shop: Shop, prefix: Path) -> None:
    ask = "import subprocess, sys, tinypkg; print(sys.executable, subprocess.call([sys.executable, '-c', 'pass']))"
    for name, target in (("to it", prefix), ("above", prefix.parent)):
        link = shop.folder / f"link {name}"
        link.symlink_to(target)
        called = link if target == prefix else link / prefix.name
        assert call(called, "-c", ask) == f"{prefix}/bin/python 0"


def test_a_directory_of_the_host_below_a_folder_of_the_image_is_shown_too(prefix: Path) -> None:
    ask = "import os, tinypkg; print(os.getcwd(), len(os.listdir()), tinypkg.VERSION)"
    place = Path("/var/lib/dpkg")
    assert call(prefix, "-c", ask, cwd=place) == f"{place} {len(list(place.iterdir()))} 2.0"


def test_a_prefix_is_an_image_to_other_commands(shop: Shop, prefix: Path) -> None:
    # Its trees are unpacked already, so no other cache is filled for this.
    assert shop.run(prefix, "tinypkg", ARGOSY_CACHE=str(prefix / "cache")).out == "tinypkg 2.0\n"
    assert f"{prefix}/versions/1/image.sif" in shop.argosy("images", "info", prefix).out


def see_a_failed_update(shop: Shop, own: Path) -> None:
    """See that it leaves the prefix as it was, and the layer from which the next one begins."""

    def there() -> list[str]:
        return sorted(path.name for path in own.rglob("*") if "cache" not in path.parts)

    before, kept = there(), sorted((shop.cache / "layers").iterdir())
    assert kept
    assert shop.argosy("wrap", "update", own, "no-such-package-anywhere").code == 7
    assert (there(), sorted((shop.cache / "layers").iterdir())) == (before, kept)


def test_a_prefix_is_updated_and_rolled_back_by_one_link(shop: Shop, prefix: Path) -> None:
    own = shop.folder / "own"
    copy(prefix, own)
    done = shop.argosy("wrap", "update", own, "another")
    assert done.code == 0, done.err
    assert "version 2 (version 1 kept)" in done.out
    assert call(own, name="another") == "another 0.3"
    assert call(own, name="tinypkg") == "tinypkg 2.0"
    see_a_failed_update(shop, own)
    assert shop.argosy("wrap", "rollback", own).code == 0
    assert not (own / "bin/another").exists()
    assert shop.argosy("wrap", "rollback", own, "2").code == 0
    trees = {tree.name: digest_tree(tree) for tree in (own / "cache/trees").iterdir() if tree.is_dir()}
    alone = ("sh", "-c", 'umask 077; exec "$@"', "sh")
    assert shop.argosy("wrap", "update", own, "onemore", around=alone).code == 0
    assert call(own, name="onemore", around=AS_ALICE) == "onemore 0.1"
    assert trees == {name: digest_tree(own / "cache/trees" / name) for name in trees}
    assert shop.argosy("wrap", "rollback", own, "2").code == 0
    assert shop.argosy("wrap", "prune", own, "--keep", "0").out == "removed: 1, 3\n"
    assert [line.split()[:2] for line in shop.argosy("wrap", "history", own).out.splitlines()] == [["*", "2"]]
    assert shop.argosy("wrap", "check", own).code == 0
    (own / "versions/2/image.sif").unlink()
    (own / "versions/2/image.sif").write_bytes(b"not an image any more")
    checked = shop.argosy("wrap", "check", own)
    assert (checked.code, "fail     image" in checked.out) == (7, True)


def test_paths_of_an_image_are_wrapped_and_one_that_is_not_there_is_an_error(shop: Shop, tiny: Path) -> None:
    done = wrap(shop, tiny, shop.folder / "p", "-w", "/bin/env,/nowhere/bin,pyhton")
    assert (done.code, "no programs at /nowhere/bin, pyhton" in done.err) == (6, True), done.err
    assert "unpack" not in done.err
    assert not (shop.folder / "p").exists()
    gone = shop.folder / "vendor.sqsh"
    gone.hardlink_to(tiny)
    done = wrap(shop, gone, shop.folder / "p", "-w", "/bin")
    assert done.code == 0, done.err
    assert call(shop.folder / "p", "/etc/old", name="cat") == "old"
    gone.unlink()
    checked = shop.argosy("wrap", "check", shop.folder / "p")
    assert (checked.code, f"{gone} does not exist" in checked.out) == (7, True)


def test_a_thousand_commands_are_wrapped_by_one_start_of_the_container(shop: Shop, tiny: Path) -> None:
    image, shim, starts = shop.folder / "image", shop.folder / "shim", shop.folder / "starts"
    shutil.copytree(tiny.with_name("tiny-root"), image, symlinks=True)
    (image / "many").mkdir()
    (image / "many/c0").write_text('#!/bin/sh\necho "$@"\n')
    (image / "many/c0").chmod(0o755)
    for number in range(1, 1000):
        (image / f"many/c{number}").hardlink_to(image / "many/c0")
    shim.mkdir()
    (shim / "bwrap").write_text(f'#!/bin/sh\necho start >> {starts}\nexec {shutil.which("bwrap")} "$@"\n')
    (shim / "bwrap").chmod(0o755)
    path = f"{shim}:{shop.environment()['PATH']}"
    done = shop.argosy("wrap", image, "--prefix", shop.folder / "p", "-w", "/many", PATH=path)
    assert done.code == 0, done.err
    assert starts.read_text() == "start\n"
    assert len(list((shop.folder / "p/bin").iterdir())) == 1000
    assert call(shop.folder / "p", "said", name="c999") == "said"


def test_an_image_without_a_shell_is_one_clear_error_and_leaves_nothing(shop: Shop, tiny: Path) -> None:
    image = shop.folder / "image"
    (image / "usr/bin").mkdir(parents=True)
    shutil.copy2(tiny.with_name("tiny-root") / "bin/busybox", image / "usr/bin/echo")
    done = wrap(shop, image, shop.folder / "p", "-w", "/usr/bin/echo")
    assert (done.code, "argosy: cannot list the programs of image: it has no /bin/sh" in done.err) == (6, True), (
        done.err
    )
    assert ".part" not in done.err
    assert not (shop.folder / "p").exists()


def test_a_prefix_on_a_full_disk_fails_and_leaves_nothing(shop: Shop, tiny: Path) -> None:
    small = shop.folder / "small"
    small.mkdir()
    shop.tool("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small)
    try:
        done = wrap(shop, tiny, small / "p", "-w", "/bin", "--copy")
        assert (done.code, "o space left" in done.err) == (7, True), done.err
        assert list(small.iterdir()) == []
    finally:
        shop.tool("umount", small)


def test_an_installation_is_found_at_its_own_path_when_it_is_gone_from_the_disk(shop: Shop, tiny: Path) -> None:
    place = shop.folder / "tools"
    (place / "bin").mkdir(parents=True)
    (place / "data").write_text("of the tool\n")
    (place / "bin/tool").write_text(f"#!/bin/sh\nexec cat {place}/data\n")
    (place / "bin/tool").chmod(0o755)
    done = wrap(shop, place, shop.folder / "p", "--base", tiny)
    assert done.code == 0, done.err
    (place / "data").unlink()
    assert call(shop.folder / "p", name="tool") == "of the tool"


def test_an_archive_of_conda_pack_gets_its_new_path_and_a_prefix_is_made_from_that_prefix(
    shop: Shop, tiny: Path
) -> None:
    made, archive = shop.folder / "made/bin", shop.folder / "env.tar.gz"
    made.mkdir(parents=True)
    # The layout of conda-pack; what rewrites the placeholders is a Python script there.
    texts = {"python": '#!/bin/sh\nexec /bin/sh "$@"\n', "tool": "#!/bin/sh\necho at PLACEHOLDER\n",
             "conda-unpack": 'read -r a < "${0%/*}/tool"; here=${0%/bin/*}\n'
                             'printf "%s\\necho at %s\\n" "$a" "$here" > "$here/bin/tool"\n'}  # fmt: skip
    for name, text in texts.items():
        (made / name).write_text(text)
        (made / name).chmod(0o755)
    (made.parent / "conda-meta").mkdir()
    shop.tool("tar", "-czf", archive, "-C", made.parent, "bin", "conda-meta")
    done = wrap(shop, archive, shop.folder / "p", "--base", tiny, "--at", "/soft/env")
    assert done.code == 0, done.err
    assert call(shop.folder / "p", name="tool") == "at /soft/env"
    assert sorted(path.name for path in (shop.folder / "p/bin").iterdir()) == ["python", "tool"]
    done = wrap(shop, shop.folder / "p", shop.folder / "q", "-w", "/soft/env/bin/tool")
    assert done.code == 0, done.err
    shutil.rmtree(shop.folder / "p")
    assert call(shop.folder / "q", name="tool") == "at /soft/env"


def test_an_archive_may_belong_at_the_top_of_the_file_system(shop: Shop, tiny: Path) -> None:
    made, archive = shop.folder / "made/bin", shop.folder / "env.tar.gz"
    made.mkdir(parents=True)
    (made.parent / "conda-meta").mkdir()
    (made / "tool").write_text("#!/argosy-env/bin/python\n")
    (made / "tool").chmod(0o755)
    shop.tool("tar", "-czf", archive, "-C", made.parent, "bin", "conda-meta")
    done = wrap(shop, archive, shop.folder / "p", "--base", tiny)
    assert done.code == 0, done.err
    words = [shop.folder / "p/bin/tool"]
    asked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (asked.returncode, "mkdir /argosy-env" in asked.stderr) == (125, True), asked.stderr


@pytest.mark.soak
@pytest.mark.parametrize("prefix", ["/../../../../../../../../..{folder}/stolen", "/opt/argosy"])
def test_an_archive_writes_nothing_outside_the_prefix(shop: Shop, tiny: Path, prefix: str) -> None:
    made, archive, outside = shop.folder / "made/bin", shop.folder / "env.tar.gz", shop.folder / "mine"
    made.mkdir(parents=True)
    outside.write_text("untouched")
    (made.parent / "lib").mkdir()
    (made / "tool").write_text(f"#!{prefix.format(folder=shop.folder)}/bin/python\n")
    (made / "tool").chmod(0o755)
    for name in ("enter", "env.sh", "argosy.lock"):
        (made.parent / name).symlink_to(outside)
    shop.tool("tar", "-czf", archive, "-C", made.parent, "bin", "lib", "enter", "env.sh", "argosy.lock")
    wrap(shop, archive, shop.folder / "p", "--base", tiny)
    assert outside.read_text() == "untouched"
    assert not (shop.folder / "stolen").exists()


class Callers(threading.Thread):
    """Somebody who calls a command over and over while the prefix changes."""

    def __init__(self, prefix: Path) -> None:
        super().__init__()
        self.prefix, self.said, self.going = prefix, set[str](), True

    def run(self) -> None:
        while self.going:
            done = subprocess.run(
                [self.prefix / "bin/tinypkg"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            )
            self.said.add(done.stdout + done.stderr)


def test_updates_killed_at_any_moment_leave_the_old_or_the_new_version_under_running_commands(
    shop: Shop, prefix: Path
) -> None:
    own = shop.folder / "own"
    copy(prefix, own)
    chance = random.Random(SEED)  # noqa: S311 - the same moments each time
    callers = Callers(own)
    callers.start()
    try:
        for turn in range(FULL if os.environ.get("ARGOSY_SOAK") else SAMPLE):
            child = shop.start("wrap", "update", own, "another", "--quiet")
            with suppress(subprocess.TimeoutExpired):
                child.wait(chance.uniform(0.3, 4.0))
            child.send_signal(signal.SIGKILL if turn % 2 else signal.SIGTERM)
            child.communicate()
            assert call(own, name="tinypkg") == "tinypkg 2.0"
    finally:
        callers.going = False
        callers.join()
    assert callers.said == {"tinypkg 2.0\n"}
    done = shop.argosy("wrap", "update", own, "another")
    assert done.code == 0, done.err
    assert call(own, name="another") == "another 0.3"
    assert shop.argosy("wrap", "check", own).code == 0
    assert [path.name for path in own.rglob("*.part")] == []


def test_an_interrupt_of_a_waiting_command_leaves_the_work_of_the_other(shop: Shop, tiny: Path) -> None:
    arrived, gate, shim = (shop.folder / name for name in ("arrived", "gate", "shim"))
    os.mkfifo(arrived)
    os.mkfifo(gate)
    shim.mkdir()
    wait = f"[ ! -p {gate} ] || {{ echo > {arrived}; read -r _ < {gate}; }}"
    (shim / "bwrap").write_text(f'#!/bin/sh\n{wait}\nexec {shutil.which("bwrap")} "$@"\n')
    (shim / "bwrap").chmod(0o755)
    words = ("wrap", tiny, "--prefix", shop.folder / "p", "-w", "/bin", "--runtime", "bwrap")
    first = shop.start(*words, PATH=f"{shim}:{shop.environment()['PATH']}")
    wait_until_written(arrived)
    second = shop.start(*words)
    wait_for(second, "waiting for process")
    second.send_signal(signal.SIGINT)
    second.communicate()
    assert second.returncode == 130
    with gate.open("w"):  # returns when the shim reads
        gate.unlink()
    _, err = first.communicate()
    assert first.returncode == 0, err
    assert call(shop.folder / "p", "whole", name="echo") == "whole"
    assert [path.name for path in (shop.folder / "p").rglob("*") if "lease" in path.name] == []


def test_a_new_prefix_killed_at_any_moment_is_whole_or_can_be_made(shop: Shop, tiny: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same moments each time
    own = shop.folder / "own"
    for turn in range(FULL if os.environ.get("ARGOSY_SOAK") else SAMPLE_OF_NEW):
        child = shop.start("wrap", tiny, "--prefix", own, "-w", "/bin", "--quiet")
        with suppress(subprocess.TimeoutExpired):
            child.wait(chance.uniform(0.2, 2.0))
        child.send_signal(signal.SIGKILL if turn % 2 else signal.SIGTERM)
        child.communicate()
        done = wrap(shop, tiny, own, "-w", "/bin")
        assert done.code == 0 or "already contains wrapped commands" in done.err, done.err
        assert call(own, "whole", name="echo") == "whole"
        assert [path.name for path in own.rglob("*.part")] == []
        shutil.rmtree(own)


def test_an_update_may_request_another_version_of_an_installed_package(shop: Shop) -> None:
    recipe = shop.write("requirements.txt", "tinypkg\n")
    own = shop.folder / "own"
    done = shop.argosy("wrap", recipe, "--prefix", own, "--base", shop.base)
    assert done.code == 0, done.err
    done = shop.argosy("wrap", "update", own, "tinypkg<2")
    assert done.code == 0, done.err
    assert "rebuilding from the sources" in done.err
    assert call(own, name="tinypkg") == "tinypkg 1.0"
    done = shop.argosy("wrap", "update", own, "needsnine", "tinydep<2")
    assert done.code == 7
    assert "argosy wrap update: tinydep<2" in done.err, done.err
    assert str(own / "versions") not in done.err.partition("argosy:")[2]
    done = shop.argosy("wrap", "update", own, "no-such-package")
    assert (done.code, "check the spelling" in done.err) == (7, True), done.err
    assert call(own, name="tinypkg") == "tinypkg 1.0"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("test -e nothing-there\necho went on\n", "exit code 1"),
        ("conda install -y numpy\n", "list the packages in environment.yml"),
        ("#!/bin/sh\ngit clone https://example.org/x\n", "the base has no git"),
    ],
)
def test_a_failing_script_ends_the_update_with_a_next_step(shop: Shop, prefix: Path, script: str, said: str) -> None:
    own = shop.folder / "own"
    copy(prefix, own)
    done = shop.argosy("wrap", "update", own, "--post-install", shop.write("post.sh", script))
    assert (done.code, said in done.err) == (5, True), done.err
    assert call(own, name="tinypkg") == "tinypkg 2.0"
