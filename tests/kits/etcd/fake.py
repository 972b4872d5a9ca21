"""An etcd on loopback that is no more than its list of members, over TLS with client certificates: for flows in which
its guard is struck. What the guard does to a real one is in tests/component/test_etcd_guard.py.

A machine of the control plane that runs gets a member, named like its Node, as kubeadm names it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from lifekit import Stack, asked
from pools.lives import machine_handle

from etcd.members import authority, issue

Names = Callable[[], Awaitable[Iterable[str]]]


@dataclass
class FakeEtcd:
    url: str
    leader: str = ""
    voters: dict[str, str] = field(default_factory=dict)
    """Names of members, by id."""
    done: list[str] = field(default_factory=list)
    """The changes that were made: `remove node-1`."""
    down: set[str] = field(default_factory=set)
    """Names of members that do not answer."""
    fewest: int = 0
    """How few members voted at any time, once there were as many as now and then."""

    def join(self, name: str) -> None:
        self.voters[str(100 + len(self.voters) + len(self.done))] = name
        self.leader = self.leader or name
        self.fewest = max(self.fewest, len(self.voters) if not self.done else 0)

    def id_of(self, name: str) -> str:
        return next((id for id, known in self.voters.items() if known == name), "0")

    async def count(self) -> int:
        return len(self.voters)

    async def answer(self, request: web.Request) -> web.Response:
        """Every member has the same address, and a path of its own."""
        body = await request.json()
        asked_of, method = request.match_info["member"], request.match_info["method"]
        lost = len(self.down) >= len(self.voters) / 2
        if asked_of in self.down or (lost and body.get("linearizable")):
            return web.json_response({"code": 14, "message": "etcdserver: request timed out"}, status=503)
        try:
            return web.json_response(self._do(method, asked_of, body))
        except LookupError as e:
            return web.json_response({"code": 5, "message": str(e)}, status=404)
        except ValueError as e:
            return web.json_response({"code": 9, "message": str(e)}, status=400)

    def _do(self, method: str, asked_of: str, body: dict[str, Any]) -> dict[str, Any]:
        leader = self.id_of(self.leader) if len(self.down) < len(self.voters) / 2 else "0"
        match method:
            case "cluster/member/list":
                return {"members": [self._member(id, name) for id, name in self.voters.items()]}
            case "maintenance/status":
                return {"header": {"member_id": self.id_of(asked_of)}, "leader": leader}
            case "maintenance/transfer-leadership":
                if asked_of != self.leader:
                    raise ValueError("etcdserver: not leader")
                self.leader = self._known(body["targetID"])
                self.done.append(f"lead {self.leader}")
                return {}
            case "cluster/member/remove":
                name = self._known(body["ID"])
                if name == self.leader:
                    raise ValueError("the guard moves the leader before it removes its member")
                del self.voters[str(body["ID"])]
                self.done.append(f"remove {name}")
                self.fewest = min(self.fewest, len(self.voters))
                return {}
        raise LookupError(method)

    def _member(self, id: str, name: str) -> dict[str, Any]:
        return {"ID": id, "name": name, "peerURLs": [], "clientURLs": [f"{self.url}/{name}"]}

    def _known(self, id: Any) -> str:
        if str(id) not in self.voters:
            raise LookupError("etcdserver: member not found")
        return self.voters[str(id)]


@contextlib.asynccontextmanager
async def fake_etcd(stack: Stack, names: Names) -> AsyncIterator[FakeEtcd]:
    """The etcd of a tenant's settings; `names` asks for the machines of its control plane. What is wrong with
    them is raised at the end: one that is drained while its member votes."""
    reached = stack.settings.cluster(stack.cluster).etcd
    assert reached is not None
    url = urlsplit(reached.endpoints[0])
    folder = stack.settings.path(reached.authority).parent
    folder.mkdir()
    authority(folder)
    issue(folder, "client", None)
    issue(folder, "server", url.hostname)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    etcd = FakeEtcd(reached.endpoints[0])
    app = web.Application()
    app.router.add_post("/v3/{method:.+}", partial(_anybody, etcd))
    app.router.add_post("/{member}/v3/{method:.+}", etcd.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, url.hostname, url.port, ssl_context=tls).start()
    joining = asyncio.create_task(_joining(stack, etcd, names))
    try:
        yield etcd
    finally:
        if joining.done():
            joining.result()  # what it says tells more than what then did not come about
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        await runner.cleanup()


async def _anybody(etcd: FakeEtcd, request: web.Request) -> web.Response:
    """One that is not down answers under the address alone."""
    request.match_info["member"] = next((name for name in etcd.voters.values() if name not in etcd.down), "")
    return await etcd.answer(request)


async def _joining(stack: Stack, etcd: FakeEtcd, names: Names) -> None:
    """kubeadm on each machine, and a look at whether a machine goes before its member."""
    nodes: dict[str, str] = {}
    while True:
        machines: dict[str, Any] = {n: await asked(machine_handle(stack, n), "describe") for n in await names()}
        for name, machine in machines.items():
            node = machine["status"]["nodeName"]
            if name not in nodes and machine["status"]["phase"] == "Running" and machine["deletion"] is None:
                nodes[name] = node
                etcd.join(node)
        voting = set(etcd.voters.values())
        for name in (n for n, machine in machines.items() if machine["drained"]):
            assert nodes.get(name) not in voting, f"I14: {name} is drained, and its member votes"
        await asyncio.sleep(0.1)
