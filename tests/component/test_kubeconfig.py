"""A kubeconfig's credentials while they rotate, on a simulated API server that knows several tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apiserver.simulated import ADMIN_TOKEN, NODES, VERSION, KubeTarget, Plugin, serving, write_kubeconfig
from kubernetes.aio.config import incluster_config

from activities.kube import credentialplugin, kubeconfig
from activities.kube.client import Kube, KubeError
from resources.errors import ErrorClass
from resources.settings import ClusterSettings, Settings, SettingsError
from simulator.frame import Frame
from simulator.kube import KubeApi
from starter.sdk.errors import HostlerError
from starter.sdk.kube import connect_cluster

OLD, NEW = "the-old-token-of-this-test", "the-new-token-of-this-test"
CANARY = "s3cr3t-c4n4ry-0123456789"


@dataclass
class Server:
    api: KubeApi
    target: KubeTarget
    frame: Frame

    def rotate(self) -> None:
        self.api.admit_token(NEW)
        self.api.revoke_token(OLD)

    @property
    def refusals(self) -> int:
        return sum(call.status == 401 for call in self.frame.calls())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server that knows the token OLD."""
    frame = Frame()
    api = KubeApi(frame, admin_token=ADMIN_TOKEN)
    api.admit_token(OLD)
    async with serving(api) as target:
        yield Server(api, target, frame)


@asynccontextmanager
async def connected(file: Path | None, settings: ClusterSettings | None = None) -> AsyncIterator[Kube]:
    kube = await Kube.connect("demo", settings or ClusterSettings(), str(file) if file else None)
    try:
        yield kube
    finally:
        await kube.close()


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    plugin = Plugin(tmp_path)
    plugin.gives(token=OLD)
    return plugin


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read before every request, and plugins may run as often."""
    monkeypatch.setattr(kubeconfig, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(kubeconfig, "LOOK_SOON", 0.0)


# -- after a 401 ------------------------------------------------------------------------------------------------------


async def test_a_token_file_that_was_rotated(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{OLD}\n")  # a line, as an editor leaves it
    async with connected(write_kubeconfig(tmp_path / "kubeconfig", server.target, {"tokenFile": "token"})) as kube:
        await kube.get(NODES)
        server.rotate()
        (tmp_path / "token").write_text(NEW)
        await asyncio.gather(*(kube.get(NODES) for _ in range(5)))
        assert 1 <= server.refusals <= 5
        await kube.get(NODES)
        assert 1 <= server.refusals <= 5


async def test_a_rotated_kubeconfig_is_read_again(server: Server, tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path / "kubeconfig", server.target, {"token": OLD})
    async with connected(file) as kube:
        await kube.get(NODES)
        server.rotate()
        write_kubeconfig(file, server.target, {"token": NEW})
        await kube.get(NODES)
        assert server.refusals == 1


async def test_a_plugin_runs_once_for_many_refusals(
    server: Server, tmp_path: Path, plugin: Plugin, often: None
) -> None:
    async with connected(write_kubeconfig(tmp_path / "kubeconfig", server.target, plugin.user())) as kube:
        await kube.get(NODES)
        server.rotate()
        plugin.gives(token=NEW)
        await asyncio.gather(*(kube.get(NODES) for _ in range(5)))
        assert len(plugin.asked) == 2
        assert plugin.asked[0] == {"apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": False}}


async def test_a_request_that_is_refused_for_good_is_no_storm_of_plugins(
    server: Server, tmp_path: Path, plugin: Plugin
) -> None:
    """There is one more run, whoever asks; then comes the server's own answer."""
    async with connected(write_kubeconfig(tmp_path / "kubeconfig", server.target, plugin.user())) as kube:
        await kube.get(NODES)
        server.api.revoke_token(OLD)
        kubeconfig_runs = len(plugin.asked)
        for _ in range(3):
            with pytest.raises(KubeError) as e:
                await kube.get(NODES)
            assert (e.value.status, e.value.error_class, e.value.refused) == (401, ErrorClass.AUTH, True)
        assert len(plugin.asked) <= kubeconfig_runs + 1


async def test_a_watch_begins_with_fresh_credentials_and_outlives_the_old_ones(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(OLD)
    async with connected(write_kubeconfig(tmp_path / "kubeconfig", server.target, {"tokenFile": "token"})) as kube:
        version = (await kube.get(NODES))["metadata"]["resourceVersion"]
        server.rotate()
        (tmp_path / "token").write_text(NEW)
        events = kube.watch(NODES, 20.0, resourceVersion=version)
        first = asyncio.ensure_future(anext(events))
        await server.target.create(NODES, {"metadata": {"name": "n-1"}})
        assert (await first)["object"]["metadata"]["name"] == "n-1"
        server.api.revoke_token(NEW)
        await server.target.create(NODES, {"metadata": {"name": "n-2"}})
        assert (await anext(events))["object"]["metadata"]["name"] == "n-2"
        await events.aclose()  # type: ignore[attr-defined]


async def test_the_command_line_outlives_a_token_too(
    server: Server, tmp_path: Path, plugin: Plugin, often: None
) -> None:
    write_kubeconfig(tmp_path / "kubeconfig", server.target, plugin.user())
    settings = Settings(clusters={"demo": ClusterSettings(kubeconfig=tmp_path / "kubeconfig")})
    async with connect_cluster(settings, "demo") as cluster:
        assert (await cluster.get(NODES))["items"] == []
        server.rotate()
        plugin.gives(token=NEW)
        assert (await cluster.get(NODES))["items"] == []
    plugin.does("raise SystemExit(3)")
    with pytest.raises(HostlerError, match=r"clusters\.demo\.kubeconfig.*exit code 3"):
        async with connect_cluster(settings, "demo"):
            pass


# -- in time ----------------------------------------------------------------------------------------------------------


async def test_files_are_read_again_before_anything_is_refused(server: Server, tmp_path: Path, often: None) -> None:
    (tmp_path / "token").write_text(OLD)
    async with connected(write_kubeconfig(tmp_path / "kubeconfig", server.target, {"tokenFile": "token"})) as kube:
        (tmp_path / "token").write_text(NEW)
        server.rotate()
        await kube.get(NODES)
        assert server.refusals == 0


async def test_a_plugin_runs_again_when_its_answer_expires(
    server: Server, tmp_path: Path, plugin: Plugin, often: None
) -> None:
    plugin.gives(datetime.now(UTC) + timedelta(hours=1), token=OLD)
    async with connected(write_kubeconfig(tmp_path / "kubeconfig", server.target, plugin.user())) as kube:
        for _ in range(3):
            await kube.get(NODES)
        assert len(plugin.asked) == 1
    plugin.gives(datetime.now(UTC) - timedelta(seconds=1), token=OLD)
    async with connected(tmp_path / "kubeconfig") as kube:
        plugin.gives(datetime.now(UTC) + timedelta(hours=1), token=NEW)
        server.rotate()
        await kube.get(NODES)
        assert server.refusals == 0
        assert len(plugin.asked) == 3


async def test_in_cluster_access_rotates(
    server: Server, tmp_path: Path, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = server.target.url.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(server.target.ca_file))
    (tmp_path / "token").write_text(OLD)
    async with connected(None, ClusterSettings(in_cluster=True)) as kube:
        await kube.get(NODES)
        server.rotate()
        (tmp_path / "token").write_text(NEW)
        await kube.get(NODES)
        assert server.refusals == 0


async def test_half_a_rotation_changes_nothing(server: Server, tmp_path: Path, often: None) -> None:
    """A token file that is empty for a moment, a kubeconfig that is not written to its end: what was read serves."""
    (tmp_path / "token").write_text(OLD)
    file = write_kubeconfig(tmp_path / "kubeconfig", server.target, {"tokenFile": "token"})
    whole = file.read_text()
    async with connected(file) as kube:
        for half in ("", "{", "[]", "clusters: 1", whole[:150]):
            file.write_text(half)
            await kube.get(NODES)
        file.write_text(whole)
        (tmp_path / "token").write_text("")
        await kube.get(NODES)
        (tmp_path / "token").unlink()
        await kube.get(NODES)
        server.rotate()
        with pytest.raises(KubeError, match="token") as e:
            await kube.get(NODES)
        assert e.value.error_class == ErrorClass.AUTH
        (tmp_path / "token").write_text(NEW)
        await kube.get(NODES)


async def test_another_authority(server: Server, tmp_path: Path) -> None:
    """The server's certificate is of a new authority: the file is read at once, and nothing is unreachable."""
    authority = tmp_path / "ca.crt"
    authority.write_text(KubeApi(Frame(), admin_token="another").ca_pem)
    user = {"token": OLD}
    file = write_kubeconfig(tmp_path / "kubeconfig", server.target, user, **{"certificate-authority": str(authority)})
    async with connected(file) as kube:
        with pytest.raises(KubeError) as e:
            await kube.get(NODES)
        assert e.value.status == 0
        authority.write_text(server.target.ca_file.read_text())
        await kube.get(NODES)


async def test_a_watch_outlives_the_client_it_began_with(server: Server, tmp_path: Path, often: None) -> None:
    """Another server, proxy or certificate makes another client."""
    file = write_kubeconfig(tmp_path / "kubeconfig", server.target, {"token": OLD})
    async with connected(file) as kube:
        version = (await kube.get(NODES))["metadata"]["resourceVersion"]
        events = kube.watch(NODES, 20.0, resourceVersion=version)
        await server.target.create(NODES, {"metadata": {"name": "n-1"}})
        assert (await anext(events))["object"]["metadata"]["name"] == "n-1"
        url = server.target.url.replace("127.0.0.1", "localhost")
        write_kubeconfig(file, server.target, {"token": NEW}, server=url)
        server.rotate()
        await kube.get(NODES)
        await server.target.create(NODES, {"metadata": {"name": "n-2"}})
        assert (await anext(events))["object"]["metadata"]["name"] == "n-2"
        await events.aclose()  # type: ignore[attr-defined]


# -- plugins that give nothing ----------------------------------------------------------------------------------------

SAYS = f"import time; sys.stderr.write('no role: token={CANARY}\\n'); "


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (SAYS + "sys.exit(2)", r"failed with exit code 2: no role: token=\*\*\*$"),
        ("sys.exit(2)", "exit code 2: it said nothing"),
        (f"print('{CANARY}')", "not an ExecCredential"),
        ("print('[]')", "not an ExecCredential"),
        ("while True: print('x' * 65536)", "more than 1048576 bytes"),
        (SAYS + "time.sleep(600)", "not answered within 2 s, and was killed"),
        ("import time; time.sleep(600)", "not answered within 2 s, and was killed"),
    ],
)
async def test_a_plugin_that_fails(
    server: Server, tmp_path: Path, plugin: Plugin, monkeypatch: pytest.MonkeyPatch, does: str, words: str
) -> None:
    monkeypatch.setattr(credentialplugin, "PATIENCE", 2.0)
    plugin.does(does)
    file = write_kubeconfig(tmp_path / "kubeconfig", server.target, plugin.user())
    turns: list[float] = []
    turning = asyncio.create_task(_turn(turns))
    with pytest.raises(KubeError, match=words) as e:
        await Kube.connect("demo", ClusterSettings(), str(file))
    turning.cancel()
    assert len(turns) > 1, "the event loop was held up from the plugin's start to its end"
    assert e.value.error_class == ErrorClass.AUTH
    assert CANARY not in e.value.message
    assert "python" in e.value.message


async def _turn(turns: list[float]) -> None:
    """Notes each turn of the event loop: what runs in it beside a plugin."""
    while True:
        turns.append(time.monotonic())
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "neither a token nor a certificate"),
        ({"clientCertificateData": CANARY}, "certificate without a key"),
        ({"token": CANARY, "expirationTimestamp": "tomorrow"}, "not an ExecCredential"),
    ],
)
async def test_an_answer_that_is_none(
    server: Server, tmp_path: Path, plugin: Plugin, status: dict[str, str], words: str
) -> None:
    plugin.gives(**status)
    with pytest.raises(KubeError, match=words) as e:
        await Kube.connect(
            "demo",
            ClusterSettings(),
            str(write_kubeconfig(tmp_path / "kubeconfig", server.target, plugin.user())),
        )
    assert CANARY not in e.value.message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1 is not supported"),
        ({"interactiveMode": "Always"}, "wants to prompt a user"),
        ({"command": "no-such-program", "installHint": "install it"}, "no-such-program cannot be run.*; install it"),
        ({"command": ""}, "no command"),
    ],
)
async def test_an_exec_that_cannot_be_run(
    server: Server, tmp_path: Path, plugin: Plugin, fields: dict[str, str], words: str
) -> None:
    with pytest.raises(KubeError, match=words):
        await Kube.connect(
            "demo",
            ClusterSettings(),
            str(write_kubeconfig(tmp_path / "kubeconfig", server.target, plugin.user(**fields))),
        )
    assert plugin.asked == []


async def test_a_plugin_that_fails_later_is_an_error_of_who_needs_it(
    server: Server, tmp_path: Path, plugin: Plugin, often: None
) -> None:
    """As long as the server takes the old credentials, nobody hears of it."""
    plugin.gives(datetime.now(UTC) - timedelta(seconds=1), token=OLD)
    async with connected(write_kubeconfig(tmp_path / "kubeconfig", server.target, plugin.user())) as kube:
        plugin.does(SAYS + "sys.exit(2)")
        await kube.get(NODES)
        server.rotate()
        with pytest.raises(KubeError, match="exit code 2: no role") as e:
            await kube.get(NODES)
        assert e.value.refused
        plugin.gives(token=NEW)
        await kube.get(NODES)


async def test_what_a_plugin_is_told(server: Server, tmp_path: Path, plugin: Plugin) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "us"}}
    file = write_kubeconfig(
        tmp_path / "kubeconfig", server.target, plugin.user(provideClusterInfo=True), extensions=[extension]
    )
    async with connected(file):
        pass
    (asked,) = plugin.asked
    cluster = asked["spec"]["cluster"]
    assert (cluster["server"], cluster["config"]) == (server.target.url, {"audience": "us"})
    assert base64.b64decode(cluster["certificate-authority-data"]).decode() == server.target.ca_file.read_text()


# -- what a kubeconfig says -------------------------------------------------------------------------------------------


async def test_a_token_file_goes_before_a_token(server: Server, tmp_path: Path) -> None:
    """As in client-go."""
    (tmp_path / "token").write_text(OLD)
    user = {"token": "none", "tokenFile": "token"}
    async with connected(write_kubeconfig(tmp_path / "kubeconfig", server.target, user)) as kube:
        await kube.get(NODES)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"users: [{{{CANARY}", "not YAML"),
        (CANARY, "not a kubeconfig"),
        ("{contexts: [], clusters: [], users: []}", "has no current-context: set one, or clusters.demo.context"),
        ("{current-context: x, contexts: [], clusters: [], users: []}", "x in .*contexts"),
    ],
)
async def test_a_kubeconfig_that_is_none(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)
    with pytest.raises(SettingsError, match=words) as e:
        await Kube.connect("demo", ClusterSettings(), str(file))
    assert CANARY not in str(e.value)
    with pytest.raises(SettingsError, match=r"another \(clusters\.demo\.kubeconfig\): there is no such file"):
        await Kube.connect("demo", ClusterSettings(), str(tmp_path / "another"))
    with pytest.raises(SettingsError, match=r"kubeconfig\): cannot be read: Is a directory$"):
        await Kube.connect("demo", ClusterSettings(), str(tmp_path))


@pytest.mark.parametrize("user", [{"token": OLD}, {"username": "u", "password": CANARY}])
async def test_credentials_are_not_sent_in_clear(tmp_path: Path, user: dict[str, str]) -> None:
    file = tmp_path / "kubeconfig"

    def write(server: str, user: dict[str, str]) -> None:
        content = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": server}}],
            "users": [{"name": "x", "user": user}],
        }
        file.write_text(json.dumps(content))

    write("http://api.example:8080", user)
    with pytest.raises(SettingsError, match=r"api\.example:8080 is not https, and credentials would be sent") as e:
        await Kube.connect("demo", ClusterSettings(), str(file))
    assert CANARY not in str(e.value)
    for server, given in (("https://api.example", user), ("http://127.0.0.1:1", user), ("http://api.example", {})):
        write(server, given)
        async with connected(file):
            pass
