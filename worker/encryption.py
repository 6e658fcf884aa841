"""Optional encryption of what Temporal keeps of orders: AES-256-GCM, each key a file of one folder, named by its id.

A payload names the key that it was sealed with, so old ones are read for as long as that file is there, and one that
names none is read as it is: switching on or off, or to another key, leaves nothing unreadable.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

_log = logging.getLogger(__name__)

NONE = "none"
"""In place of a key's id: seal nothing, but go on reading what is sealed."""

_ENCODING = b"binary/encrypted"
_KEY_ID = "encryption-key-id"
_KEY_BYTES = 32
_NONCE_BYTES = 12


class BadKeys(ValueError):
    """The folder of keys cannot be used; one sentence with the remedy."""


class CannotOpen(Exception):
    """A payload is sealed with a key that is not there, or is another than the one of its id."""


class Sealed(PayloadCodec):
    """Seals payloads with the active key, opens them with the one that they name.

    A key that is not known is looked for in the folder once more: Kubernetes lays new files of a mounted Secret down
    beside running programs.
    """

    def __init__(self, folder: Path, active: str | None = None) -> None:
        self._folder = folder
        self._keys = read_keys(folder)
        self._active = active_key(self._keys, active, folder)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if self._active is None:
            return list(payloads)
        return [self._seal(self._active, each) for each in payloads]  # by a key that is kept though its file may go

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            await self._open(each) if each.metadata.get("encoding") == _ENCODING else each for each in payloads
        ]  # fmt: skip

    def _seal(self, key_id: str, payload: Payload) -> Payload:
        nonce, name = os.urandom(_NONCE_BYTES), key_id.encode()
        sealed = AESGCM(self._keys[key_id]).encrypt(nonce, payload.SerializeToString(), name)
        return Payload(metadata={"encoding": _ENCODING, _KEY_ID: name}, data=nonce + sealed)

    async def _open(self, payload: Payload) -> Payload:
        name = payload.metadata[_KEY_ID]
        key_id = name.decode(errors="replace")
        if key_id not in self._keys:
            self._keys = {**self._keys, **await self._there()}
        if (key := self._keys.get(key_id)) is None:
            raise CannotOpen(
                f"a payload is encrypted with key {key_id!r}, and {self._folder} has no file of that name: put it back"
            )
        nonce, sealed = payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:]
        try:
            return Payload.FromString(AESGCM(key).decrypt(nonce, sealed, name))
        except InvalidTag:
            raise CannotOpen(
                f"a payload is not encrypted with what is in {self._folder / key_id} now: put the former key back"
            ) from None

    async def _there(self) -> Mapping[str, bytes]:
        """What the folder has now; where it cannot be read, what is missing is said of the payload."""
        try:
            return await asyncio.to_thread(read_keys, self._folder)
        except BadKeys as error:
            _log.warning("the payload keys could not be read anew: %s", error)
            return {}


def read_keys(folder: Path) -> Mapping[str, bytes]:
    """Every key of the folder by its id. Raises BadKeys."""
    try:
        # Kubernetes keeps its own folders and links beside the files, all with a dot in front.
        files = [each for each in sorted(folder.iterdir()) if not each.name.startswith(".") and each.is_file()]
        keys = {each.name: _key(each) for each in files}
    except OSError as error:
        raise BadKeys(f"{error.filename} cannot be read ({error.strerror}): mount the Secret with the keys") from None
    if not keys:
        raise BadKeys(f"{folder} has no key: put one into it, as by `openssl rand -base64 32 > {folder / 'key-1'}`")
    return keys


def active_key(keys: Mapping[str, bytes], wanted: str | None, folder: Path) -> str | None:
    """The id of the key to seal with; None to seal nothing. Raises BadKeys."""
    if wanted == NONE:
        return None
    there = ", ".join(keys)
    if wanted is None and len(keys) > 1:
        raise BadKeys(f"{folder} has the keys {there}: set C5C3_PAYLOAD_KEY to the one that new payloads are sealed by")
    if wanted is not None and wanted not in keys:
        raise BadKeys(f"{folder} has no key {wanted}, only {there}: set C5C3_PAYLOAD_KEY to one of them or add it")
    return wanted or next(iter(keys))


def _key(file: Path) -> bytes:
    key = file.read_bytes()
    if len(key) != _KEY_BYTES:
        try:
            key = base64.b64decode(key.strip(), validate=True)
        except binascii.Error:
            key = b""
    if len(key) != _KEY_BYTES or file.name == NONE:
        raise BadKeys(
            f"{file} is no key: a key is 32 bytes, raw or in base64, in a file that is not called `{NONE}`; make one by"
            " `openssl rand -base64 32`"
        )
    return key
