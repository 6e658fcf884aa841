"""A person's kubeconfig as kubectl finds it: one file, or several read as one.

Whatever is in it is the person's own, so plugins and files of this machine are fine; a registration's are not.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import yaml

from activities.cluster import Cluster
from activities.clusters import BadKubeconfig, connect_management, connect_person

_SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


async def connect(kubeconfig: Path | None, context: str | None) -> Cluster:
    """The management cluster. Without a file KUBECONFIG's and ~/.kube/config; in a pod without any, its account."""
    paths = str(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config")
    content = await asyncio.to_thread(merged, paths)
    if content is not None:
        return await connect_person(content, context)
    if kubeconfig or context or "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise BadKubeconfig(f"there is no kubeconfig {paths}: name one with --kubeconfig or KUBECONFIG")
    return await connect_management(None)


def merged(paths: str) -> dict[str, Any] | None:
    """The files as one, None when there is none. Of two that say the same thing the first counts, as for kubectl."""
    files = [Path(os.path.expanduser(path)) for path in paths.split(os.pathsep) if path]
    found: dict[str, Any] = {}
    for file in files:
        if not file.is_file():
            continue
        try:
            content = yaml.safe_load(file.read_text())
            for section, key in _SECTIONS.items():
                known = {each["name"] for each in found.setdefault(section, [])}
                found[section] += [
                    {"name": each["name"], key: _anchored(each.get(key) or {}, file.parent)}
                    for each in content.get(section) or []
                    if each["name"] not in known
                ]
            if current := content.get("current-context"):
                found.setdefault("current-context", current)
        except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError, KeyError) as error:
            raise BadKubeconfig(f"the kubeconfig {file} cannot be read: {type(error).__name__}") from None
    return found or None


def _anchored(fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With files named from where they are written down, and so a plugin that is one; a bare command is on the path."""
    found: dict[str, Any] = {
        key: str(folder / value) if key in _FILES and value else value for key, value in fields.items()
    }
    plugin = found.get("exec") or {}
    if os.sep in (command := plugin.get("command") or ""):
        found["exec"] = {**plugin, "command": str(folder / command)}
    return found
