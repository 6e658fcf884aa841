"""Certificates of an instance: made once, kept while they are good, and made anew when they would not be trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from deploy.local import authority as certificates
from deploy.local import pki
from deploy.local.authority import LOCAL_NAMES, authority, issue
from deploy.local.part import Stack


def loaded(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_a_pair_is_made_once(tmp_path: Path) -> None:
    first = issue(authority(tmp_path, "ca"), tmp_path, "server", LOCAL_NAMES)
    before = first.certificate.read_bytes(), first.key.read_bytes()
    again = issue(authority(tmp_path, "ca"), tmp_path, "server", LOCAL_NAMES)
    assert (again.certificate.read_bytes(), again.key.read_bytes()) == before
    loaded(first.certificate).verify_directly_issued_by(loaded(tmp_path / "ca.crt"))
    assert first.key.stat().st_mode & 0o777 == 0o600


def test_one_of_a_lost_authority_is_made_anew(tmp_path: Path) -> None:
    """The new authority has the old one's name, so only the signature tells them apart."""
    issue(authority(tmp_path, "ca"), tmp_path, "client")
    (tmp_path / "ca.crt").unlink()
    made = issue(authority(tmp_path, "ca"), tmp_path, "client")
    loaded(made.certificate).verify_directly_issued_by(loaded(tmp_path / "ca.crt"))


def test_one_near_its_end_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = authority(tmp_path, "ca")
    before = issue(ca, tmp_path, "client").certificate.read_bytes()
    monkeypatch.setattr(certificates, "_NEAR", 4 * certificates._YEAR)
    assert issue(ca, tmp_path, "client").certificate.read_bytes() != before
    assert authority(tmp_path, "ca") == ca


def test_a_users_kubeconfig_carries_its_name_and_groups(tmp_path: Path) -> None:
    stack = Stack("t", tmp_path, tmp_path, {"management": 1})
    config = tmp_path / "admin.kubeconfig"
    pki.client_kubeconfig(stack, "management", "admin", config, groups=("system:masters",))
    subject = loaded(pki.folder(stack, "management") / "user-admin.crt").subject
    assert {(one.oid, one.value) for one in subject} == {
        (NameOID.COMMON_NAME, "admin"),
        (NameOID.ORGANIZATION_NAME, "system:masters"),
    }
    assert json.loads(config.read_text())["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    stamp = config.stat().st_mtime_ns
    pki.client_kubeconfig(stack, "management", "admin", config, groups=("system:masters",))
    assert config.stat().st_mtime_ns == stamp
