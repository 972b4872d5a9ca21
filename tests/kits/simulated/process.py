"""The simulator as a program, or in a thread, and plain clients of what it serves."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import boto3
import yaml
from botocore.config import Config

from simulated.support import DEADLINE, user_data
from simulator.client import Obj
from simulator.kubelet import Timings
from simulator.server import SimulatorSettings

T = TypeVar("T")
FAST = Timings.fast()


def eventually(look: Callable[[], T], until: Callable[[T], object] = bool) -> T:
    deadline = time.monotonic() + DEADLINE
    while True:
        seen = look()
        if until(seen):
            return seen
        assert time.monotonic() < deadline, f"did not come about; last seen: {str(seen)[:2000]}"
        time.sleep(0.03)


def fast(**settings: Any) -> SimulatorSettings:
    return SimulatorSettings(timings=FAST, **settings)


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "simulator", "--speed", "fast", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


class Http:
    """JSON over HTTP with nothing but the standard library: the answer's status and body."""

    def __init__(self, base: str, *, token: str | None = None, ca: str | None = None) -> None:
        self._base = base
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._tls = None if ca is None else ssl.create_default_context(cadata=ca)

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data=data, method=method, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._tls) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read())

    def get(self, path: str) -> Any:
        status, body = self("GET", path)
        assert status == 200, body
        return body


def kube_http(kubeconfig: str) -> Http:
    config = yaml.safe_load(kubeconfig)
    cluster = config["clusters"][0]["cluster"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return Http(cluster["server"], token=config["users"][0]["user"]["token"], ca=ca)


def ec2_client(url: str) -> Any:
    return boto3.client(
        "ec2",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="AKIAHOSTLERSIMULATOR",
        aws_secret_access_key="hostler-simulator-secret",
        config=Config(retries={"total_max_attempts": 1}),
    )


def launch(ec2: Any, name: str, data: bytes | None = None) -> Obj:
    answer = ec2.run_instances(
        ImageId="ami-0a1b2c3d4e5f60001",
        InstanceType="m5.large",
        SubnetId="subnet-0a1b2c3d4e5f60001",
        MinCount=1,
        MaxCount=1,
        UserData=(user_data() if data is None else data).decode(),
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": name}]}],
    )
    return dict(answer["Instances"][0])
