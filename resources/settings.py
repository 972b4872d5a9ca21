"""Settings of a worker and of the command line: one YAML file, overridden by HOSTLER_* variables.

Temporal's own connection (address, namespace, TLS, API key) follows Temporal's conventions, temporal.toml and
TEMPORAL_*; what `temporal` says here only applies where those are silent.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from resources.apimachinery import dns_subdomain
from resources.base import Duration, Key
from resources.documents import DocumentError, documents
from resources.endpoints import in_clear
from resources.faults import faults
from resources.machine_config.settings import MachineConfigSettings
from resources.names import DEFAULT_CLUSTER, DEFAULT_QUEUE
from resources.section import Section
from resources.spelling import did_you_mean
from resources.timings import Timings
from resources.variables import PREFIX, strange

SETTINGS_VARIABLE = "HOSTLER_SETTINGS"
PLACES = (Path(".hostler/settings.yaml"), Path("~/.config/hostler/settings.yaml"))

INSTALLATION = r"^[A-Za-z0-9][-A-Za-z0-9._]{0,62}$"
"""It becomes the value of a tag, or of a label, in every cloud."""

Role = Literal["workflows", "cluster", "watch", "drain", "cloud"]
ROLES: tuple[Role, ...] = ("workflows", "cluster", "watch", "drain", "cloud")


class TemporalSettings(Section):
    """How the Temporal server is reached. TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and the profile of `temporal` win."""

    address: str = "localhost:7233"
    """host:port of the server."""
    namespace: str = "default"
    """The server's namespace."""
    ui: str | None = None
    """Address of the web UI, for the links that the command line prints."""
    api_key_file: Path | None = None
    """A file with an API key, where temporal.toml and TEMPORAL_API_KEY have none. A worker reads it again every minute.
    """


def _endpoint(value: str | None) -> str | None:
    if value is not None and in_clear(value):
        raise ValueError(
            f"{value}: credentials and user data would be sent unencrypted; write https:// (http:// on loopback)"
        )
    return value


def _cluster(value: str) -> str:
    if why := dns_subdomain(value):
        raise ValueError(f"no cluster has such a name: {why}")
    return value


ClusterName = Annotated[str, AfterValidator(_cluster)]
"""A cluster as manifests and workflows name it."""


class EtcdSettings(Section):
    """How a worker with the role cluster reaches a cluster's etcd, to guard it while control-plane machines are
    replaced. The files are PEM, and are read at each call."""

    endpoints: list[Annotated[str, AfterValidator(_endpoint)]] = Field(default_factory=list)
    """Client URLs of members, e.g. https://10.0.0.4:2379; none: port 2379 of the InternalIPs of the control plane's
    Nodes."""
    certificate: Path
    """The client certificate; kubeadm: /etc/kubernetes/pki/apiserver-etcd-client.crt."""
    key: Path
    """Its key, without a passphrase; kubeadm: /etc/kubernetes/pki/apiserver-etcd-client.key."""
    authority: Path
    """The certificate of etcd's own authority; kubeadm: /etc/kubernetes/pki/etcd/ca.crt."""


class ClusterSettings(Section):
    """How a worker reaches a cluster. A workflow knows it by name only."""

    kubeconfig: Path | None = None
    """A kubeconfig file with the worker's identity."""
    context: str | None = None
    """The context of that file; null: its current one."""
    in_cluster: bool = False
    """The worker runs in this cluster and uses its pod's service account, instead of a kubeconfig."""
    full_name: str | None = None
    """The cluster's name in the tag kubernetes.io/cluster/<full name>, if a class has no such tag."""
    role: str = "node"
    """The role in the tag kubernetes.io/role/<role>, if a class has no such tag."""
    namespaces: list[str] = Field(default_factory=list)
    """Namespaces of manifests that belong to this cluster."""
    etcd: EtcdSettings | None = None
    """Its etcd, where the guard of its control plane is on."""
    machine_configs: MachineConfigSettings = Field(default_factory=MachineConfigSettings)
    """Its machine configs; see docs/machine-configs.md."""


class SecretsSettings(Section):
    """The control source: where credentials and user data are. Not necessarily a cluster whose nodes are managed."""

    source: Literal["kubernetes", "directory", "environment"] = "kubernetes"
    """Where Secrets are read: from a Kubernetes cluster, from files, or from environment variables."""
    cluster: str | None = None
    """source kubernetes: the name of one of `clusters`; default: the default cluster."""
    directory: Path | None = None
    """source directory: files <directory>/<namespace>/<name>/<key>, as a mounted Secret."""


class AccountQueue(Section):
    """A task queue of their own for the calls of some accounts, `hostler-cloud-<provider>-<name>`."""

    accounts: list[Key]
    """Keys of accounts, `<provider>/<scope>/<Secret's namespace>/<Secret's name>`, or shell patterns of them. None: the
    queue is polled on, and gets nothing new."""
    calls_per_second: float | None = Field(default=None, gt=0)
    """The most calls per second of the whole task queue, enforced by every server."""


QueueName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class CloudSettings(Section):
    """How the calls of one cloud are made."""

    endpoint: Annotated[str | None, AfterValidator(_endpoint)] = None
    """Used instead of the cloud's own endpoint, e.g. a simulator's. It must be https, unless it is on loopback."""
    calls_per_second: float | None = Field(default=None, gt=0)
    """Limit for the whole task queue, enforced by the server."""
    calls_per_second_per_account: float | None = Field(default=None, gt=0)
    """Limit for each account (Secret and region) in the task queue, enforced by the server, so that no account waits
    for another one."""
    queues: dict[QueueName, AccountQueue] = Field(default_factory=dict)
    """Accounts with a task queue of their own, by its name. Of several that fit an account the first one counts."""
    calls_at_once_per_account: int | None = Field(default=None, ge=1)
    """The maximum number of concurrent calls for each account (Secret and region) in one worker; an account that does
    not answer occupies this many activities and threads. Null: a quarter of worker.maxConcurrentActivities, 25. With
    calls of 2 s these are 12 a second, more than EC2 allows an account in the long run (2 RunInstances a second)."""
    call_timeout: Duration = timedelta(seconds=20)
    """How long one call of the cloud may take."""
    default_secret: dict[str, Path] = Field(default_factory=dict)
    """The account's default credentials, key to file, used when a machine's own Secret is missing."""


class WorkerSettings(Section):
    """What a worker does and how much at once."""

    roles: list[Role] = Field(default_factory=lambda: list(ROLES))
    """What the worker does; cloud credentials are needed only where the role cloud is."""
    health: str | None = "127.0.0.1:8081"
    """host:port for /healthz and /readyz; null: not served."""
    metrics: str | None = "127.0.0.1:9464"
    """host:port for Prometheus metrics; null: not served."""
    census: Annotated[Duration, Field(gt=timedelta(0))] | None = timedelta(minutes=1)
    """How often a worker with the role workflows counts the machines for its metrics; null: never."""
    graceful_shutdown: Duration = timedelta(seconds=30)
    """How long activities may finish when the worker is stopped."""
    sticky_timeout: Duration = timedelta(seconds=5)
    """How long a workflow's next task waits for the worker that has it cached: the delay that a killed worker causes.
    """
    max_cached_workflows: int = Field(default=1000, ge=0)
    """How many workflows the worker keeps in memory between two of their tasks."""
    max_concurrent_activities: int = Field(default=100, ge=1)
    """How many activities of each task queue run at the same time."""
    max_concurrent_workflow_tasks: int = Field(default=8, ge=2)
    """The maximum number of concurrent workflow tasks; further tasks wait in Temporal, where they do not time out. In
    one process only one of them runs at any moment (Python's GIL); the others are on their way from and to the server.
    """
    strict_sandbox: bool = False
    """Every workflow instance imports Hostler's own modules again; for tests and CI."""
    deployment_name: str | None = None
    """The name of the worker's deployment, for Temporal's worker versioning."""
    build_id: str | None = None
    """With both given, the worker is versioned and its workflows are pinned."""


def _resolve(value: Any) -> Any:
    return Path(os.path.expanduser(value)) if isinstance(value, str | Path) else value


class Settings(BaseSettings):
    """Fields have no aliases here: with one, pydantic-settings would look for a variable of that very name. The file's
    camelCase is translated on loading."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    file: Annotated[Path | None, BeforeValidator(_resolve)] = None
    """Where these settings were read from; paths in it are relative to its folder."""
    temporal: TemporalSettings = Field(default_factory=TemporalSettings)
    queue_prefix: str = DEFAULT_QUEUE
    """The task queue of the workflows; the names of the other queues begin with it."""
    default_cluster: ClusterName = DEFAULT_CLUSTER
    """The cluster that is meant where none is named."""
    installation: Annotated[str, Field(pattern=INSTALLATION)] | None = None
    """Which Hostler this is, in the tags of everything that it creates; null: the id of Temporal's namespace. Set it to
    the old id when that id changes, e.g. after a move to another server; otherwise the existing VMs count as another
    installation's."""
    clusters: dict[ClusterName, ClusterSettings] = Field(default_factory=dict)
    """The clusters whose machines are looked after, by name."""
    secrets: SecretsSettings = Field(default_factory=SecretsSettings)
    clouds: dict[str, CloudSettings] = Field(default_factory=dict)
    """Settings by provider, in lower case: aws, azure, gcp."""
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    timings: Timings = Field(default_factory=Timings)
    """Passed to the workflows that this command line starts."""
    log_format: Literal["human", "json"] = "human"
    """How log lines are written: for people, or as JSON."""
    simulator: str | None = None
    """Admin address of the simulator that `hostler up` runs."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings  # a variable wins over the file

    def path(self, path: Path) -> Path:
        """A path from the settings file, relative to its folder."""
        path = path.expanduser()
        return path if path.is_absolute() or self.file is None else self.file.parent / path

    def cluster(self, name: str) -> ClusterSettings:
        """The settings of a cluster. Raises SettingsError with the known names."""
        if name not in self.clusters:
            known = ", ".join(sorted(self.clusters)) or "none"
            meant = did_you_mean(name, self.clusters)
            raise SettingsError(f"cluster {name!r} is not in the settings; the known clusters are: {known}{meant}")
        return self.clusters[name]


class SettingsError(ValueError):
    """Settings are wrong; the message names the file and the field."""


def _by_name(model: type[BaseModel], content: dict[str, Any]) -> dict[str, Any]:
    """The file's camelCase keys as field names, so that a variable and the file meet under one key. Unknown keys
    stay."""
    names = {to_camel(name): name for name in model.model_fields}
    return {
        names.get(key, key): _value(model.model_fields.get(names.get(key, key)), value)
        for key, value in content.items()
    }


def _value(field: FieldInfo | None, value: Any) -> Any:
    inner = field.annotation if field else None
    if isinstance(inner, type) and issubclass(inner, BaseModel) and isinstance(value, dict):
        return _by_name(inner, value)
    if get_origin(inner) is dict and isinstance(value, dict):
        section = get_args(inner)[1]
        if isinstance(section, type) and issubclass(section, BaseModel):
            return {k: _by_name(section, v) if isinstance(v, dict) else v for k, v in value.items()}
    return value


def load_settings(path: Path | None = None) -> Settings:
    """Loads settings from `path`, else $HOSTLER_SETTINGS, else the first of PLACES that exists, else defaults."""
    if strangers := list(strange(os.environ, Settings.model_fields)):
        raise SettingsError("; ".join(strangers))
    named = os.environ.get(SETTINGS_VARIABLE)  # one that is empty names no file, as an empty KUBECONFIG does not
    given = path or (Path(named) if named else None)
    file = given or next((p.expanduser() for p in PLACES if p.expanduser().exists()), None)
    content: Any = {}
    if file is not None:
        try:
            content = next(iter(documents(file.read_text(encoding="utf-8"))), None) or {}
        except OSError as e:
            raise SettingsError(f"{file}: cannot be read: {e.strerror}") from None
        except UnicodeDecodeError:
            raise SettingsError(f"{file}: not UTF-8 text") from None
        except DocumentError as e:
            raise SettingsError(f"{file}{e}") from None
        if not isinstance(content, dict):
            raise SettingsError(f"{file}: settings must be a mapping")
        content["file"] = file.absolute()
    try:
        return Settings(**_by_name(Settings, content))
    except ValidationError as e:
        lines = [f"{_place(path, file, content)}: {_dotted(path)}: {words}" for path, words in faults(e, Settings)]
        raise SettingsError("\n".join(lines)) from None


def _dotted(path: tuple[str, ...]) -> str:
    """`worker.roles[1]`."""
    return "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in path).lstrip(".")


def _place(path: tuple[str, ...], file: Path | None, content: dict[str, Any]) -> str:
    """Where a field was set: a variable wins over the file, and so does one for a field below where the file has
    nothing."""
    wanted = [_plain(step) for step in path]
    given = {
        v: [_plain(step) for step in v[len(PREFIX) :].split("__")] for v in os.environ if v.upper().startswith(PREFIX)
    }
    above = [v for v, steps in given.items() if steps == wanted[: len(steps)]]
    below = [] if _has(content, path) else [v for v, steps in given.items() if steps[: len(wanted)] == wanted]
    return max(above, key=len, default="") or min(below, default="") or str(file or "HOSTLER_* variables")


def _plain(step: str) -> str:
    """A step of a path as it is compared: `maxSurge`, `max_surge` and `MAXSURGE` are one."""
    return step.replace("_", "").lower()


def _has(content: Any, path: tuple[str, ...]) -> bool:
    for step in path:
        if not isinstance(content, dict) or step not in content:
            return False
        content = content[step]
    return True
