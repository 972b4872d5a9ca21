"""Bootstrap tokens against a simulated API server."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import quote

import pytest
from apiserver.simulated import SECRETS, Obj, World, new_world
from pydantic import SecretStr

from activities.kube.client import Kube, KubeError
from activities.kube.tokens import ensure_token, keep_token, render, revoke_tokens, token_id
from resources.calls.machine import MachineRef
from resources.names import TAG_UID
from resources.settings import ClusterSettings
from simulator.frame import FaultRule

MACHINE = MachineRef(cluster="demo", name="m-1", uid="0b5d3a4e-8f53-4b8e-9d0a-6f6f3c1f4a11")
OTHER = MachineRef(cluster="demo", name="m-2", uid="9c1e2f60-1111-4222-8333-944455566677")
EXPIRES = datetime(2031, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as world:
        yield world


@pytest.fixture
async def kube(world: World, tmp_path: Path) -> AsyncIterator[Kube]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(world.kube.kubeconfig())
    kube = await Kube.connect("demo", ClusterSettings(), str(kubeconfig))
    try:
        yield kube
    finally:
        await kube.close()


def path(machine: MachineRef = MACHINE, attempt: int = 1) -> str:
    return f"{SECRETS}/bootstrap-token-{token_id(machine.uid, attempt)}"


async def content(world: World, attempt: int = 1) -> dict[str, str]:
    secret: Obj = await world.kube.get(path(attempt=attempt))
    return {k: base64.b64decode(v).decode() for k, v in secret["data"].items()}


async def tokens(world: World) -> set[str]:
    items = (await world.kube.get(SECRETS))["items"]
    return {s["metadata"]["name"].removeprefix("bootstrap-token-") for s in items}


def test_an_id_is_stable_and_its_own() -> None:
    """Golden: a token that a former version made must be found again."""
    assert token_id(MACHINE.uid, 1) == token_id(MACHINE.uid, 1) == "4bfda5"
    ids = {token_id(f"{n}-{MACHINE.uid}", attempt) for n in range(100) for attempt in range(1, 11)}
    assert len(ids) == 1000
    assert all(re.fullmatch("[a-z0-9]{6}", i) for i in ids)


async def test_a_token_as_kubernetes_wants_it(world: World, kube: Kube) -> None:
    token = (await ensure_token(kube, MACHINE, 1, EXPIRES)).get_secret_value()
    assert re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", token)
    secret = await world.kube.get(path())
    assert secret["type"] == "bootstrap.kubernetes.io/token"
    assert secret["metadata"]["annotations"] == {TAG_UID: MACHINE.uid}
    assert await content(world) == {
        "description": "Bootstrap token of machine m-1",
        "token-id": token.partition(".")[0],
        "token-secret": token.partition(".")[2],
        "expiration": "2031-01-01T12:00:00Z",
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
    }


async def test_a_token_lets_in_until_it_is_revoked(world: World, kube: Kube) -> None:
    token = (await ensure_token(kube, MACHINE, 1, EXPIRES)).get_secret_value()
    reviewed = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    assert (await world.kube.call("GET", reviewed, token=token)).status != 401
    await revoke_tokens(kube, MACHINE, 1)
    assert (await world.kube.call("GET", reviewed, token=token)).status == 401


async def test_after_a_crash_the_same_token(world: World, kube: Kube) -> None:
    """User data must be the same byte for byte, or the cloud takes the retried call for another one."""
    first = await ensure_token(kube, MACHINE, 1, EXPIRES)
    again = await ensure_token(kube, MACHINE, 1, EXPIRES)
    assert again == first
    assert await ensure_token(kube, MACHINE, 2, EXPIRES) != first  # a new attempt has its own
    assert len(world.frame.calls("kubernetes", "create secrets")) == 2
    assert world.frame.calls("kubernetes", "patch secrets") == []


async def test_a_lost_reply_makes_no_second_token(world: World, kube: Kube) -> None:
    world.frame.faults.append(FaultRule(operation="create secrets", drop=True))
    with pytest.raises(KubeError) as caught:
        await ensure_token(kube, MACHINE, 1, EXPIRES)
    assert caught.value.status == 0
    token = await ensure_token(kube, MACHINE, 1, EXPIRES)
    assert token.get_secret_value().endswith((await content(world))["token-secret"])
    assert len(await tokens(world)) == 1


async def test_the_first_of_two_creators_counts(world: World, kube: Kube) -> None:
    """The previous attempt of the activity is still under way when the next looks: both see nothing, one gets 409."""
    hidden = FaultRule(operation="get secrets", code="NotFound", status=404)
    first = await ensure_token(kube, MACHINE, 1, EXPIRES)
    world.frame.faults.append(hidden)
    assert await ensure_token(kube, MACHINE, 1, EXPIRES) == first
    assert hidden.hits == 1
    assert [c.error for c in world.frame.calls("kubernetes", "create secrets")] == [None, "AlreadyExists"]


async def test_another_machines_token_is_refused_and_stays(world: World, kube: Kube) -> None:
    """Six characters may clash."""
    await world.kube.create(
        SECRETS,
        {
            "metadata": {"name": path().rpartition("/")[2], "annotations": {TAG_UID: OTHER.uid}},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": token_id(MACHINE.uid, 1), "token-secret": "0123456789abcdef"},
        },
    )
    with pytest.raises(KubeError, match=f"belongs to another machine .{OTHER.uid}") as caught:
        await ensure_token(kube, MACHINE, 1, EXPIRES)
    assert caught.value.status == 409
    assert "0123456789abcdef" not in str(caught.value)
    await ensure_token(kube, MACHINE, 2, EXPIRES)
    await revoke_tokens(kube, MACHINE, 2)
    assert await tokens(world) == {token_id(MACHINE.uid, 1)}


async def test_its_life_is_made_longer_and_never_shorter(world: World, kube: Kube) -> None:
    token = await ensure_token(kube, MACHINE, 1, EXPIRES)
    await ensure_token(kube, MACHINE, 1, EXPIRES - timedelta(minutes=1))
    assert (await content(world))["expiration"] == "2031-01-01T12:00:00Z"
    later = (EXPIRES + timedelta(minutes=1)).astimezone(timezone(timedelta(hours=-5)))
    assert await ensure_token(kube, MACHINE, 1, later) == token
    assert (await content(world))["expiration"] == "2031-01-01T12:01:00Z"
    assert len(world.frame.calls("kubernetes", "patch secrets")) == 1


async def test_a_token_is_kept_while_it_is_there(world: World, kube: Kube) -> None:
    later = EXPIRES + timedelta(minutes=1)
    assert not await keep_token(kube, MACHINE, 1, EXPIRES)
    assert await tokens(world) == set()  # none is made: nobody could use it
    token = await ensure_token(kube, MACHINE, 1, EXPIRES)
    for wanted in (EXPIRES - timedelta(minutes=1), later, EXPIRES):
        assert await keep_token(kube, MACHINE, 1, wanted)
    assert (await content(world))["expiration"] == "2031-01-01T12:01:00Z"
    assert len(world.frame.calls("kubernetes", "patch secrets")) == 1
    assert await ensure_token(kube, MACHINE, 1, EXPIRES) == token
    assert not await keep_token(kube, MACHINE, 2, EXPIRES)


async def test_a_token_that_goes_between_the_read_and_the_renewal_is_gone(world: World, kube: Kube) -> None:
    await ensure_token(kube, MACHINE, 1, EXPIRES)
    later = EXPIRES + timedelta(minutes=1)
    world.frame.faults.append(FaultRule(operation="patch secrets", code="NotFound", status=404))
    assert not await keep_token(kube, MACHINE, 1, later)
    world.frame.faults.append(FaultRule(operation="patch secrets", code="Forbidden", status=403))
    with pytest.raises(KubeError) as refused:
        await keep_token(kube, MACHINE, 1, later)
    assert refused.value.status == 403
    assert await keep_token(kube, MACHINE, 1, later)


async def test_every_attempts_token_is_revoked(world: World, kube: Kube) -> None:
    for attempt in (1, 3):  # the second one never got that far
        await ensure_token(kube, MACHINE, attempt, EXPIRES)
    await ensure_token(kube, OTHER, 1, EXPIRES)
    await revoke_tokens(kube, MACHINE, 3)
    assert await tokens(world) == {token_id(OTHER.uid, 1)}
    await revoke_tokens(kube, MACHINE, 3)  # again, after a crash: nothing left to do
    assert len(world.frame.calls("kubernetes", "delete secrets")) == 2


def test_user_data_is_rendered_plain_and_encoded() -> None:
    token, name = "abcdef.0123456789abcdef", "<<MACHINE_NAME>>"
    encoded = quote("<<BOOTSTRAP_TOKEN>>", safe=""), quote(name, safe="")
    assert encoded == ("%3C%3CBOOTSTRAP_TOKEN%3E%3E", "%3C%3CMACHINE_NAME%3E%3E")  # as Ignition's data URLs have it
    text = f"a <<BOOTSTRAP_TOKEN>> {name} {name} data:,{encoded[0]}%0A{encoded[1]} <<OTHER>>"
    machine = MACHINE.model_copy(update={"name": "m 1"})
    rendered = render(SecretStr(text), machine, SecretStr(token))
    assert rendered.get_secret_value() == f"a {token} m 1 m 1 data:,{token}%0Am%201 <<OTHER>>"
    assert token not in repr(rendered)
