"""The simulated cloud beside an API server that is not the simulator's own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.config import Config
from simulated.support import Cluster, eventually, is_ready, served_cluster, token_secret, user_data

from simulator.kubelet import Timings
from simulator.server import Simulator, SimulatorSettings


def settings(kubeconfig: str | None, **more: Any) -> SimulatorSettings:
    return SimulatorSettings(timings=Timings.fast(), api_server_kubeconfig=kubeconfig, **more)


def launch(ec2_url: str) -> str:
    """Launches an instance; returns its id."""
    ec2: Any = boto3.client(
        "ec2",
        endpoint_url=ec2_url,
        region_name="eu-west-1",
        aws_access_key_id="AKIAHOSTLERSIMULATOR",
        aws_secret_access_key="hostler-simulator-secret",
        config=Config(proxies={}, retries={"total_max_attempts": 1}),
    )
    answer = ec2.run_instances(
        ImageId="ami-0a1b2c3d4e5f60001",
        InstanceType="m5.large",
        SubnetId="subnet-0a1b2c3d4e5f60001",
        MinCount=1,
        MaxCount=1,
        UserData=user_data().decode(),
    )
    return str(answer["Instances"][0]["InstanceId"])


async def nodes(cluster: Cluster) -> dict[str, bool]:
    """Whether they are ready, by instance id."""
    items = (await cluster.client.list("nodes"))["items"]
    return {n["spec"]["providerID"].rpartition("/")[2]: is_ready(n) for n in items}


async def test_its_machines_join_that_cluster(tmp_path: Path) -> None:
    async with served_cluster() as cluster:
        await cluster.client.create("secrets", token_secret(), "kube-system")
        joined = settings(cluster.kubeconfig, state_dir=tmp_path)
        async with Simulator(joined) as simulator:
            assert (simulator.kubeconfig, simulator.kube_url) == (cluster.kubeconfig, cluster.url)
            first = await asyncio.to_thread(launch, simulator.cloud_urls["aws"])
            await eventually(lambda: nodes(cluster), lambda seen: seen.get(first))
            assert simulator.frame.calls("kubernetes") == []
        # Machines outlive the simulator, with the identities that this cluster gave them.
        await cluster.client.delete("secrets", token_secret()["metadata"]["name"], "kube-system")
        async with Simulator(joined):
            seen = len(cluster.frame.calls("kubernetes", "patch nodes/status"))

            async def posted() -> int:
                return len(cluster.frame.calls("kubernetes", "patch nodes/status"))

            await eventually(posted, lambda n: n > seen + 1, "status posts after a restart")


async def test_a_state_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with served_cluster() as cluster:
        for name, first, second, words in (
            ("own", None, cluster.kubeconfig, "machines of a simulated cluster"),
            ("other", cluster.kubeconfig, None, "machines of another cluster"),
        ):
            async with Simulator(settings(first, state_dir=tmp_path / name)):
                pass
            with pytest.raises(ValueError, match=words):
                Simulator(settings(second, state_dir=tmp_path / name))
            async with Simulator(settings(first, state_dir=tmp_path / name)) as again:
                assert again.kubeconfig


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"certificate-authority": "/etc/ca.crt"}, "names a certificate-authority file"),
        ({"insecure-skip-tls-verify": True}, "has insecure-skip-tls-verify"),
        (None, "not a kubeconfig with a current context"),
    ],
)
async def test_a_kubeconfig_that_kubelets_cannot_use_is_refused(
    tmp_path: Path, change: dict[str, Any] | None, words: str
) -> None:
    async with served_cluster() as cluster:
        config = yaml.safe_load(cluster.kubeconfig)
        if change is None:
            del config["current-context"]
        else:
            config["clusters"][0]["cluster"].update(change)
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        argv = [sys.executable, "-m", "simulator", "--api-server-kubeconfig", str(file)]
        done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert words in done.stderr
        assert "Traceback" not in done.stderr


async def test_the_process_gives_that_clusters_kubeconfig_on(tmp_path: Path) -> None:
    async with served_cluster() as cluster:
        (tmp_path / "joined").write_text(cluster.kubeconfig)
        argv = [sys.executable, "-m", "simulator", "--die-with-parent", "--kubeconfig", str(tmp_path / "written")]
        argv += ["--api-server-kubeconfig", str(tmp_path / "joined")]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        try:
            assert process.stdout is not None
            addresses = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
            assert addresses["kube"] == cluster.url
            assert (tmp_path / "written").read_text() == cluster.kubeconfig
        finally:
            await process.communicate(b"")  # closes its standard input, and so ends it
        assert process.returncode == 0
