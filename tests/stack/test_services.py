"""The cluster's names as they are reached on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.part import Stack
from deploy.local.services import reachable


@pytest.mark.parametrize(
    ("delivered", "here"),
    [
        ("http://cp-keystone.openstack.svc:5000/v3", "https://127.0.0.1:1/v3"),
        ("mariadb.openstack.svc:3306", "127.0.0.1:2"),
        ("https://openbao.shared-services.svc:8200", "https://127.0.0.1:3"),
        ("https://127.0.0.1:1/v3", "https://127.0.0.1:1/v3"),
        ("http://cp-keystone.openstack.svc:5001/v3", "http://cp-keystone.openstack.svc:5001/v3"),
        ("127.0.0.1:2", "127.0.0.1:2"),
    ],
)
def test_a_services_name_is_mapped_and_nothing_else(tmp_path: Path, delivered: str, here: str) -> None:
    stack = Stack("t", tmp_path, tmp_path, {"keystone": 1, "mariadb": 2, "openbao": 3})
    assert reachable(stack, delivered) == here
