"""What of an image a command never opened: read from a listing and from a log of strace, and turned into advice."""

from __future__ import annotations

import tomllib

from argosy.runtimes.unused_files import follow, group_files, group_of, opened_files, parse_listing, render_slimming

LISTING = """\
drwxr-xr-x root/root                27 2026-11-21 11:51 /usr
-rwxr-xr-x root/root             43648 2026-11-21 11:51 /usr/bin/tool
lrwxrwxrwx root/root                 7 2026-11-21 11:51 /bin -> usr/bin
-rw-r--r-- root/root           3000000 2026-11-21 11:51 /opt/a file/big
c--------- root/root              0, 0 2026-11-21 11:51 /gone
"""
LINKS = {"bin": "usr/bin", "usr/bin/py": "/etc/alternatives/py", "etc/alternatives/py": "../../usr/bin/py3", "x": "x"}
TRACE = """\
11 execve("/usr/bin/sh", ["sh", "-c", "exec \\"$@\\"", "argosy-slim", "py"], 0x1 /* 3 vars */) = 0
11 openat(AT_FDCWD</w>, "/usr/lib/before", O_RDONLY) = 3</usr/lib/before>
11 execve("/bin/sh", ["sh", "-c", "exec \\"$@\\"", "argosy-slim", "py"], 0x1 /* 3 vars */) = 0
11 openat(AT_FDCWD</w>, "/lib/libc.so.6", O_RDONLY|O_CLOEXEC) = 3</usr/lib/libc.so.6>
11 execve("/bin/py", ["py"], 0x1 /* 3 vars */) = 0
12 openat(AT_FDCWD</opt>, "data/x", O_RDONLY) = 4</opt/data/x>
"""
SITE = "opt/argosy/env/lib/python3.11/site-packages"
FILES = {
    "usr/bin/py3": 5_000_000,
    "usr/bin/unused": 9_000_000,
    "usr/lib/libc.so.6": 2_000_000,
    "usr/lib/ld-linux-x86-64.so.2": 200_000,
    f"{SITE}/big/one.so": 40_000_000,
    f"{SITE}/used/a.py": 1_000_000,
    "usr/share/doc/x/readme": 1_500_000,
    "var/lib/dpkg/status": 3_000_000,
    "opt/data/x": 10,
    "usr/local/bin/mine": 20,
}
OPENED = frozenset({"usr/bin/py3", "usr/lib/libc.so.6", f"{SITE}/used/a.py", "opt/data/x"})


def test_files_and_links_are_read_from_a_listing_and_nothing_else_is() -> None:
    assert list(parse_listing(LISTING)) == [
        ("-", 43648, "usr/bin/tool"),
        ("l", 7, "bin -> usr/bin"),
        ("-", 3000000, "opt/a file/big"),
    ]


def test_files_opened_before_the_command_do_not_count() -> None:
    assert opened_files(TRACE, LINKS) == {"usr/bin/sh", "usr/lib/libc.so.6", "usr/bin/py3", "opt/data/x"}
    assert opened_files('11 openat(AT_FDCWD</w>, "/x", O_RDONLY) = 3</x>\n', {}) == frozenset()


def test_links_are_followed_and_a_loop_ends() -> None:
    assert follow("bin/py", LINKS) == "usr/bin/py3"
    assert follow("usr/bin/other", LINKS) == "usr/bin/other"
    follow("x/y", LINKS)


def test_a_file_is_counted_with_its_package_or_its_folder() -> None:
    assert group_of(f"{SITE}/big/lib/one.so") == f"{SITE}/big"
    assert group_of("opt/argosy/env/lib/python3.11/json/x.py") == "opt/argosy/env/lib/python3.11"
    assert group_of("usr/share/doc/x/y/readme") == "usr/share/doc"
    assert group_of("top") == ""


def test_only_wholly_unused_packages_and_folders_are_suggested() -> None:
    found = group_files("/x.sif", ("py", "a b"), 3, FILES, OPENED)
    assert found.packages == ("big",)
    assert found.folders == ("/usr/share/doc",)
    assert found.results == ("/opt/data/x",)
    assert found.groups[0].name == f"{SITE}/big"
    text = render_slimming(found, suggest=True)
    assert "never opened by: py 'a b'" in text
    assert "failed with exit code 3" in text
    table = "\n".join(line.strip() for line in text.splitlines() if line.startswith("  ") and "MB" not in line)
    parsed = tomllib.loads(table.replace("never opened         of  where", ""))
    assert parsed["stage"][0]["results"] == {"/opt/data/x": "/opt/data/x"}
    assert parsed["step"][0]["run"] == "rm -rf /usr/share/doc"
    assert "[[stage]]" not in render_slimming(found, suggest=False)
