"""Templates become MachineConfigs per role: what of Go templates is needed, which layer wins, and what is said of a
template that is wrong. M-TC… are the cases of upstream's tests."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from machine_configs.objects import GOLDEN, SHIPPED, controller_config, named, readable
from paths import ROOT

from planners.machine_config import layers, templates
from planners.machine_config.gotemplate import ConfigTemplateError, Variables, expand
from planners.machine_config.ignition import content_of, file_of
from resources.machine_config.templates import TemplatesError, folder, shipped

A = "worker/00-worker/_base/files/a.yaml"
FILE = 'path: "/etc/a"\nmode: 0644\ncontents:\n  inline: |\n    '


def made(given: dict[str, str], **spec: Any) -> list[dict[str, Any]]:
    return templates.render(given, controller_config(**spec), "0.1.0")


def text_of(config: dict[str, Any], path: str = "/etc/a") -> str:
    file = file_of(config["spec"]["config"], path)
    assert file is not None
    return (content_of(file["contents"]) or b"").decode()


# -- Go templates -----------------------------------------------------------------------------------------------------

VARIABLES = Variables(
    {
        "clusterDNSIP": "10.0.0.10",
        "dns": {"spec": {"baseDomain": "example.com"}},
        "etcdCAData": "ca",
        "images": {"a-1": "x", "b": "y"},
        "ipAddresses": ["1", "2"],
        "osImageURL": "os",
        "proxy": {"httpProxy": "http://proxy:3128"},
        "text": "one\ntwo\n",
        "nothing": "",
    }
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{.EtcdCAData}} {{.etcdCAData}} {{.ClusterDNSIP}} {{.OSImageURL}}", "ca ca 10.0.0.10 os"),
        ("{{.DNS.Spec.BaseDomain}}", "example.com"),
        ("{{if .Nothing}}a{{else if .Text}}b{{end}}", "b"),
        ("{{if and .Text (not .Nothing)}}a{{- end }}", "a"),
        ("{{range $k, $v := .Images}}{{$k}}={{$v}} {{end}}", "a-1=x b=y "),
        ('{{index .Images "a-1"}}', "x"),
        ("{{range .IPAddresses}}{{.}},{{end}}{{len .IPAddresses}}", "1,2,2"),
        ('{{join .IPAddresses " "}}', "1 2"),
        ("{{indent 2 .Text}}.", "  one\n  two."),
        ("{{.Text | toString | indent 1}}", " one\n two"),
        ("a {{- /* words */ -}} b", "ab"),
        ('{{printf "%s:%d" .Proxy.HTTPProxy 1}}', "http://proxy:3128:1"),
        ("{{urlHost .Proxy.HTTPProxy}} {{urlPort .Proxy.HTTPProxy}} {{urlPort `https://a`}}", "proxy 3128 443"),
        ('{{$x := "1"}}{{with .EtcdCAData}}{{.}}{{$x}}{{end}}', "ca1"),
        ('{{skip "index"}} {{skip "_a1"}}', "{{.index}} {{._a1}}"),  # M-TC2
    ],
)
def test_what_a_template_may_say(text: str, found: str) -> None:
    assert expand("a", text, VARIABLES) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "\n\n{{.EtcdCaDat}}",
            "a.yaml:3: the variable EtcdCaDat is missing: add etcdCaDat to the spec of the Controller",
        ),
        ("{{.EtcdCaDat}}", r"; did you mean EtcdCAData\?$"),
        ("\n{{.DNS.Spec.Zone}}", "a.yaml:2: the variable Zone is missing"),
        ("\n{{if .Nothing}", "a.yaml:2: "),
        ("{{end}}", "a.yaml:1: "),
        (
            "\n{{cloudProvider .}}",
            "a.yaml:2: function 'cloudProvider' not defined; there are Go's own and indent, join",
        ),
        ('{{skip ""}}', "a.yaml:1: function 'skip' failed: '' is not a name"),  # M-TC2
        ('{{skip "2two"}}', "'2two' is not a name"),  # M-TC2
        ('{{skip "test index"}}', "'test index' is not a name"),  # M-TC2
        ("{{.EtcdCAData.__class__}}", "a.yaml:1: attribute '__class__' is not allowed"),
        ("{{.EtcdCAData.upper}}", "a.yaml:1: method 'upper' is not allowed"),
        ('{{define "t"}}{{template "t"}}{{end}}{{template "t"}}', "a.yaml:1: template-depth budget exceeded"),
    ],
)
def test_what_is_wrong_has_a_file_and_a_line(text: str, words: str) -> None:
    with pytest.raises(ConfigTemplateError, match=words):
        expand("a.yaml", text, VARIABLES)


# -- layers -----------------------------------------------------------------------------------------------------------


def infra(platform: str, topology: str = "", **status: Any) -> dict[str, Any]:
    return {"infra": {"status": {"platformStatus": {"type": platform, **status}, "controlPlaneTopology": topology}}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"platform": "Moon"}, ["_base", "moon"]),  # M-TC5
        ({}, ["_base", "none"]),
        ({"platform": "_bad_"}, ["_base", "none"]),  # M-TC1
        (infra("BareMetal"), ["_base", "on-prem", "baremetal"]),  # M-TC5
        (infra("Moon", "SingleReplica"), ["_base", "moon", "sno"]),  # M-TC5
        (infra("BareMetal", "DualReplica"), ["_base", "on-prem", "baremetal", "two-node-with-fencing"]),  # M-TC5
        (
            infra("Moon", moon={"cloudLoadBalancerConfig": {"dnsType": "ClusterHosted"}}),
            ["_base", "cloud-platform-alt-dns", "moon"],
        ),
    ],
)
def test_layers(spec: Any, found: list[str]) -> None:
    assert layers.layers(spec, ["moon", "baremetal"]) == found


def test_no_layer_is_a_platform() -> None:  # M-TC1
    with pytest.raises(ConfigTemplateError, match=r"spec.platform: _base unsupported"):
        made({A: FILE + "x"}, platform="_base")


def test_a_later_layer_wins_and_an_empty_file_takes_away() -> None:
    given = {
        "common/_base/files/a.yaml": FILE + "common",
        "common/_base/files/b.yaml": FILE.replace("/etc/a", "/etc/b") + "common",
        "common/moon/files/c.yaml": FILE.replace("/etc/a", "/etc/c") + "common",
        "common/mars/files/d.yaml": FILE.replace("/etc/a", "/etc/d") + "never",
        A: FILE + "role",
        "worker/00-worker/moon/files/b.yaml": "",
        "worker/01-worker-x/_base/files/a.yaml": FILE + "second",
        "worker/01-worker-x/moon/files/a.yaml": "{{if false}}x{{end}}\n",
        "worker/01-worker-x/_base/extensions/usbguard": "yes",
    }
    first, second = made(given, platform="moon")
    assert [f["path"] for f in first["spec"]["config"]["storage"]["files"]] == ["/etc/a", "/etc/c"]
    assert text_of(first) == "role"
    assert "storage" not in second["spec"]["config"]  # only blanks are left: no file
    assert second["spec"]["extensions"] == ["usbguard"]


@pytest.mark.parametrize("path", ["worker/a.yaml", "worker/00-worker/_base/fils/a.yaml", "common/files/a.yaml"])
def test_what_is_at_no_templates_place_is_named(path: str) -> None:
    with pytest.raises(
        ConfigTemplateError, match=re.escape(f"{path}: it is not at a template's place, <role>/<name>/<layer>")
    ):
        made({path: FILE + "x"})


# -- MachineConfigs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FILE + "x\n  b: c: d", f"{A}:6: not YAML"),
        ("a\n---\nb", f"{A}: a template is one table; this one makes 2 documents"),
        ("- a", f"{A}: a template is one table"),
        (FILE.replace("mode: 0644", "mode: 01644") + "x", f"{A}: mode: 932"),
        ('path: "/a"\ncontents: {inline: 1}', f"{A}: contents.inline is text"),
        ('path: "/a"\ncontents: {inline: "x", source: "data:,"}', f"{A}: contents.inline is text, and stands alone"),
        ('path: "/a"\ncontens: {}', f"{A}: contens: no such field"),
    ],
)
def test_a_template_that_makes_no_file(text: str, words: str) -> None:
    with pytest.raises(ConfigTemplateError, match=re.escape(words)):
        made({A: text})


def test_all_wrong_templates_are_named() -> None:
    given = {A: "{{.X}}", "master/00-master/_base/files/b.yaml": "{{.Y}}"}
    with pytest.raises(ConfigTemplateError, match=r"b\.yaml:1: the variable Y .*; worker/.*a\.yaml:1: the variable X"):
        made(given)


def test_two_templates_for_one_path_are_refused() -> None:
    with pytest.raises(
        ConfigTemplateError, match=r"worker/00-worker: storage.files\[1\].path: /etc/a is already given"
    ):
        made({A: FILE + "x", A.replace("a.yaml", "b.yaml"): FILE + "y"})


def test_bytes_are_pem_or_base64() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nx\n"
    [config] = made({A: FILE + "{{indent 0 .RootCAData}}"}, rootCAData=pem.splitlines()[0])
    assert text_of(config) == "-----BEGIN CERTIFICATE-----"
    with pytest.raises(ConfigTemplateError, match=r"spec.etcdCAData: it is neither PEM nor base64"):
        made({A: FILE + "x"}, etcdCAData="%%%")


def test_a_field_of_ones_own_is_found() -> None:
    [config] = made({A: FILE + "{{.MyTeam.Name}} {{.Proxy}}"}, myTeam={"name": "x"})
    assert text_of(config) == "x map[]"  # and what a cluster need not have is empty


# -- those that come with Hostler -------------------------------------------------------------------------------------

SAMPLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "proxy": {"proxy": {"httpProxy": "http://p:1", "noProxy": ".svc"}, "platform": "vsphere"},
    "single": infra("None", "SingleReplica"),
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_role_has_its_kubelet(sample: str) -> None:  # M-TC3
    found = made(SHIPPED, **SAMPLES[sample])
    for role in ("master", "worker"):
        mine = [c for c in found if c["metadata"]["labels"] == {"machineconfiguration.openshift.io/role": role}]
        assert [c["metadata"]["name"] for c in mine] == [f"00-{role}", f"01-{role}-kubelet"]
        paths = [f["path"] for c in mine for f in c["spec"]["config"]["storage"]["files"]]
        assert {"/var/lib/kubelet/config.json", "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/ca.crt"} <= {*paths}
        assert ("/etc/systemd/system/kubelet.service.d/10-proxy.conf" in paths) == (sample == "proxy")
        assert [u["name"] for c in mine for u in c["spec"]["config"].get("systemd", {}).get("units", ())] == [
            "kubelet.service"
        ]
    assert len(found) == 4


def test_the_seeds_variable_is_filled_in() -> None:
    master = named(made(SHIPPED), "00-master")
    etcd = text_of(master, "/etc/kubernetes/static-pod-resources/etcd-certs/ca.crt")
    assert etcd == "-----BEGIN CERTIFICATE-----\netcd\n-----END CERTIFICATE-----\n"
    with pytest.raises(
        ConfigTemplateError,
        match=r"^master/00-master/_base/files/etcd-ca\.yaml:5: the variable EtcdCAData is missing: add etcdCAData to",
    ):
        made(SHIPPED, etcdCAData=None)


def test_credentials_of_registries_are_on_every_node() -> None:
    path = "/var/lib/kubelet/config.json"
    given = '{"auths": {"r": {}}}'
    for written in (given, base64.b64encode(given.encode()).decode()):
        found = made(SHIPPED, internalRegistryPullSecret=written)
        assert text_of(named(found, "00-worker"), path) == f"{given}\n"
    without = made(SHIPPED, internalRegistryPullSecret=None)
    assert file_of(named(without, "00-worker")["spec"]["config"], path) is None  # what a node has is not emptied
    with pytest.raises(ConfigTemplateError, match=r"spec\.pullSecret: no Secret is read for templates; write the"):
        made(SHIPPED, pullSecret={"name": "pull-secret"})


@pytest.mark.parametrize("name", ["00-master", "01-master-kubelet", "00-worker", "01-worker-kubelet"])
def test_what_the_templates_make_is_as_it_was(name: str) -> None:
    """A change of these files is a reboot of every node: it is to be seen in a review."""
    golden = GOLDEN / f"{name}.yaml"
    assert readable(named(made(SHIPPED), name)) == golden.read_text()


def test_templates_are_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "worker/00-worker/_base/files").mkdir(parents=True)
    (tmp_path / A).write_text("x")
    (tmp_path / "README.md").write_text("words")
    (tmp_path / "worker/.swp").write_text("an editor's")
    assert folder(tmp_path) == {A: "x"}
    assert folder(ROOT / "templates") == shipped()
    (tmp_path / A).write_bytes(b"\xff")
    with pytest.raises(TemplatesError, match=re.escape(f"{A}: it cannot be read as text")):
        folder(tmp_path)
    with pytest.raises(TemplatesError, match=r"there is no such folder; name one at machineConfigs.templates"):
        folder(tmp_path / "none")


def test_a_digest_tells_templates_apart() -> None:
    assert templates.digest({"a": "b", "c": "d"}) == templates.digest({"c": "d", "a": "b"})
    assert templates.digest({"a": "bc"}) != templates.digest({"ab": "c"}) != templates.digest({})
