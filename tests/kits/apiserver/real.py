"""A real Kubernetes control plane on loopback, for tests: etcd, kube-apiserver, and where asked its controllers.

The binaries are those of KUBEBUILDER_ASSETS (envtest's convention: a folder with etcd, kube-apiserver and perhaps
kube-controller-manager and kube-scheduler), else those that `make kube` built. With HOSTLER_REQUIRE_KUBE=1 a test that
needs them fails where they are missing; otherwise it is skipped.

As a program, `python -m apiserver.real COMMAND…`, it runs a command beside a whole control plane, with the path of an
administrator's kubeconfig in HOSTLER_API_SERVER_KUBECONFIG.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from apiserver.build import binaries_folder
from apiserver.certificates import client_certificate, write_certificates
from apiserver.simulated import KubeTarget, Obj
from simulator import controllers as simulated
from simulator.kube import csr
from starter.local.processes import Child, Command, ProcessError, Processes, Ready, no_wait
from starter.local.up import cancelled_by_signals

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
REQUIRE_VARIABLE = "HOSTLER_REQUIRE_KUBE"
KUBECONFIG_VARIABLE = "HOSTLER_API_SERVER_KUBECONFIG"
HOST = "127.0.0.1"
ADMIN_TOKEN = "an-admin-token-for-tests"
GRACE = 4.0  # seconds of silence after which a node is Unknown; Kubernetes' default is 50
LOG_LINES = 30  # of each log, shown when a start fails

Controllers = tuple[str, ...]
"""Names for kube-controller-manager's --controllers."""
CERTIFICATES: Controllers = tuple(f"certificatesigningrequest-{task}-controller" for task in ("approving", "signing"))
"""Only what gives kubelets their certificates: the test alone writes nodes, pods and the rest."""
ALL: Controllers = ("*", "token-cleaner-controller")
"""The controllers that are on by default, one that is not, and the scheduler."""

_SYSTEM_NAMESPACES = {"default", "kube-system", "kube-public", "kube-node-lease"}

AUDIT = "audit.jsonl"
_AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts:hostler"]}, {"level": "None"}],
}
"""What workers ask with accounts of deploy/rbac; nothing else is written down."""

# What kubeadm sets up for TLS bootstrapping: a bootstrap token may ask for a node's certificate, and gets it without a
# review; a kubelet gets a new one for itself.
_ROLES = (
    ("system:bootstrappers", "system:node-bootstrapper"),
    ("system:bootstrappers", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
    ("system:nodes", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"),
)


@dataclass(frozen=True)
class Assets:
    """A folder with the binaries of a control plane."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / name

    def have(self, *names: str) -> bool:
        return all(os.access(self.path(name), os.X_OK) for name in names)

    @property
    def usable(self) -> bool:
        return self.have("etcd", "kube-apiserver")

    @property
    def whole(self) -> bool:
        return self.usable and self.have("kube-controller-manager", "kube-scheduler")

    @property
    def words(self) -> str:
        """Words for people: what these are, or why there are none and what to do."""
        if not self.usable:
            advice = f"run `make kube`, or name their folder in {ASSETS_VARIABLE}"
            return f"no etcd and kube-apiserver in {self.folder}: {advice}"
        beside = "with its controllers and scheduler" if self.whole else "beside the simulator's controllers"
        return f"a real kube-apiserver of {self.folder}, {beside}"


def assets() -> Assets:
    named = os.environ.get(ASSETS_VARIABLE)
    return Assets(Path(named) if named else binaries_folder())


def required_assets() -> Assets:
    """For fixtures: the test is skipped where there are none, and fails where they are required."""
    found = assets()
    if not found.usable:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1 and {found.words}", pytrace=False)
        pytest.skip(found.words)
    return found


class RealKube:
    """A control plane that runs. `target` is the administrator's access to it, `kubeconfig` the same as YAML,
    inline."""

    def __init__(self, folder: Path, found: Assets, processes: Processes, ports: dict[str, int]) -> None:
        self._folder = folder
        self._assets = found
        self._processes = processes
        self._etcd = f"http://{HOST}:{ports['etcd']}"
        self._ports = ports
        self.target = KubeTarget(f"https://{HOST}:{ports['kube-apiserver']}", ADMIN_TOKEN, folder / "ca.crt")

    @property
    def kubeconfig(self) -> str:
        authority = base64.b64encode(self.target.ca_file.read_bytes()).decode()
        cluster = {"server": self.target.url, "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
            "current-context": "real",
        }
        return str(yaml.safe_dump(config, sort_keys=False))

    @property
    def kubeconfig_file(self) -> Path:
        return self._folder / "kubeconfig"

    def audited(self) -> list[Obj]:
        """The API server's audit events of what accounts of the namespace `hostler` have asked."""
        return [json.loads(line) for line in (self._folder / AUDIT).read_text().splitlines()]

    # -- start, in this order

    async def start_etcd(self) -> None:
        client, peer = self._etcd, f"http://{HOST}:{self._ports['peer']}"
        await self._start(
            "etcd",
            *("--data-dir", str(self._folder / "etcd"), "--unsafe-no-fsync", "--socket-reuse-port"),
            *("--log-level", "warn"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *(
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"default={peer}",
            ),
            ready=self._etcd_ready,
        )

    async def start_api_server(self, *, service_accounts: bool) -> None:
        """Starts the API server. Without `service_accounts` pods need none, which only a controller would make."""
        file = self._file
        (self._folder / "audit.yaml").write_text(yaml.safe_dump(_AUDITED))
        (self._folder / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
        self.kubeconfig_file.write_text(self.kubeconfig)
        await self._start(
            "kube-apiserver",
            *("--etcd-servers", self._etcd),
            *("--bind-address", HOST, "--advertise-address", HOST, "--permit-port-sharing"),
            *("--secure-port", str(self._ports["kube-apiserver"])),
            *("--tls-cert-file", file("server.crt"), "--tls-private-key-file", file("server.key")),
            *(
                "--client-ca-file",
                file("ca.crt"),
                "--token-auth-file",
                file("tokens.csv"),
                "--enable-bootstrap-token-auth",
            ),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", file("service-accounts.key")),
            *("--service-account-signing-key-file", file("service-accounts.key")),
            *("--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction"),
            *("--audit-policy-file", file("audit.yaml"), "--audit-log-path", file(AUDIT)),
            *(() if service_accounts else ("--disable-admission-plugins", "ServiceAccount")),
            *("--service-cluster-ip-range", "10.0.0.0/24"),
            ready=self._api_server_ready,
        )
        for group, role in _ROLES:
            await self.target.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", _binding(group, role))

    async def start_controllers(self, names: Controllers) -> None:
        await self._start(
            "kube-controller-manager",
            *self._controllers_flags,
            *("--cluster-signing-cert-file", self._file("ca.crt"), "--cluster-signing-key-file", self._file("ca.key")),
            *("--root-ca-file", self._file("ca.crt")),
            *("--service-account-private-key-file", self._file("service-accounts.key")),
            *("--use-service-account-credentials=false", "--controllers", ",".join(names)),
            *("--node-monitor-period", "500ms", "--node-monitor-grace-period", f"{GRACE:g}s"),
            *("--node-startup-grace-period", f"{2 * GRACE:g}s"),
            ready=self._service_accounts_ready if names == ALL else no_wait,
        )

    async def start_scheduler(self) -> None:
        await self._start("kube-scheduler", *self._controllers_flags)

    @property
    def _controllers_flags(self) -> tuple[str, ...]:
        return ("--kubeconfig", str(self.kubeconfig_file), "--leader-elect=false", "--secure-port=0")

    async def start_substitutes(self, names: Controllers, leaving: contextlib.AsyncExitStack) -> None:
        """Starts substitutes, for assets without controllers: the simulator's, and a signer, in this process."""
        signer = asyncio.create_task(sign_requests(self.target, self._folder), name="signer")
        leaving.push_async_callback(_cancelled, signer)
        if names == ALL:
            ours = simulated.Controllers(self.kubeconfig, grace=GRACE)
            await ours.start()
            leaving.push_async_callback(ours.stop)

    async def _start(self, name: str, *arguments: str, ready: Ready = no_wait) -> None:
        argv = [str(self._assets.path(name)), *arguments]
        await self._processes.start(Command(name, argv, self._folder / f"{name}.log", ready))

    def _file(self, name: str) -> str:
        return str(self._folder / name)

    # -- readiness

    async def _etcd_ready(self, _: Child) -> None:
        async with aiohttp.ClientSession(self._etcd) as session:
            await _until_200(session, "/health")

    async def _api_server_ready(self, _: Child) -> None:
        await _until_200(self.target.session, f"{self.target.url}/readyz", headers=self.target.headers())
        while True:  # a controller within the API server makes them when it is ready already
            names = {n["metadata"]["name"] for n in (await self.target.get("/api/v1/namespaces"))["items"]}
            if names >= _SYSTEM_NAMESPACES:
                return
            await asyncio.sleep(0.05)

    async def _service_accounts_ready(self, _: Child) -> None:
        """Pods are refused in a namespace as long as it has no service account."""
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        await _until_200(self.target.session, self.target.url + path, headers=self.target.headers())

    def logs(self) -> str:
        """The last lines of every process."""
        return "\n".join(
            f"== {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            for log in sorted(self._folder.glob("*.log"))
        )


@contextlib.asynccontextmanager
async def real_kube(found: Assets, controllers: Controllers) -> AsyncIterator[RealKube]:
    """A control plane with a state of its own. Raises ProcessError, with the ends of all logs.

    Where the assets have no controllers, substitutes take their place.
    """
    async with contextlib.AsyncExitStack() as leaving:
        folder = Path(leaving.enter_context(tempfile.TemporaryDirectory(prefix="real-kube-")))
        ports = leaving.enter_context(_ports("etcd", "peer", "kube-apiserver"))
        write_certificates(folder)
        processes = await leaving.enter_async_context(Processes(say=lambda line: print(line, file=sys.stderr)))
        kube = RealKube(folder, found, processes, ports)
        leaving.push_async_callback(kube.target.close)
        whole = found.whole and controllers == ALL
        try:
            await kube.start_etcd()
            await kube.start_api_server(service_accounts=whole)
            if found.whole:
                await kube.start_controllers(controllers)
            else:
                await kube.start_substitutes(controllers, leaving)
            if whole:
                await kube.start_scheduler()
        except ProcessError as e:
            raise ProcessError(f"{e}\n{kube.logs()}") from None
        yield kube


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@contextlib.contextmanager
def _ports(*names: str) -> Iterator[dict[str, int]]:
    """A free port for each, held by a socket that never listens: nobody else is given it before its server starts.

    The servers share their ports with it (SO_REUSEPORT); connections go to the sockets that listen.
    """
    with contextlib.ExitStack() as held:
        ports = {}
        for name in names:
            holder = held.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind((HOST, 0))
            ports[name] = holder.getsockname()[1]
        yield ports


async def _until_200(session: aiohttp.ClientSession, url: str, headers: dict[str, str] | None = None) -> None:
    while True:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(url, headers=headers) as answer:
                if answer.status == 200:
                    return
        await asyncio.sleep(0.05)


def _binding(group: str, role: str) -> Obj:
    api = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": f"{group}-{role.rpartition(':')[2]}"},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": api, "kind": "Group", "name": group}],
    }


# -- signing what kubelets ask for -------------------------------------------------------------------------------------


REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


async def sign_requests(kube: KubeTarget, folder: Path) -> None:
    """Approve and sign, by the simulator's rules and with the CA in `folder`, until cancelled."""
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    while True:
        async for event in kube.watch(REQUESTS):  # without a version: existing requests come first
            if event["type"] in ("ADDED", "MODIFIED"):
                await _advance(kube, event["object"], ca, key)


async def _advance(kube: KubeTarget, request: Obj, ca: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    path = f"{REQUESTS}/{request['metadata']['name']}"
    if not request["status"] and csr.may_be_approved(request):
        condition = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": "a kubelet's"}
        condition["lastUpdateTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await kube.call("PUT", f"{path}/approval", {**request, "status": {"conditions": [condition]}})
    elif csr.awaits_signing(request) and csr.node_of(request) is None:
        csr.fail(request)
        await kube.call("PUT", f"{path}/status", request)
    elif csr.awaits_signing(request):
        wanted = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"]))
        signed = client_certificate(wanted.subject, wanted.public_key(), ca, key)
        pem = signed.public_bytes(serialization.Encoding.PEM)
        request["status"]["certificate"] = base64.b64encode(pem).decode()
        await kube.call("PUT", f"{path}/status", request)


# -- as a program -----------------------------------------------------------------------------------------------------


async def _beside(command: list[str]) -> int:
    """Runs the command; returns its exit code. A signal to this process ends the command first, then the control
    plane."""
    found = assets()
    if not found.usable:
        print(f"error: {found.words}", file=sys.stderr)
        return 1
    print(found.words, flush=True)
    async with real_kube(found, ALL) as kube:
        environment = {**os.environ, KUBECONFIG_VARIABLE: str(kube.kubeconfig_file)}
        # In a group of its own, so that Ctrl-C reaches it once, by us.
        child = await asyncio.create_subprocess_exec(*command, env=environment, process_group=0)
        try:
            return await child.wait()
        finally:
            if child.returncode is None:
                child.terminate()
                await child.wait()


def main() -> int:
    async def run() -> int:
        with cancelled_by_signals():
            return await _beside(sys.argv[1:])

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        return 130
    except ProcessError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
