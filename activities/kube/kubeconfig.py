"""How one API server is reached: what a kubeconfig or in-cluster access says, read again as its credentials rotate.

It works as client-go does: files are read again every minute (tokens, certificates, authorities, the kubeconfig
itself), a plugin runs again when what it gave expires, and both happen at once when the server has refused what is
known. The library, `kubernetes.aio`, merges kubeconfigs and finds the context, but reads each file once, loses a
plugin's error, and leaves a file behind for every certificate.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import client as k8s
from kubernetes.aio import config as k8s_config
from kubernetes.aio.config import incluster_config as pod
from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigMerger

from activities.kube.credentialplugin import CredentialsError, PluginCredentials, run_plugin
from resources.endpoints import in_clear
from resources.settings import ClusterSettings, SettingsError
from resources.words import cause

LOOK_EVERY = 60.0  # seconds between two readings; client-go's for token files
LOOK_SOON = 5.0  # seconds before a plugin runs again, or a file that could not be read is read again
LINGER = (
    900.0  # seconds that a replaced client lives on, longer than any watch: one that is closed leaves who reads from
)
# it waiting for ever
DEFAULT_PLACE = "~/.kube/config"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ApiCredentials:
    """All that a client is made of, by content: two of them are equal when nothing has changed."""

    server: str
    verify: bool = True
    authority: str | None = field(default=None, repr=False)
    """PEM; None: the system's own."""
    server_name: str | None = None
    proxy: str | None = None
    authorization: str | None = field(default=None, repr=False)
    """The header."""
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)


class Access:
    """A client of one API server whose credentials are kept fresh. It is made for one event loop; `close` it.

    `interactive`: a plugin may ask the person at this terminal.
    """

    def __init__(
        self, name: str, settings: ClusterSettings, kubeconfig: str | None, *, interactive: bool = False
    ) -> None:
        self._name = name
        self._settings = settings
        self._kubeconfig = kubeconfig
        self._interactive = interactive
        self._lock = asyncio.Lock()
        self._client: k8s.ApiClient | None = None
        self._credentials: ApiCredentials | None = None
        self._look_at = 0.0
        self._plugin = _Plugin()
        self._provider = _Provider()
        self._closing: set[asyncio.Task[None]] = set()
        self.version = 0
        """It grows whenever the credentials change."""

    @property
    def server(self) -> str:
        """The address of the API server; "" until the first `client`."""
        return self._credentials.server if self._credentials else ""

    async def client(self) -> k8s.ApiClient:
        """The client. Raises SettingsError where the settings lead to no credentials, CredentialsError where a plugin
        gives none; both only as long as there have never been any: what is known serves until the server refuses it."""
        if time.monotonic() >= self._look_at:
            async with self._lock:
                if time.monotonic() >= self._look_at:
                    try:
                        await self._look()
                    except (SettingsError, CredentialsError) as e:
                        self._look_at = time.monotonic() + LOOK_SOON
                        if self._client is None:
                            raise
                        log.warning("cluster %s: its credentials cannot be read again: %s", self._name, e)
        assert self._client is not None
        return self._client

    async def renew(self, version: int, *, plugin: bool = True) -> bool:
        """Renews what was known as `version`, which the server refused; whether something else is known now.

        `plugin`: a plugin runs again too. Raises CredentialsError where nothing can be read.
        """
        async with self._lock:  # many are refused at once, and only one of them looks
            if self.version == version:
                try:
                    await self._look(refused=plugin)
                except SettingsError as e:
                    raise CredentialsError(f"{e} (the credentials read before are refused)") from None
            return self.version != version

    async def close(self) -> None:
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._client is not None:
            await _close(self._client)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _look(self, refused: bool = False) -> None:
        with self._explained():
            cluster, user = self._read()
            found = _static(cluster, user)
            wait = LOOK_EVERY
            if isinstance(user.get("exec"), dict):
                given = await self._plugin.ask(user["exec"], user.folder, cluster, self._interactive, refused)
                token = f"Bearer {given.token}" if given.token else found.authorization
                found = replace(found, authorization=token)
                if given.certificate:
                    found = replace(found, certificate=given.certificate, key=given.key)
                wait = min(wait, max(LOOK_SOON, given.expires_at - time.monotonic()))
            elif user.get("auth-provider"):
                found = replace(found, authorization=await self._provider.ask(found.server, user["auth-provider"]))
            if found.authorization and in_clear(found.server):
                raise ValueError(f"its server {found.server} is not https, and credentials would be sent unencrypted")
            await self._take(found)
        self._look_at = time.monotonic() + wait

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        where = self._where()
        try:
            yield
        except CredentialsError as e:
            raise CredentialsError(f"cluster {self._name}: {where}: {e}") from None
        except yaml.YAMLError:  # its message quotes the file
            raise SettingsError(f"cluster {self._name}: {where}: not YAML") from None
        except OSError as e:
            file = "" if e.filename in (None, self._kubeconfig) else f"{e.filename} "
            raise SettingsError(
                f"cluster {self._name}: {where}: {file}cannot be read: {e.strerror or cause(e)}"
            ) from None
        except (k8s_config.ConfigException, ValueError) as e:
            raise SettingsError(f"cluster {self._name}: {where}: {e}") from None
        except (AttributeError, KeyError, TypeError):  # somewhere there is no mapping where one should be
            raise SettingsError(f"cluster {self._name}: {where}: not a kubeconfig") from None

    def _where(self) -> str:
        """What the credentials are read from, and which setting says so."""
        if self._settings.in_cluster:
            return f"in-cluster access (clusters.{self._name}.inCluster)"
        setting = f"clusters.{self._name}.kubeconfig"
        if self._kubeconfig:
            return f"kubeconfig {self._kubeconfig} ({setting})"
        if given := os.environ.get("KUBECONFIG"):
            return f"kubeconfig {given} ($KUBECONFIG; the settings have no {setting})"
        return f"kubeconfig {DEFAULT_PLACE} (the settings have no {setting}, and $KUBECONFIG is not set)"

    def _read(self) -> tuple[_Section, _Section]:
        """The cluster and the user of the context."""
        if self._settings.in_cluster:
            return _pod()
        places = self._kubeconfig or os.environ.get("KUBECONFIG") or os.path.expanduser(DEFAULT_PLACE)
        files = [p for p in places.split(os.pathsep) if p and Path(p).expanduser().exists()]
        if not files:
            raise ValueError("there is no such file")
        kubeconfig = KubeConfigMerger(os.pathsep.join(files)).config
        context_name = self._settings.context or kubeconfig.safe_get("current-context")
        if not context_name:
            raise ValueError(f"it has no current-context: set one, or clusters.{self._name}.context in the settings")
        context = kubeconfig["contexts"].get_with_name(context_name)
        chosen = context["context"]
        cluster = _Section(kubeconfig["clusters"].get_with_name(chosen["cluster"])["cluster"])
        named = chosen.safe_get("user")
        user = kubeconfig["users"].get_with_name(named, safe=True) if named else None
        return cluster, _Section(user["user"] if user and user.safe_get("user") else None)

    async def _take(self, found: ApiCredentials) -> None:
        former, self._credentials = self._credentials, found
        if found == former:
            return
        if (
            former is not None
            and self._client is not None
            and found == replace(former, authorization=found.authorization)
        ):
            _authorize(self._client.configuration, found)  # its connections stay, and so does a watch
        else:
            try:
                client = _client(found)
            except (OSError, ValueError):  # a certificate with another one's key: a rotation is under way
                self._credentials = former
                raise
            if self._client is not None:
                self._closing.add(task := asyncio.create_task(_close(self._client, LINGER)))
                task.add_done_callback(self._closing.discard)
            self._client = client
        self.version += 1


class _Section:
    """A cluster or a user of a kubeconfig, with the folder that its paths are relative to."""

    def __init__(self, node: ConfigNode | None = None, value: Mapping[str, Any] | None = None) -> None:
        self._value: Mapping[str, Any] = value if value is not None else node.value if node is not None else {}
        self.folder = Path(node.path).absolute().parent if node is not None and node.path else Path()

    def get(self, key: str) -> Any:
        return self._value.get(key)

    def __getitem__(self, key: str) -> Any:
        return self._value[key]

    def content(self, key: str) -> str | None:
        """The content of `<key>-data`, or else of the file that `key` names. Raises OSError, ValueError."""
        if inline := self.get(f"{key}-data"):
            try:
                return base64.b64decode(inline).decode()
            except ValueError:
                raise ValueError(f"{key}-data is not PEM in base64") from None
        return self.file(key)

    def file(self, key: str) -> str | None:
        return _text(self.folder / os.path.expanduser(self._value[key]), key) if self.get(key) else None


def _text(path: Path, key: str) -> str:
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise ValueError(f"{key} {path}: not text") from None
    if not text.strip():
        raise ValueError(f"{key} {path}: empty")
    return text


def _pod() -> tuple[_Section, _Section]:
    """In-cluster access, as a kubeconfig would say it."""
    host, port = (os.environ.get(name) for name in (pod.SERVICE_HOST_ENV_NAME, pod.SERVICE_PORT_ENV_NAME))
    if not (host and port):
        raise ValueError(f"this is not a pod: {pod.SERVICE_HOST_ENV_NAME} and {pod.SERVICE_PORT_ENV_NAME} are not set")
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    cluster = {"server": server, "certificate-authority": pod.SERVICE_CERT_FILENAME}
    return _Section(value=cluster), _Section(value={"tokenFile": pod.SERVICE_TOKEN_FILENAME})


def _static(cluster: _Section, user: _Section) -> ApiCredentials:
    """The credentials that stand in the kubeconfig and its files."""
    found = ApiCredentials(
        server=str(cluster["server"]).rstrip("/"),
        verify=not cluster.get("insecure-skip-tls-verify"),
        authority=cluster.content("certificate-authority"),
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
        certificate=user.content("client-certificate"),
        key=user.content("client-key"),
    )
    if token := user.file("tokenFile") or user.get("token"):
        return replace(found, authorization=f"Bearer {token.strip()}")
    if user.get("username") and user.get("password"):
        basic = base64.b64encode(f"{user['username']}:{user['password']}".encode()).decode()
        return replace(found, authorization=f"Basic {basic}")
    return found


class _Plugin:
    """The last answer of a kubeconfig's `exec`, and when another one is due."""

    def __init__(self) -> None:
        self._asked: dict[str, Any] | None = None
        self._vain_until = 0.0
        """Until then no run is worth it: the plugin has just failed, or given the same as before."""
        self._given: PluginCredentials | None = None
        self._error = CredentialsError("")

    async def ask(
        self, config: dict[str, Any], folder: Path, cluster: _Section, interactive: bool, refused: bool
    ) -> PluginCredentials:
        """Runs the plugin when it is another one, or when its answer has expired or was refused; but not again and
        again."""
        now = time.monotonic()
        if config == self._asked and now < self._vain_until:
            if self._given is None:
                raise self._error
            return self._given
        if config != self._asked or self._given is None or refused or now >= self._given.expires_at:
            former, self._asked, self._given = self._given, config, None
            info = _cluster_info(cluster) if config.get("provideClusterInfo") else None
            try:
                self._given = await run_plugin(config, folder, info, interactive)
            except CredentialsError as e:
                self._error = e
                raise
            finally:
                same = self._given is None or (former is not None and former.secrets == self._given.secrets)
                self._vain_until = time.monotonic() + LOOK_SOON if same else 0.0
        return self._given


def _cluster_info(cluster: _Section) -> dict[str, Any]:
    """ExecCredential's spec.cluster."""
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    info = {key: cluster.get(key) for key in keys if cluster.get(key)}
    if authority := cluster.content("certificate-authority"):
        info["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = extension.get("extension")
    return info


class _Provider:
    """An auth-provider (OpenID Connect), which the library asks. What it refreshed is kept here, not written to the
    file."""

    def __init__(self) -> None:
        self._said: dict[str, Any] | None = None
        self._kept: dict[str, Any] = {}

    async def ask(self, server: str, config: dict[str, Any]) -> str | None:
        if config != self._said:
            self._said, self._kept = config, copy.deepcopy(config)
        kubeconfig = {
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "users": [{"name": "it", "user": {"auth-provider": self._kept}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }
        configuration = k8s.Configuration()
        await k8s_config.load_kube_config_from_dict(kubeconfig, client_configuration=configuration)
        token: str | None = configuration.api_key.get("BearerToken")
        return token


# -- the client -------------------------------------------------------------------------------------------------------


def _client(c: ApiCredentials) -> k8s.ApiClient:
    """Makes the client. Raises OSError, ValueError for certificates that are invalid."""
    configuration = k8s.Configuration(host=c.server, ca_cert_data=c.authority, proxy=c.proxy)
    configuration.verify_ssl = c.verify
    configuration.tls_server_name = c.server_name
    # The workflow waits. None, not False: that counts as 0 attempts, which the client never reaches on a 5xx.
    configuration.retries = None
    configuration.connection_pool_maxsize = 0  # no limit: the activity slots are one
    _authorize(configuration, c)
    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads files only
        for name, content in (("cert_file", c.certificate), ("key_file", c.key)):
            if content:
                file = Path(folder) / name
                file.touch(mode=0o600)
                file.write_text(content)
                setattr(configuration, name, str(file))
        return k8s.ApiClient(configuration)


def _authorize(configuration: k8s.Configuration, c: ApiCredentials) -> None:
    configuration.api_key = {"BearerToken": c.authorization} if c.authorization else {}


async def _close(client: k8s.ApiClient, after: float = 0.0) -> None:
    try:
        await asyncio.sleep(after)
    finally:
        await client.close()
