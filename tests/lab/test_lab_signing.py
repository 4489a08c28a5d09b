"""An image signed with a real key by a real Apptainer: who signed it is told, and asked for before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.conftest import Lab

pytestmark = pytest.mark.lab

SIGN = """\
cd; cp "$0" signed.sif; cp "$0" plain.sif; exec 2>&1
key() { apptainer --silent key newpair --name "$1" --email "$1@example.org" --comment '' --password '' --push=false; }
key ada; apptainer --silent sign signed.sif
ada=$(apptainer key list | sed -n 's/.*Fingerprint: *//p')
other=0000000000000000000000000000000000000000
say() { echo "== $*"; "$@" || echo "code $?"; }
"""

LOOK = """\
say argosy images verify signed.sif
say argosy images verify plain.sif
say argosy run --signed-by $ada signed.sif -- echo it runs
say argosy run --signed-by $other signed.sif -- echo it runs
say argosy run --signed-by $ada plain.sif -- echo it runs
say argosy run --signed-by $ada --dry-run plain.sif -- echo it runs
printf X | dd of=signed.sif bs=1 seek=100000 conv=notrunc 2>/dev/null
say argosy run --signed-by $ada signed.sif -- echo it runs
cp "$0" foreign.sif
apptainer --silent sign foreign.sif; export APPTAINER_KEYSDIR=$HOME/nobodys
say argosy run --signed-by $ada foreign.sif -- echo it runs
"""

AT_SITE = """\
printf 'name = "site"\\ntitle = "a site"\\n[images]\\nsigned_by = ["%s"]\\n' $ada > site.toml
say argosy launch --site site.toml signed.sif -- echo it runs
say argosy launch --site site.toml plain.sif -- echo it runs
say argosy launch --site site.toml --dry-run plain.sif -- echo it runs
say argosy check signed.sif --site site.toml
say argosy check plain.sif --site site.toml
"""


def answers(lab: Lab, image: Path, script: str) -> list[str]:
    """Run a script in one login node; give what each of its commands said."""
    ran = lab.run(["sh", "-euc", SIGN + script, str(image)], cwd="/", binds=[image.parent])
    return [part.partition("\n")[2] for part in ran.stdout.split("== ")[1:]]


def test_an_image_starts_only_with_the_required_signature(lab: Lab, tiny_image: Path) -> None:
    verified, unsigned, good, other, plain, dry, changed, foreign = answers(lab, tiny_image, LOOK)
    assert verified.startswith("signed by  ")
    assert "ada <ada@example.org>" in verified
    assert verified.endswith("signed.sif is unchanged since it was signed\n")
    assert "argosy: /home/alice/plain.sif is not signed\n  -> " in unsigned
    assert unsigned.endswith("code 7\n")
    assert good == "it runs\n"
    assert "is not signed by an accepted key" in other
    assert "accepted keys: 0000000000000000000000000000000000000000" in other
    assert "/home/alice/plain.sif is not signed" in plain
    assert "verified at the start [option]" in dry
    assert "was changed after it was signed" in changed
    assert "is signed by a key that is not in your keyring" in foreign
    for refused in (other, plain, changed, foreign):
        assert refused.endswith("code 125\n")
        assert "it runs" not in refused


def test_a_site_can_require_signed_images(lab: Lab, tiny_image: Path) -> None:
    good, plain, dry, checked, unsigned = answers(lab, tiny_image, AT_SITE)
    assert good.endswith("it runs\n")
    assert "/home/alice/plain.sif is not signed" in plain
    assert "site.toml:4: images.signed_by" in plain
    assert plain.endswith("code 125\n")
    assert "#   signed by = " in dry
    assert "the site requires it" in dry
    assert "ok       signature     ada <ada@example.org>, " in checked
    assert "fail     signature" in unsigned
    assert unsigned.endswith("code 7\n")
