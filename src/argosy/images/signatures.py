"""Who signed an image: Apptainer verifies it with the keys of its keyring; no cryptography of our own.

Keys are OpenPGP keys, known by their fingerprints.  A signature covers a group of parts.  Apptainer accepts none that
leaves a part of its group out, nor an image with a part that is in no group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import msgspec

from argosy.core.errors import ArgosyError, CheckFailed, ImageError, ToolFailed, ToolMissing
from argosy.core.model import plain_fingerprint
from argosy.core.process import Command, Reply, Runner, tool_error
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.images.find import find_image
from argosy.images.open import open_image
from argosy.images.sif.format import DataType, Sif, SifPart

PROGRAMS = ("apptainer", "singularity")
WAS_CHANGED = "integrity compromised"
UNKNOWN_KEY = "unknown entity"
PROFILE_KEY = "images.signed_by"
"""Where a site says that it wants signed images; errors name its file and line."""
KEY_BYTES = slice(4, 24)
"""Where a signature's descriptor has the fingerprint of its key, after the number of its hash."""


class Signer(msgspec.Struct, frozen=True):
    """Who signed an image.

    Attributes
    ----------
    fingerprint
        Of the key: 40 capital hexadecimal digits.
    name
        As the key says it: ``Ada <ada@example.org>``.
    """

    fingerprint: str
    name: str


def _read_signers(sif: Sif, path: str, runner: Runner, programs: Mapping[str, str]) -> tuple[Signer, ...]:
    """Give who signed all of an image; nobody where it has no signature.

    Parameters
    ----------
    path
        The image, as it is called where `runner` starts programs.
    programs
        Name and path of those that are there.

    Raises
    ------
    ImageError
        When it was changed after it was signed.
    CheckFailed
        When a key is not in the keyring, or a signature leaves something out.
    ToolMissing, ToolFailed
        When there is no Apptainer to ask, or its reply cannot be read.
    """
    if not sif.parts_of(DataType.SIGNATURE):
        return ()
    program = next((name for name in PROGRAMS if programs.get(name)), "")
    if not program:
        raise ToolMissing(
            "signatures are verified by apptainer, which is not here",
            evidence=f"{path} is signed; looked for {' and '.join(PROGRAMS)}",
            hint="install apptainer, or ask where it is: on a login node of the cluster",
        )
    groups = sorted({part.group for part in sif.parts if part.datatype != DataType.SIGNATURE and part.group})
    words = (program, "verify", "--json", "--local")
    signers = _verify((*words, path), sif, path, runner)
    for group in groups if len(groups) > 1 else ():
        of_group = _verify((*words, "--group-id", str(group), path), sif, path, runner)
        signers = tuple(signer for signer in signers if signer in of_group)
    return signers


def verify_image(reference: str, keys: Iterable[str], session: Session) -> tuple[Signer, ...]:
    """Give who signed an image that is here, a file or a name of the catalog; as `find_signers`."""
    opened = open_image(find_image(reference, session))
    return find_signers(opened.sif, opened.image.path, keys, session.runner, session.host.programs)


def find_signers(
    sif: Sif | None, path: str, keys: Iterable[str], runner: Runner, programs: Mapping[str, str]
) -> tuple[Signer, ...]:
    """Give who signed an image with one of these keys; where none is named, with any.

    Raises
    ------
    CheckFailed
        When nobody did.
    ArgosyError
        As `_read_signers` does.
    """
    accepted = {plain_fingerprint(key) for key in keys}
    asked = f"asked for: {' or '.join(sorted(accepted))}" if accepted else ""
    if sif is None:
        raise CheckFailed(
            f"{path} cannot be signed: only a SIF file has a place for signatures",
            evidence=asked,
            hint="give a SIF file; argosy images export makes one: --format sif",
            key=PROFILE_KEY,
        )
    signers = _read_signers(sif, path, runner, programs)
    found = tuple(signer for signer in signers if signer.fingerprint in accepted or not accepted)
    if not found:
        by = "\n".join(f"signed by {signer.fingerprint}, {signer.name}" for signer in signers)
        raise CheckFailed(
            f"{path} is not signed by a key that is asked for" if signers else f"nobody signed {path}",
            evidence="\n".join(filter(None, (by, asked))),
            hint=f"take an image that is signed so; who has the key signs this one: apptainer sign {quote(path)}",
            key=PROFILE_KEY,
        )
    return found


def _verify(words: tuple[str, ...], sif: Sif, path: str, runner: Runner) -> tuple[Signer, ...]:
    command = Command(words)
    reply = runner.run(command)
    if reply.code != 0:
        raise _explain(command, reply, sif, path)
    try:
        told = [each["Signer"] for each in json.loads(reply.stdout)["SignerKeys"]]
        valid = [each for each in told if each["KeyCheck"] and each["DataCheck"] and each["Fingerprint"]]
        return tuple(dict.fromkeys(Signer(each["Fingerprint"].upper(), each["Name"]) for each in valid))
    except (ValueError, KeyError, TypeError) as error:
        raise ToolFailed(f"the reply of {words[0]} verify cannot be read", evidence=reply.stdout[:400]) from error


def _explain(command: Command, reply: Reply, sif: Sif, path: str) -> ArgosyError:
    """Say in plain words why Apptainer does not accept an image's signatures."""
    program = command.argv[0]
    said = next((line for line in reply.stderr.splitlines() if line.startswith("FATAL")), "")
    if WAS_CHANGED in said:
        return ImageError(
            f"{path} was changed after it was signed", evidence=said, hint="get it again from whoever signed it"
        )
    if UNKNOWN_KEY in said:
        keys = list(dict.fromkeys(map(_key_of, sif.parts_of(DataType.SIGNATURE))))
        return CheckFailed(
            f"{path} is signed by a key that is not in your keyring",
            evidence=f"its signatures name {', '.join(keys)}; '{program} key list' lists yours",
            hint=f"get the public key from its owner: {program} key import FILE",
        )
    if "integrity:" in said:
        return CheckFailed(
            f"the signatures of {path} do not cover all of it", evidence=said, hint="ask its maker to sign it again"
        )
    return tool_error(command, reply, doing=f"verifying {path}")


def _key_of(signature: SifPart) -> str:
    """Give the fingerprint that a signature's descriptor names; nothing confirms it."""
    return signature.extra.ljust(KEY_BYTES.stop, b"\0")[KEY_BYTES].hex().upper()
