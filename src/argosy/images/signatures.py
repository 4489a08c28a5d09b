"""Verify the signatures of an image with Apptainer and the keys in its keyring.

Keys are OpenPGP keys, identified by their fingerprints. A signature covers a group of parts. Apptainer rejects a
signature that does not cover its whole group, and an image with a part in no group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from argosy.core.errors import ArgosyError, CheckFailed, ImageError, ToolFailed, ToolMissing
from argosy.core.model import APPTAINERS, plain_fingerprint
from argosy.core.parse import parse_json
from argosy.core.process import Command, Reply, Runner
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.tool_errors import tool_error
from argosy.images.find import fetch_or_find_image
from argosy.images.open import open_image
from argosy.images.sif.format import DataType, Sif, SifPart

WAS_CHANGED = "integrity compromised"
UNKNOWN_KEY = "unknown entity"
PROFILE_KEY = "images.signed_by"
"""The key in a site profile that requires signed images. Errors name its file and line."""
KEY_BYTES = slice(4, 24)
"""Bytes of a signature's descriptor that contain the fingerprint, after the number of the hash."""


class Signer(msgspec.Struct, frozen=True):
    """A key that signed an image."""

    fingerprint: str
    """40 upper-case hexadecimal digits."""
    name: str
    """The key's user id: ``Ada <ada@example.org>``."""


def _read_signers(sif: Sif, path: str, runner: Runner, programs: Mapping[str, str]) -> tuple[Signer, ...]:
    """Return the signers of all parts of an image; empty if it has no signature.

    Parameters
    ----------
    path
        Path of the image on the machine where `runner` starts programs.
    programs
        Name and path of the programs on that machine.

    Raises
    ------
    ImageError
        If the image was changed after it was signed.
    CheckFailed
        If a key is not in the keyring, or a signature does not cover all parts.
    ToolMissing, ToolFailed
        If Apptainer is missing, or its reply cannot be read.
    """
    if not sif.parts_of(DataType.SIGNATURE):
        return ()
    program = next((name for name in APPTAINERS if programs.get(name)), "")
    if not program:
        raise ToolMissing(
            f"cannot verify the signatures of {path}: apptainer is not installed",
            evidence=f"searched for {' and '.join(APPTAINERS)}",
            hint="install apptainer, or run this command on a login node that has it",
        )
    groups = sorted({part.group for part in sif.parts if part.datatype != DataType.SIGNATURE and part.group})
    argv = (program, "verify", "--json", "--local")
    signers = _verify((*argv, path), sif, path, runner)
    for group in groups if len(groups) > 1 else ():
        of_group = _verify((*argv, "--group-id", str(group), path), sif, path, runner)
        signers = tuple(signer for signer in signers if signer in of_group)
    return signers


def verify_image(reference: str, keys: Iterable[str], session: Session) -> tuple[Signer, ...]:
    """Return the signers of a local image, a file or a name in the catalog, as `find_signers` does."""
    opened = open_image(fetch_or_find_image(reference, session))
    return find_signers(opened.sif, opened.image.path, keys, session.runner, session.host.programs)


def find_signers(
    sif: Sif | None, path: str, keys: Iterable[str], runner: Runner, programs: Mapping[str, str]
) -> tuple[Signer, ...]:
    """Return the signers of an image among these keys; all signers if no key is given.

    Raises
    ------
    CheckFailed
        If no accepted key signed the image.
    ArgosyError
        As raised by `_read_signers`.
    """
    accepted = {plain_fingerprint(key) for key in keys}
    asked = f"accepted keys: {' or '.join(sorted(accepted))}" if accepted else ""
    if sif is None:
        raise CheckFailed(
            f"{path} has no signature: only SIF files can be signed",
            evidence=asked,
            hint="pass a SIF file; 'argosy images export --format sif' makes one",
            key=PROFILE_KEY,
        )
    signers = _read_signers(sif, path, runner, programs)
    found = tuple(signer for signer in signers if signer.fingerprint in accepted or not accepted)
    if not found:
        by = "\n".join(f"signed by {signer.fingerprint}, {signer.name}" for signer in signers)
        raise CheckFailed(
            f"{path} is not signed by an accepted key" if signers else f"{path} is not signed",
            evidence="\n".join(filter(None, (by, asked))),
            hint=f"use a signed image, or sign this one with the key: apptainer sign {quote(path)}",
            key=PROFILE_KEY,
        )
    return found


def _verify(argv: tuple[str, ...], sif: Sif, path: str, runner: Runner) -> tuple[Signer, ...]:
    command = Command(argv)
    reply = runner.run(command)
    if reply.code != 0:
        raise _explain(command, reply, sif, path)
    try:
        rows = [each["Signer"] for each in parse_json(reply.stdout)["SignerKeys"]]
        valid = [each for each in rows if each["KeyCheck"] and each["DataCheck"] and each["Fingerprint"]]
        return tuple(dict.fromkeys(Signer(each["Fingerprint"].upper(), each["Name"]) for each in valid))
    except (ValueError, KeyError, TypeError) as error:
        raise ToolFailed(
            f"the reply of {argv[0]} verify cannot be read",
            evidence=reply.stdout[:400],
            hint=f"run it by hand: {command}; Argosy reads the replies of Apptainer 1.1 and SingularityCE 3.11",
        ) from error


def _explain(command: Command, reply: Reply, sif: Sif, path: str) -> ArgosyError:
    """Translate Apptainer's message about a signature that it does not accept."""
    program = command.argv[0]
    message = next((line for line in reply.stderr.splitlines() if line.startswith("FATAL")), "")
    if WAS_CHANGED in message:
        return ImageError(
            f"{path} was changed after it was signed", evidence=message, hint="copy it again from its signer"
        )
    if UNKNOWN_KEY in message:
        keys = list(dict.fromkeys(map(_key_of, sif.parts_of(DataType.SIGNATURE))))
        return CheckFailed(
            f"{path} is signed by a key that is not in your keyring",
            evidence=f"its signatures name {', '.join(keys)}; '{program} key list' lists yours",
            hint=f"get the public key from its owner: {program} key import FILE",
        )
    if "integrity:" in message:
        return CheckFailed(
            f"the signatures of {path} do not cover all of it", evidence=message, hint="ask its signer to sign it again"
        )
    return tool_error(command, reply, doing=f"verifying {path}")


def _key_of(signature: SifPart) -> str:
    """Return the fingerprint in a signature's descriptor. It is not verified."""
    return signature.extra.ljust(KEY_BYTES.stop, b"\0")[KEY_BYTES].hex().upper()
