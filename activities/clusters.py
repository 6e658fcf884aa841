"""Which API servers there are: the management cluster, and the target clusters registered by kubeconfig Secrets.

A kubeconfig names one server and one identity, carried inside it. What would run a program, read a file of this
machine or ask somebody else for a token is refused: the Secret's author is not the one whose machine this is.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import copy
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, kube_config, load_incluster_config

from activities.cluster import SECRET, Cluster, Object
from activities.keyfile import nameless

REGISTRATION_LABEL = {"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"}
"""Label of a registration Secret (contracts 9.1); its name is the cluster's, its key `kubeconfig`."""

_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108  mkstemp makes private files

_RECHECK_SECONDS = 30.0
_USER_FIELDS = frozenset({"token", "client-certificate-data", "client-key-data", "username", "password"})
_CLUSTER_FIELDS = frozenset(
    {"server", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name", "disable-compression"}
)


class BadKubeconfig(Exception):
    """A kubeconfig that cannot be used; the text says why and never quotes it."""


class Unregistered(Exception):
    """No registration Secret names this target cluster."""


async def connect_management(kubeconfig: Path | None) -> Cluster:
    """The management cluster: from a kubeconfig file of the operator's, or from the pod's ServiceAccount."""
    configuration = Configuration()
    if kubeconfig is None:
        try:
            load_incluster_config(client_configuration=configuration)
        except ConfigException as error:
            raise BadKubeconfig(
                f"not running in a pod ({error}) and no kubeconfig given: set C5C3_KUBECONFIG to one"
            ) from None
    else:
        try:
            content = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise BadKubeconfig(f"the kubeconfig {kubeconfig} cannot be read: {type(error).__name__}") from None
        return Cluster("", await _load(content, configuration, kubeconfig.parent))
    return Cluster("", _client(configuration))


async def connect_person(kubeconfig: dict[str, Any], context: str | None) -> Cluster:
    """The management cluster for a person: by any means of a kubeconfig that is their own, paths in it absolute."""
    return Cluster("", await _load(kubeconfig, Configuration(), None, context))


async def connect_target(name: str, kubeconfig: bytes) -> Cluster:
    """A target cluster, from the bytes under `kubeconfig` of its registration Secret."""
    try:
        content = yaml.safe_load(kubeconfig)
    except (yaml.YAMLError, UnicodeDecodeError):
        raise BadKubeconfig(f"the kubeconfig of cluster {name} is not YAML") from None
    _refuse_foreign_means(name, content)
    return Cluster(name, await _load(content, Configuration(), None))


def kubeconfig_of(secret: Object) -> bytes:
    """The kubeconfig that a registration Secret holds."""
    name = secret["metadata"]["name"]
    try:
        return base64.b64decode(secret["data"]["kubeconfig"], validate=True)
    except (KeyError, TypeError, binascii.Error):
        raise BadKubeconfig(f"the Secret {name} that registers a cluster has no readable key 'kubeconfig'") from None


class Clusters:
    """The clusters by name; a target's client is made on first use and again when its Secret changed."""

    def __init__(self, management: Cluster, namespace: str) -> None:
        self.management = management
        self._namespace = namespace
        self._known: dict[str, tuple[str, float, Cluster]] = {}
        self._lock = asyncio.Lock()

    async def get(self, name: str) -> Cluster:
        """Raises `Unregistered`, `BadKubeconfig`, or what reading the Secret raises."""
        if not name:
            return self.management
        async with self._lock:
            version, checked, cluster = self._known.get(name, ("", 0.0, self.management))
            if version and time.monotonic() - checked < _RECHECK_SECONDS:
                return cluster
            try:
                secret = await self.registration(name)
            except Unregistered:
                self._known.pop(name, None)
                raise
            if version != (now := secret["metadata"]["resourceVersion"]):
                cluster = await connect_target(name, kubeconfig_of(secret))
            self._known[name] = (now, time.monotonic(), cluster)
            return cluster

    async def registration(self, name: str) -> Object:
        """The Secret that registers a target cluster. Raises `Unregistered`, or what reading it raises."""
        secret = await self.management.get(SECRET, self._namespace, name)
        if secret is None or not _registers(secret):
            raise Unregistered(f"no Secret {self._namespace}/{name} registers a cluster of this name")
        return secret

    async def registered(self) -> list[str]:
        """The names of all target clusters, of their Secrets' metadata alone."""
        found = await self.management.list(SECRET, self._namespace, labels=REGISTRATION_LABEL, metadata_only=True)
        return sorted(each["metadata"]["name"] for each in found["items"])

    async def close(self) -> None:
        for _, _, cluster in self._known.values():
            await cluster.close()
        await self.management.close()


def _registers(secret: Object) -> bool:
    return REGISTRATION_LABEL.items() <= (secret["metadata"].get("labels") or {}).items()


def _refuse_foreign_means(name: str, content: Any) -> None:
    if not isinstance(content, dict):
        raise BadKubeconfig(f"the kubeconfig of cluster {name} is not a kubeconfig")
    for section, key, allowed in (("users", "user", _USER_FIELDS), ("clusters", "cluster", _CLUSTER_FIELDS)):
        for entry in content.get(section) or []:
            fields = entry.get(key) if isinstance(entry, dict) else None
            foreign = sorted(set(fields or {}) - allowed)
            if foreign:
                raise BadKubeconfig(
                    f"the kubeconfig of cluster {name} uses {', '.join(foreign)}: only credentials inside it are"
                    f" accepted ({', '.join(sorted(allowed))})"
                )


async def _load(content: Any, configuration: Configuration, base: Path | None, context: str | None = None) -> ApiClient:
    """A client for the kubeconfig. The loader makes files of what is inside it, so it is given ones without a name."""
    with ExitStack() as files:
        try:
            # What a login plugin answers the loader can only put into a file with a name: it gets one in memory.
            loader = kube_config.KubeConfigLoader(
                config_dict=_without_data(content, files),
                config_base_path=base and str(base),
                temp_file_path=_MEMORY,
                active_context=context,
            )
            await loader.load_and_set(configuration)
            return _client(configuration)
        except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            text = str(error) if isinstance(error, ConfigException) else type(error).__name__
            raise BadKubeconfig(f"the kubeconfig cannot be used: {text}") from None
        finally:
            # The loader remembers its files by content and would hand out the name of a removed one the next time.
            kube_config._cleanup_temp_files()


def _without_data(content: Any, files: ExitStack) -> Any:
    """The kubeconfig with everything that it holds as data, but would be read as a file, in a file."""
    content = copy.deepcopy(content)
    for section, key, names in (
        ("clusters", "cluster", ("certificate-authority",)),
        ("users", "user", ("client-certificate", "client-key")),
    ):
        for entry in content.get(section) or []:
            fields = entry.get(key) or {}
            for name in names:
                if data := fields.pop(f"{name}-data", None):
                    fields[name] = files.enter_context(nameless(base64.b64decode(data)))
    return content


def _client(configuration: Configuration) -> ApiClient:
    configuration.connection_pool_maxsize = 500  # every watch and every request in flight holds a connection
    api = ApiClient(configuration=configuration)
    api.user_agent = "c5c3-orders"
    return api
