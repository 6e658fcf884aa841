"""Keys and what is sealed with them: every payload opens that can, and what cannot says which file would help."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from worker.encryption import NONE, CannotOpen, Sealed
from worker.settings import BadSettings, ConnectionSettings, load
from worker.temporal import data_converter

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'{"project": "reporting"}')


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder as the kubelet mounts a Secret: each file a link through links with a dot in front."""
    real = tmp_path / "keys" / "..2026_12_01"
    real.mkdir(parents=True)
    (real.parent / "..data").symlink_to(real.name)
    put(real.parent, "key-1", os.urandom(32))
    return real.parent


def put(folder: Path, name: str, content: bytes) -> None:
    (folder / "..data" / name).write_bytes(content)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(f"..data/{name}")


async def sealed(codec: Sealed) -> Payload:
    (one,) = await codec.encode([PLAIN])
    return one


async def test_what_is_sealed_says_nothing_and_opens_again(keys: Path) -> None:
    codec = Sealed(keys)
    one, other = await sealed(codec), await sealed(codec)
    assert dict(one.metadata) == {"encoding": b"binary/encrypted", "encryption-key-id": b"key-1"}
    assert b"reporting" not in one.data
    assert b"json" not in one.data
    assert one.data != other.data
    assert await codec.decode([one, PLAIN, other]) == [PLAIN, PLAIN, PLAIN]


async def test_a_key_in_base64_is_the_key(keys: Path) -> None:
    one = await sealed(Sealed(keys))
    put(keys, "key-1", base64.b64encode((keys / "key-1").read_bytes()) + b"\n")
    assert await Sealed(keys).decode([one]) == [PLAIN]


async def test_keys_rotate_while_old_payloads_are_read(keys: Path) -> None:
    running = Sealed(keys)
    old = await sealed(running)
    put(keys, "key-2", os.urandom(32))
    new = await sealed(Sealed(keys, "key-2"))
    assert new.metadata["encryption-key-id"] == b"key-2"
    assert await Sealed(keys, "key-2").decode([old, new]) == [PLAIN, PLAIN]
    # A program that runs on finds the new file by itself.
    assert await running.decode([new]) == [PLAIN]
    assert (await sealed(running)).metadata["encryption-key-id"] == b"key-1"


async def test_switched_off_reads_what_is_sealed_and_seals_nothing(keys: Path) -> None:
    old = await sealed(Sealed(keys))
    off = Sealed(keys, NONE)
    assert await off.encode([PLAIN]) == [PLAIN]
    assert await off.decode([old, PLAIN]) == [PLAIN, PLAIN]


async def test_a_key_that_is_gone_or_another(keys: Path) -> None:
    old = await sealed(Sealed(keys))
    put(keys, "key-1", os.urandom(32))
    with pytest.raises(CannotOpen, match=f"not encrypted with what is in {keys}/key-1 now: put the former key back"):
        await Sealed(keys).decode([old])
    put(keys, "key-2", os.urandom(32))
    (keys / "key-1").unlink()
    with pytest.raises(CannotOpen, match=f"encrypted with key 'key-1', and {keys} has no file of that name: put it"):
        await Sealed(keys).decode([old])


async def test_a_payload_cannot_be_passed_off_as_another_keys(keys: Path) -> None:
    put(keys, "key-2", (keys / "key-1").read_bytes())
    one = await sealed(Sealed(keys, "key-1"))
    one.metadata["encryption-key-id"] = b"key-2"
    with pytest.raises(CannotOpen):
        await Sealed(keys, "key-1").decode([one])


async def test_failures_are_sealed_with_their_words(keys: Path) -> None:
    failure = Failure()
    converter = converter_of(keys)
    await converter.encode_failure(ApplicationError("no project reporting", {"id": "d0"}, type="Refused"), failure)
    assert failure.message == "Encoded failure"
    assert b"reporting" not in failure.SerializeToString()
    assert b"d0" not in failure.SerializeToString()
    again = await converter_of(keys, NONE).decode_failure(failure)
    assert str(again) == "Refused: no project reporting"


def converter_of(folder: Path, key: str | None = None) -> DataConverter:
    return data_converter(ConnectionSettings(payload_keys_dir=folder, payload_key=key))


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, keys: Path) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.upper().startswith("C5C3_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("C5C3_PAYLOAD_KEYS_DIR", str(keys))
    return monkeypatch


def refusal() -> str:
    with pytest.raises(BadSettings) as error:
        load(ConnectionSettings)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_keys_that_cannot_be_used_are_told_at_start(environment: pytest.MonkeyPatch, keys: Path) -> None:
    load(ConnectionSettings)
    environment.setenv("C5C3_PAYLOAD_KEY", "key-7")
    assert refusal() == (
        f"{keys} has no key key-7, only key-1: set C5C3_PAYLOAD_KEY to one of them or add it."
    )  # fmt: skip
    environment.delenv("C5C3_PAYLOAD_KEY")
    put(keys, "key-2", b"k" * 32)
    assert refusal().startswith(f"{keys} has the keys key-1, key-2: set C5C3_PAYLOAD_KEY to the one that new payloads")
    for content in (b"s3cret", b"k" * 31, base64.b64encode(b"k" * 31), b""):
        put(keys, "key-2", content)
        assert refusal().startswith(f"{keys}/key-2 is no key: a key is 32 bytes, raw or in base64")
    put(keys, "none", b"k" * 32)
    (keys / "key-2").unlink()
    assert refusal().startswith(f"{keys}/none is no key")
    (keys / "none").unlink()
    (keys / "key-1").unlink()
    assert refusal().startswith(f"{keys} has no key: put one into it, as by `openssl rand -base64 32 > {keys}/key-1`")


def test_a_folder_that_is_not_there_and_a_key_without_a_folder(environment: pytest.MonkeyPatch, keys: Path) -> None:
    environment.setenv("C5C3_PAYLOAD_KEYS_DIR", "/nowhere/keys")
    assert refusal().startswith("C5C3_PAYLOAD_KEYS_DIR '/nowhere/keys' cannot be used (path does not point to a direc")
    environment.delenv("C5C3_PAYLOAD_KEYS_DIR")
    environment.setenv("C5C3_PAYLOAD_KEY", "key-1")
    assert refusal() == "C5C3_PAYLOAD_KEY names a key of C5C3_PAYLOAD_KEYS_DIR, which is not set: set it."
