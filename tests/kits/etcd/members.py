"""A real etcd of several members on loopback, each with an address of its own, over TLS with client certificates; it is
the binary that the real control plane has, too (apiserver/real.py)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from apiserver.real import assets, required_assets
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Obj = dict[str, Any]
STARTED = 30.0  # seconds in which a member answers


@dataclass
class Member:
    name: str
    address: str
    ports: tuple[int, int]
    """For clients and for other members."""
    process: asyncio.subprocess.Process | None = None

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.ports[0]}"

    @property
    def peer(self) -> str:
        return f"https://{self.address}:{self.ports[1]}"


@dataclass
class RealEtcd:
    folder: Path
    session: aiohttp.ClientSession
    members: dict[str, Member] = field(default_factory=dict)

    async def begin(self, *names: str) -> None:
        """A new etcd of members with these names."""
        for name in names:
            self.members[name] = self._member(name)
        cluster = ",".join(f"{m.name}={m.peer}" for m in self.members.values())
        await asyncio.gather(*(self._start(m, "new", cluster) for m in self.members.values()))
        await self.leader()

    async def call(self, name: str, method: str, **body: Any) -> Obj:
        """Asks one member. Raises aiohttp.ClientError and TimeoutError; what it refuses has a `message`."""
        async with self.session.post(f"{self.members[name].url}/v3/{method}", json=body) as response:
            answer: Obj = await response.json(content_type=None)
            return answer

    async def listed(self) -> dict[str, Obj]:
        """The members as a quorum knows them, by name; one that has not started by its address."""
        for name in self.running:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                found = await self.call(name, "cluster/member/list", linearizable=True)
                if "members" in found:
                    return {m.get("name") or m["peerURLs"][0]: m for m in found["members"]}
        raise AssertionError("no member tells who is one")

    @property
    def running(self) -> list[str]:
        return [m.name for m in self.members.values() if m.runs]

    async def leader(self) -> str:
        """The leader's name, once those that run agree on one of them."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                said = {name: await self.call(name, "maintenance/status") for name in self.running}
                followed = {s.get("leader") for s in said.values()}
                leading = [name for name, s in said.items() if {s["header"]["member_id"]} == followed]
                if leading:
                    return leading[0]
            await asyncio.sleep(0.1)

    async def lead(self, name: str) -> None:
        """Makes a member the leader."""
        while (leader := await self.leader()) != name:
            await self.call(leader, "maintenance/transfer-leadership", targetID=(await self.listed())[name]["ID"])

    async def add(self, name: str) -> Obj:
        """Adds a learner, and starts it if it was taken; returns the answer, in which a refusal has a `message`."""
        member = self._member(name)
        answer = await self.call(await self.leader(), "cluster/member/add", peerURLs=[member.peer], isLearner=True)
        if "member" in answer:
            cluster = [f"{n}={m['peerURLs'][0]}" for n, m in (await self.listed()).items() if n != member.peer]
            self.members[name] = member
            await self._start(member, "existing", ",".join([*cluster, f"{name}={member.peer}"]))
        return answer

    async def join(self, name: str) -> None:
        """Adds a learner as soon as etcd takes one: all members must have answered each other for 5 s."""
        while True:
            if "member" in await self.add(name):
                return
            await asyncio.sleep(0.2)

    async def promote(self, name: str) -> None:
        """Gives a learner its vote, once it has caught up."""
        while True:
            id = (await self.listed())[name]["ID"]
            answer = await self.call(await self.leader(), "cluster/member/promote", ID=id)
            if "members" in answer:
                return
            await asyncio.sleep(0.2)

    async def kill(self, name: str) -> None:
        process = self.members[name].process
        assert process is not None
        process.kill()
        await process.wait()

    def freeze(self, name: str) -> None:
        """It neither answers nor refuses: its connections stay open."""
        self.members[name].send(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.members[name].send(signal.SIGCONT)

    async def close(self) -> None:
        await asyncio.gather(*map(self.kill, self.running))

    def _member(self, name: str) -> Member:
        address = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
        issue(self.folder, name, address)
        return Member(name, address, (_free_port(address), _free_port(address)))

    async def _start(self, member: Member, state: str, cluster: str) -> None:
        certificate, key = self.folder / f"{member.name}.crt", self.folder / f"{member.name}.key"
        argv = [str(assets().path("etcd")), f"--name={member.name}", f"--data-dir={self.folder / member.name}"]
        argv += [f"--initial-cluster-state={state}", f"--initial-cluster={cluster}", "--log-level=warn"]
        argv += [f"--{which}-client-urls={member.url}" for which in ("listen", "advertise")]
        argv += [f"--{which}-peer-urls={member.peer}" for which in ("listen", "initial-advertise")]
        for prefix in ("", "peer-"):
            argv += [f"--{prefix}cert-file={certificate}", f"--{prefix}key-file={key}", f"--{prefix}client-cert-auth"]
            argv += [f"--{prefix}trusted-ca-file={self.folder / 'ca.crt'}"]
        with (self.folder / f"{member.name}.log").open("ab") as log:
            member.process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log)
        async with asyncio.timeout(STARTED):
            while True:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    if "header" in await self.call(member.name, "maintenance/status"):
                        return
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def real_etcd(folder: Path) -> AsyncIterator[RealEtcd]:
    """An etcd without members yet; `client.crt`, `client.key` and `ca.crt` in the folder are a client's."""
    required_assets()
    authority(folder)
    issue(folder, "client", None)
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    tls.load_cert_chain(folder / "client.crt", folder / "client.key")
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=timeout) as session:
        etcd = RealEtcd(folder, session)
        try:
            yield etcd
        finally:
            await etcd.close()


def _free_port(address: str) -> int:
    with socket.socket() as holder:
        holder.bind((address, 0))
        return int(holder.getsockname()[1])


# -- certificates -----------------------------------------------------------------------------------------------------


def authority(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "etcd-ca")])
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    made = _builder(name, name, key).add_extension(constraints, critical=True).sign(key, hashes.SHA256())
    _write(folder, "ca", made, key)


def issue(folder: Path, name: str, address: str | None) -> None:
    """A member's certificate, for server and client alike as kubeadm's are, or without an address a client's."""
    ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    ca_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if address else [])
    builder = _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), ca.subject, key)
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if address:
        # As kubeadm: etcd compares a peer's certificate with where it calls from, which is 127.0.0.1 here.
        addresses = (address, "127.0.0.1")
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(a)) for a in addresses])
        builder = builder.add_extension(names, critical=False)
    _write(folder, name, builder.sign(ca_key, hashes.SHA256()), key)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - timedelta(minutes=5)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=2))
    )


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[RealEtcd]:
    folder = tmp_path / "etcd"
    folder.mkdir()
    async with real_etcd(folder) as real:
        yield real
