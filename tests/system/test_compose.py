"""docker-compose.yml, run without Docker: Hostler on PostgreSQL and Temporal's own server, workers by role.

The services are processes in namespaces (tests/stack); only what an image holds is not the image's own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import pytest
import pytest_asyncio
from stack.engine import Engine
from stack.needs import free_ports, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

KILLED = ("postgresql", "temporal", "worker-workflows", "worker-cluster", "worker-cloud", "simulator", "network")
ROLLED_OUT = ("wait", "pool", "demo-pool", "--for=rolled-out", "--timeout=60s")
VMS = """
import boto3, json, sys, time
ec2 = boto3.client("ec2", region_name="eu-west-1", endpoint_url="http://127.0.0.1:7644",
                   aws_access_key_id="AKIAHOSTLERSIMULATOR", aws_secret_access_key="hostler-simulator-secret")
for _ in range(300):
    found = [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
    names = [next(t["Value"] for t in i["Tags"] if t["Key"] == "Name")
             for i in found if i["State"]["Name"] in ("pending", "running")]
    if not sys.argv[1:] or set(names) - set(sys.argv[1:]):
        break
    time.sleep(0.2)
print(json.dumps(names))
"""


@pytest_asyncio.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with Engine(
        tmp_path_factory.mktemp("stack"), environment={**free_ports(), "SIMULATOR_SPEED": "fast"}
    ) as running:
        await running.ready()
        yield running


async def hostler(stack: Engine, *words: str) -> str:
    """The command line in a container, as `docker compose exec worker-cluster hostler …`."""
    code, said = await stack.services["worker-cluster"].execute("hostler", *words)
    assert code == 0, f"{words}: {said}"
    return said


async def machines(stack: Engine) -> list[str]:
    listed = json.loads(await hostler(stack, "get", "machines", "-o", "json"))
    return sorted(item["metadata"]["name"] for item in listed["items"])


async def vms(stack: Engine, beside: Iterable[str] = ()) -> list[str]:
    """The names of the VMs that the cloud itself lists. `beside`: once there is one more than these, within a minute;
    one process waits for that, for each costs more than it asks."""
    code, said = await stack.services["worker-cloud"].execute("python", "-c", VMS, *beside)
    assert code == 0, said
    return sorted(json.loads(said))


async def until(stack: Engine, so: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Waits for it; where it does not come, the failure shows what Hostler itself says of the matter."""
    try:
        async with asyncio.timeout(seconds):
            while not await so():  # noqa: ASYNC110
                await asyncio.sleep(0.5)
    except TimeoutError:
        cloud = await vms(stack)
        words = (("get", "machines", "-o", "wide"), ("describe", "pool", "demo-pool"), ("doctor",))
        said = [(await stack.services["worker-cluster"].execute("hostler", *each))[1] for each in words]
        pytest.fail("\n".join([f"not so after {seconds:g} s; the cloud has {cloud}", *said]))


async def one_vm_each(stack: Engine, count: int) -> None:
    """Every machine runs and has one VM, and there is no other."""
    await stack.services["worker-cluster"].execute("hostler", *ROLLED_OUT)  # most of the wait, in one process

    async def so() -> bool:
        return len(names := await machines(stack)) == count and names == await vms(stack)

    await until(stack, so, 90)
    await hostler(stack, "wait", "machine", "--all", "--for=phase=Running", "--timeout=60s")


async def test_the_demo_has_a_machine_and_a_pool(stack: Engine) -> None:
    await one_vm_each(stack, 4)


async def test_a_machine_is_preserved_and_released(stack: Engine) -> None:
    assert "is preserved until" in await hostler(stack, "preserve", "demo-1", "--for", "1h")
    assert "demo-1" in await hostler(stack, "get", "machines", "--preserved")
    await hostler(stack, "release", "demo-1")
    assert "demo-1" not in await hostler(stack, "get", "machines", "--preserved")


async def test_killed_processes_cost_nothing(stack: Engine) -> None:
    for number, name in enumerate(KILLED):
        await hostler(stack, "scale", "pool", "demo-pool", "--replicas", str(4 - number % 2))
        await stack.services[name].kill()
        await stack.ready()
    await hostler(stack, "scale", "pool", "demo-pool", "--replicas", "3")
    await one_vm_each(stack, 4)


async def test_the_whole_stack_stops_in_the_middle_of_a_rollout(stack: Engine) -> None:
    before = set(await machines(stack))
    await hostler(stack, "rollout", "restart", "demo-pool")
    assert set(await vms(stack, before)) - before, "it has begun"
    await stack.down()
    assert not any(service.running for service in stack.services.values())
    stack.up()
    await stack.ready()
    code, said = await stack.services["worker-cluster"].execute("hostler", *ROLLED_OUT)
    assert (code, "Canary" in said) == (1, True), said  # its first machine is looked at by a person
    await hostler(stack, "rollout", "resume", "demo-pool")
    await hostler(stack, *ROLLED_OUT)
    await one_vm_each(stack, 4)
    assert before & set(await machines(stack)) == {"demo-1"}


async def test_nothing_is_left(stack: Engine) -> None:
    await hostler(stack, "delete", "pool", "demo-pool", "--wait")
    await hostler(stack, "delete", "machine", "demo-1", "--wait")
    assert await vms(stack) == []
