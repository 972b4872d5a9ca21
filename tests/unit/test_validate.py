"""What is refused where it is written: unknown fields (`--validate`), and what Kubernetes would refuse later."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT

from resources import apimachinery, gardener
from resources.judgement import message
from resources.machine.manifest import MachineSpec
from resources.machine.state import ApplyIntent, ClassSnapshot, MachineState
from resources.manifests import KINDS, ManifestError, complaints, load_manifests
from resources.names import PRESERVE_ANNOTATION, PRIORITY_ANNOTATION
from resources.redact import hide_secrets
from resources.settings import SettingsError, load_settings
from resources.validation import Validate
from starter.commands.files import read

API = "machine.sapcloud.io/v1alpha1"
MACHINE: dict[str, Any] = {
    "apiVersion": API,
    "kind": "Machine",
    "metadata": {"name": "m-1"},
    "spec": {"class": {"name": "c-1"}},
}
POOL: dict[str, Any] = {
    "apiVersion": API,
    "kind": "MachineDeployment",
    "metadata": {"name": "p"},
    "spec": {"template": {"spec": {"class": {"name": "c-1"}}}},
}
SECRET: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
WORKERS: dict[str, Any] = yaml.safe_load((ROOT / "examples/workerpool/aws.yaml").read_text())
WAY_OUT = "f.yaml: nothing is sent; correct the unknown fields, or go on without them: --validate=warn"


def put(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with this value at the path."""
    changed = copy.deepcopy(manifest)
    *above, last = path.split(".") if " " not in path else path.split(" ")
    here = changed
    for step in above:
        here = here.setdefault(step, {})
    here[last] = value
    return changed


def lines(*manifests: dict[str, Any], validate: Validate = Validate.STRICT) -> list[str]:
    """What is refused, one line each; [] if nothing is."""
    try:
        load_manifests(yaml.safe_dump_all(manifests), "f.yaml", validate)
    except ManifestError as e:
        return str(e).split("\n")
    return []


def warnings(*manifests: dict[str, Any], validate: Validate = Validate.STRICT) -> list[str]:
    return load_manifests(yaml.safe_dump_all(manifests), "f.yaml", validate).warnings


# -- unknown fields ---------------------------------------------------------------------------------------------------

TYPOS = put(put(POOL, "spec.replica", 3), "spec.strategy.rollingUpdate.pauseAftr", 1)
SAID = [
    "f.yaml (document 1): MachineDeployment p: spec.replica: unknown field; did you mean replicas or repair?",
    "f.yaml (document 1): MachineDeployment p: spec.strategy.rollingUpdate.pauseAftr: unknown field; did you mean "
    "pauseAfter?",
]


def test_strict_is_the_default_and_refuses() -> None:
    """A canary that is misspelled is none, and `replica: 3` is no number of machines."""
    assert lines(TYPOS) == [*SAID, WAY_OUT]


def test_warn_says_it_and_goes_on() -> None:
    assert warnings(TYPOS, validate=Validate.WARN) == SAID
    (pool,) = load_manifests(yaml.safe_dump(TYPOS), "f.yaml", Validate.WARN).pools
    assert pool.spec.replicas == 0


def test_warn_says_it_beside_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One look shows all that is to be corrected, also where another file is the one that is wrong."""
    typos, wrong = tmp_path / "typos.yaml", tmp_path / "wrong.yaml"
    typos.write_text(yaml.safe_dump(put(POOL, "spec.replica", 3)))
    wrong.write_text(yaml.safe_dump(put(put(POOL, "spec.repair.max", 1), "spec.replicas", -1)))
    with pytest.raises(ManifestError, match=r"spec\.replicas"):
        read([str(typos), str(wrong)], Validate.WARN)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("(document 1): ")[2].partition(";")[0] for line in said] == [
        "MachineDeployment p: spec.replica: unknown field",
        "MachineDeployment p: spec.repair.max: unknown field",
    ]
    with pytest.raises(ManifestError):
        read([str(typos), str(wrong)], Validate.IGNORE)
    assert capsys.readouterr().err == ""


def test_ignore_is_silent() -> None:
    assert warnings(TYPOS, validate=Validate.IGNORE) == []
    # … about names, not about what they say
    assert lines(put(TYPOS, "spec.replicas", -1), validate=Validate.IGNORE) != []


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        *((str(v), v) for v in Validate),
        ("true", Validate.STRICT),
        ("false", Validate.IGNORE),
    ],
)
def test_kubectls_words(word: str, meaning: Validate) -> None:
    assert Validate.of(word) is meaning


def test_another_word_is_none() -> None:
    with pytest.raises(ValueError, match="strickt"):
        Validate.of("strickt")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (
            put(POOL, "spec.pauseAfter", 1),
            "spec.pauseAfter: unknown field; it belongs under spec.strategy.rollingUpdate",
        ),
        (put(POOL, "spec.template.drainTimeout", "1h"), "it belongs under spec.template.spec"),
        (
            put(MACHINE, "spec.nodeTemplate.spec.taints", [{"key": "a", "efect": "NoSchedule"}]),
            "taints[0].efect: unknown",
        ),
        (put(MACHINE, "sepc", {}), "sepc: unknown field; did you mean spec?"),
        (put(MACHINE, "spec.zzz", 1), "spec.zzz: unknown field"),
        (put(SECRET, "datum", {}), "datum: unknown field; did you mean data?"),
        (put(MACHINE, "spec x\x1b[2J", 1), r"spec.x\x1b[2J: unknown field"),
    ],
)
def test_what_was_meant(manifest: dict[str, Any], words: str) -> None:
    assert any(words in line for line in lines(manifest)), lines(manifest)


def test_everything_of_a_file_is_said_at_once() -> None:
    """Every document is judged, whatever else is wrong with it, and no other one is taken."""
    wrong = put(put(MACHINE, "sepc", {}), "spec", None)
    assert lines(put(POOL, "spec.replica", 3), wrong, {"kind": "Machin"}, put(MACHINE, "spec.healthTimeout", "1x")) == [
        "f.yaml (document 2): Machine m-1: spec: not a mapping: write fields, each as `name: value`",
        "f.yaml (document 3): kind 'Machin' is not known; the known kinds are "
        f"{', '.join(sorted(KINDS))}; did you mean Machine or MachineClass or MachineConfig?",
        "f.yaml (document 4): Machine m-1: spec.healthTimeout: '1x' is not a duration; write it like 20m, 1h30m or 90s",
        SAID[0],
        "f.yaml (document 2): Machine m-1: sepc: unknown field; did you mean spec?",
        WAY_OUT,
    ]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("spec.paused", "yes", "write true or false"),
        ("spec.hibernated", 1, "write true or false"),
        ("spec.replicas", "3", "not a whole number"),
        ("spec.replicas", True, "not a whole number"),
        ("spec.minReadySeconds", 3.0, "not a whole number"),
        ("spec.template.spec.drainTimeout", 300, "write 300s"),
        ("spec.template.spec.disableHealthTimeout", "off", "write true or false"),
        ("spec.machinePreserveTimeout", 1.5, "write 1.5s"),
        ("spec.machinePreserveTimeout", "0s", "must be more than 0 seconds"),
        ("spec.autoPreserveFailedMax", -1, "must be at least 0"),
    ],
)
def test_a_value_of_another_type_is_refused_as_an_api_server_refuses_it(path: str, value: Any, words: str) -> None:
    for how in Validate:
        (line,) = lines(put(POOL, path, value), validate=how)
        assert line.startswith(f"f.yaml (document 1): MachineDeployment p: {path}: ")
        assert words in line


def test_values_that_may_have_several_types_may_have_them() -> None:
    text = put(put(POOL, "spec.strategy.rollingUpdate.maxSurge", "20%"), "spec.repair", {"maxConcurrent": "2"})
    assert warnings(put(text, "spec.template.spec.nodeConditions", "A,B")) == []


def test_names_labels_and_fields_are_said_at_once() -> None:
    """One round, and not one for each layer that judges."""
    wrong = put(put(POOL, "metadata.name", "P_1"), "metadata.labels", {"a b": "c"})
    wrong = put(put(wrong, "spec.replicas", -1), "spec.template.spec.class", {"name": "C 1"})
    wrong = put(wrong, "spec.template.spec.nodeTemplate", {"metadata": {"labels": {"x": "y z"}}})
    said = "\n".join(lines(put(wrong, "spec.template.spec.drainTimeout", 300)))
    for path in ("metadata.name", "metadata.labels", "spec.replicas", "spec.template.spec.class.name"):
        assert said.count(f": {path}: ") == 1, said
    assert said.count("spec.template.spec.nodeTemplate.metadata.labels.x: ") == 1
    assert said.count("spec.template.spec.drainTimeout: ") == 1


def test_of_a_provider_spec_too() -> None:
    made = yaml.safe_load((ROOT / "examples/aws/class.yaml").read_text())
    made["providerSpec"] |= {"vmTags": {"aws:x": "1"}, "machineType": 5}
    made["providerSpec"]["blockDevices"][0]["ebs"]["volumeSize"] = "20"
    del made["provider"], made["secretRef"]
    (missing, *_) = [line for line in lines(made) if ": provider: " in line]
    assert "AWS" in missing
    said = "\n".join(lines(made | {"provider": "AWS"}))
    for path in ("secretRef", "providerSpec.machineType", "providerSpec.blockDevices[0].ebs.volumeSize"):
        assert said.count(f": {path}: ") == 1, said
    assert "aws:x" in said


def test_a_class_and_its_provider_spec_are_judged_together() -> None:
    text = (ROOT / "examples/aws/class.yaml").read_text()
    assert load_manifests(text, "f.yaml").warnings == []
    wrong = yaml.safe_load(text)
    wrong["providerSpec"] |= {"kmsKeyId": "k", "machineTyp": "m5.large"}
    wrong["providerSpec"]["blockDevices"][0]["ebs"]["volumeTyp"] = "gp3"
    said = lines(put(wrong, "secretref", {}))
    assert [line.partition("MachineClass demo-m5-large: ")[2] for line in said[:-1]] == [
        "secretref: unknown field; did you mean secretRef or credentialsSecretRef?",
        "providerSpec.blockDevices[0].ebs.volumeTyp: unknown field; did you mean volumeType or volumeSize?",
        "providerSpec.kmsKeyId: unknown field; did you mean kmsKeyID?",
        "providerSpec.machineTyp: unknown field; did you mean machineType?",
    ]


# -- what machine-controller-manager knows ----------------------------------------------------------------------------

# The shape of its own samples (kubernetes/machine_objects, and its provider's for AWS), and of `kubectl get -o yaml`.
MCM = put(
    put(
        put(POOL, "spec.template.spec.class", {"kind": "MachineClass", "name": "test-mc", "namespace": "default"}),
        "spec.template.spec.maxEvictRetries",
        25,
    ),
    "spec.template.metadata.creationTimestamp",
    None,
) | {"status": {"replicas": 3}}
SERVERS = {"uid": "u", "generation": 3, "finalizers": ["machine.sapcloud.io/machine-controller-manager"]}


def test_its_manifests_stay_applicable() -> None:
    manifest = copy.deepcopy(MCM)
    manifest["metadata"] |= SERVERS
    assert [w.partition("MachineDeployment p: ")[2] for w in warnings(manifest)] == [
        "spec.template.spec.class.namespace: without effect: a class is known by its name and cluster",
        "spec.template.spec.maxEvictRetries: without effect: pods are evicted until drainTimeout is over, however "
        "often that is",
    ]
    assert warnings(manifest, validate=Validate.IGNORE) == warnings(manifest)


def test_a_field_that_is_known_elsewhere_is_unknown_here() -> None:
    assert "spec.maxEvictRetries: unknown field" in lines(put(POOL, "spec.maxEvictRetries", 25))[0]
    assert "spec.uid: unknown field" in lines(put(POOL, "spec.uid", "u"))[0]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (
            put(POOL, f"metadata annotations {PRESERVE_ANNOTATION}", "now"),
            f"metadata.annotations.{PRESERVE_ANNOTATION}: without effect here: it counts on a Machine, a pool's",
        ),
        (
            put(MACHINE, f"metadata annotations {PRIORITY_ANNOTATION}", "1"),
            f"metadata.annotations.{PRIORITY_ANNOTATION}: without effect here: it counts in a pool's template",
        ),
        (
            put(POOL, f"spec template metadata annotations {PRIORITY_ANNOTATION}", "first"),
            f"annotations.{PRIORITY_ANNOTATION}: not a number, so it counts as 3",
        ),
        (
            put(MACHINE, "metadata annotations machine.sapcloud.io/awsPlacement", "{}"),
            "awsPlacement: without effect here: it counts in a node template",
        ),
        (
            put(MACHINE, "metadata annotations node.machine.sapcloud.io/effective-creation-timeout", "40m"),
            "effective-creation-timeout: without effect here: write spec.creationTimeout",
        ),
        (
            put(MACHINE, "metadata labels force-deletion", "True"),
            "metadata.labels.force-deletion: without effect: `hostler delete machine NAME --force`",
        ),
        (
            put(MACHINE, f"metadata annotations {PRESERVE_ANNOTATION}", gardener.AUTO_PRESERVED),
            "auto-preserved is MCM's own mark, no wish: ignored",
        ),
    ],
)
def test_what_it_would_act_on_is_said(manifest: dict[str, Any], words: str) -> None:
    (line,) = warnings(manifest)
    assert words in line


@pytest.mark.parametrize(
    "manifest",
    [
        put(MACHINE, f"metadata annotations {PRESERVE_ANNOTATION}", "when-failed"),
        put(POOL, f"spec template metadata annotations {PRESERVE_ANNOTATION}", "when-failed"),
        put(POOL, f"spec template metadata annotations {PRIORITY_ANNOTATION}", "1"),
        put(
            MACHINE,
            "spec nodeTemplate metadata annotations machine.sapcloud.io/awsPlacement",
            '{"tenancy": "dedicated"}',
        ),
    ],
)
def test_what_counts_is_not_warned_of(manifest: dict[str, Any]) -> None:
    assert warnings(manifest) == []


@pytest.mark.parametrize(
    "key",
    [
        *(
            f"node.machine.sapcloud.io/{word}"
            for word in (
                "last-applied-anno-labels-taints",
                "last-applied-virtual-capacity",
                "last-applied-node-preserve-value",
                "machine-join-duration",
            )
        ),
        *(f"deployment.kubernetes.io/{word}" for word in ("revision", "desired-replicas", "max-replicas")),
        "kubectl.kubernetes.io/last-applied-configuration",
    ],
)
def test_its_own_memory_is_taken_in_silence(key: str) -> None:
    assert warnings(put(MACHINE, f"metadata annotations {key}", "{}")) == []
    assert warnings(put(POOL, f"metadata annotations {key}", "{}")) == []


def test_every_ignored_field_is_of_a_model_that_has_it_not() -> None:
    from resources.machine import manifest
    from resources.pool import manifest as pools
    from resources.worker_pool import manifest as workers

    modules = (manifest, pools, workers)
    for model, fields in gardener.IGNORED.items():
        kind = KINDS.get(model) or next(getattr(m, model) for m in modules if hasattr(m, model))
        assert not set(fields) & {info.alias or name for name, info in kind.model_fields.items()}, model


def test_every_ignored_field_is_said_or_a_servers_own() -> None:
    places = {
        "ObjectMeta": (MACHINE, "metadata"),
        "TemplateMeta": (MACHINE, "spec.nodeTemplate.metadata"),
        "ClassRef": (MACHINE, "spec.class"),
        "MachineSpec": (MACHINE, "spec"),
        "TemplateSpec": (MACHINE, "spec.nodeTemplate.spec"),
        "Strategy": (POOL, "spec.strategy"),
        "WorkerPoolSpec": (WORKERS, "spec"),
        "MachineControllerManager": (WORKERS, "spec.machineControllerManager"),
        "Secret": (SECRET, ""),
    }
    for model, fields in gardener.IGNORED.items():
        manifest, path = places[model]
        for field, words in fields.items():
            at = f"{path}.{field}".lstrip(".")
            said = [f"{at}: without effect: {words}"] if words else []
            assert [w.partition(f"{manifest['metadata']['name']}: ")[2] for w in warnings(put(manifest, at, 1))] == said


def test_a_class_has_a_node_template_for_nobody() -> None:
    of = yaml.safe_load((ROOT / "examples/aws/class.yaml").read_text())
    (line,) = warnings(put(of, "nodeTemplate.capacity.cpu", "2"))
    assert "nodeTemplate: without effect: cluster-autoscaler reads it from MCM's objects" in line


def test_a_kind_of_its_own() -> None:
    assert "apply the MachineDeployment" in lines({"kind": "MachineSet"})[0]
    assert "write a MachineClass with `provider: AWS`, " in lines({"kind": "AWSMachineClass"})[0]


# -- Kubernetes' own rules --------------------------------------------------------------------------------------------

LONG = "a" * 64


@pytest.mark.parametrize(
    ("rule", "valid", "invalid"),
    [
        (apimachinery.dns_label, ["a", "a-1", "0", "a" * 63], ["", "-a", "a-", "A", "a.b", "a_b", LONG, "a\n"]),
        (
            apimachinery.dns_subdomain,
            ["a", "a.b-c.0", f"{'a' * 100}.{'b' * 152}"],
            ["", ".a", "a..b", "a.-b", "A.b", "a" * 254, "a/b"],
        ),
        (
            apimachinery.qualified_name,
            ["a", "A_b.c", "example.com/MyName", f"{'a' * 253}/{'b' * 63}"],
            ["", "/", "a/", "/a", "a/b/c", "-a", "A.b/c", "a b", LONG, f"{'a' * 254}/b", f"a/{LONG}"],
        ),
        (apimachinery.annotation_key, ["a", "Example.com/MyName"], ["", "a b", f"a/{LONG}"]),
        (
            apimachinery.label_value,
            ["", "a", "MyValue", "my_value", "1.2", "a" * 63],
            ["a b", "-a", "a.", LONG, "ä", "a/b"],
        ),
        (apimachinery.config_key, ["a", ".a", "A_b-c.d"], ["", ".", "..", "..a", "a/b", "a b", "a" * 254]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_rule(rule: Any, valid: list[str], invalid: list[str]) -> None:
    assert {text: rule(text) for text in valid if rule(text)} == {}
    assert [text for text in invalid if not rule(text)] == []


BAD_VALUE = "a valid label must be an empty string or consist of alphanumeric characters"


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (
            put(MACHINE, "metadata.namespace", "My_Space"),
            'metadata.namespace: Invalid value: "My_Space": a lowercase RFC 1123',
        ),
        (
            put(MACHINE, "metadata.name", "a..b"),
            'metadata.name: Invalid value: "a..b": a lowercase RFC 1123 subdomain must',
        ),
        (
            put(MACHINE, "metadata.labels", {"a b": "c"}),
            'metadata.labels: Invalid value: "a b": name part must consist of',
        ),
        (put(MACHINE, "metadata.labels", {"a": "b c"}), f'metadata.labels.a: Invalid value: "b c": {BAD_VALUE}'),
        (
            put(MACHINE, "spec.nodeTemplate.metadata.labels", {"role": "x" * 64}),
            f'spec.nodeTemplate.metadata.labels.role: Invalid value: "{"x" * 64}": must be no more '
            "than 63 characters; it has 64",
        ),
        (
            put(POOL, "spec.template.spec.nodeTemplate.metadata.annotations", {"a/b/c": "d"}),
            'spec.template.spec.nodeTemplate.metadata.annotations: Invalid value: "a/b/c": a qualified name must',
        ),
        (
            put(
                POOL,
                "spec.template.spec.nodeTemplate.spec.taints",
                [{"key": "k", "value": "a b", "effect": "NoSchedule"}],
            ),
            f'spec.template.spec.nodeTemplate.spec.taints[0].value: Invalid value: "a b": {BAD_VALUE}',
        ),
        (
            put(MACHINE, "spec.nodeTemplate.spec.taints", [{"key": "k", "effect": "NoExecute"}] * 2),
            'spec.nodeTemplate.spec.taints[1]: Duplicate value: "k:NoExecute": taints are unique by both',
        ),
        (put(MACHINE, "spec.class.name", "C1"), 'spec.class.name: Invalid value: "C1": a lowercase RFC 1123 subdomain'),
        (put(POOL, "spec.template.metadata.labels", {"a": "-"}), "spec.template.metadata.labels.a: Invalid value"),
        (put(MACHINE, "metadata annotations hostler.io/cluster", "A"), "annotations.hostler.io/cluster: Invalid value"),
        (
            put(SECRET, "stringData", {"user/data": "x"}),
            'stringData: Invalid value: "user/data": a valid config key must',
        ),
        (
            put(MACHINE, f"metadata annotations {PRESERVE_ANNOTATION}", "nwo"),
            f'metadata.annotations.{PRESERVE_ANNOTATION}: Unsupported value: "nwo": supported values: now, '
            "when-failed, false; did you mean now?",
        ),
        (
            put(MACHINE, "spec.providerID", "aws:///eu-west-1/i-1"),
            "spec.providerID: Hostler creates the VM; leave it out",
        ),
    ],
)
def test_what_kubernetes_would_refuse(manifest: dict[str, Any], words: str) -> None:
    (line,) = lines(manifest)
    assert words in line


@pytest.mark.parametrize(
    "manifest",
    [
        put(MACHINE, "metadata.labels", {"k" * 200: "v"}),
        put(MACHINE, "metadata.labels", {"k": "v" * 200}),
        put(MACHINE, "spec.nodeTemplate.metadata.annotations", {"a/" + "k" * 200: "v"}),
        put(MACHINE, "spec.nodeTemplate.spec.taints", [{"key": "k" * 200, "effect": "NoSchedule"}]),
        put(MACHINE, f"spec {'k' * 200}", 1),
        put(SECRET, "stringData", {"k" * 300: "x"}),
        put(MACHINE, "metadata.namespace", "n" * 200),
        *(
            put(yaml.safe_load((ROOT / "examples/aws/class.yaml").read_text()), path, value)
            for path, value in (
                ("providerSpec.vmTags", {"k" * 129: "v"}),
                ("providerSpec.vmTags", {"k" * 128: "v" * 257}),
                ("providerSpec.vmTags", {"aws:" + "k" * 124: "v"}),
            )
        ),
    ],
)
def test_no_scrubber_hides_the_name_that_is_wrong(manifest: dict[str, Any]) -> None:
    """What looks like encoded user data is hidden from strangers' texts: words of 80 characters and more."""
    said = "\n".join(lines(manifest))
    assert said
    assert hide_secrets(said) == said
    assert "kkkkkkkkkkkk" in said or "vvvvvvvvvvvv" in said or "nnnnnnnnnnnn" in said


def test_an_annotations_value_is_not_quoted() -> None:
    (line,) = lines(put(MACHINE, "metadata.annotations", {"a b": "hunter2"}))
    assert "hunter2" not in line


# -- the other doors --------------------------------------------------------------------------------------------------


def test_a_program_is_told_the_same() -> None:
    (machine,) = load_manifests(yaml.safe_dump(MACHINE), "f.yaml").machines
    assert complaints(machine) == []
    odd = machine.model_validate(put(put(MACHINE, "spec.class.nam", "c"), "metadata.labels", {"a": "b c"}))
    label, unknown = complaints(odd)
    assert label.startswith('Machine m-1: metadata.labels.a: Invalid value: "b c"')
    assert unknown == "Machine m-1: spec.class.nam: unknown field; did you mean name?"
    assert complaints(odd, Validate.WARN) == [label]


def test_a_workflow_is_told_the_same() -> None:
    of = ClassSnapshot.model_validate(
        {"name": "c-1", "provider": "AWS", "providerSpec": {}, "secretRef": {"name": "s"}}
    )
    good, bad = (
        MachineSpec.model_validate({"class": {"name": "c-1"}, "nodeTemplate": {"metadata": {"labels": {"a": value}}}})
        for value in ("b", "b c")
    )
    said = 'spec.nodeTemplate.metadata.labels.a: Invalid value: "b c": a valid label must'
    assert message(ApplyIntent(spec=good, machine_class=of)) == message(MachineState(name="m-1", spec=good)) == ""
    assert message(ApplyIntent(spec=bad, machine_class=of)).startswith(said)
    assert message(MachineState(name="m-1", spec=bad)).startswith(said)
    # An owner's machine is as its owner was told, which may be older than this judgement.
    assert message(MachineState.model_validate({"name": "m-1", "spec": bad, "pool": "p"})) == ""


# -- variables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("HOSTLER_WORKRE__HEALTH", "HOSTLER_WORKRE__HEALTH: there is no such setting; did you mean HOSTLER_WORKER?"),
        ("HOSTLER_SETTING", "HOSTLER_SETTING: there is no such setting; did you mean HOSTLER_SETTINGS"),
        ("HOSTLER_QUEUE_PREFX", "HOSTLER_QUEUE_PREFX: there is no such setting; did you mean HOSTLER_QUEUE_PREFIX?"),
        ("HOSTLER_ZZZ__A", "HOSTLER_ZZZ__A: there is no such setting; there are HOSTLER_CLOUDS, HOSTLER_CLUSTERS,"),
    ],
)
def test_a_variable_that_is_no_setting(variable: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(SettingsError, match=re.escape(words)):
        load_settings()


@pytest.mark.parametrize(
    "variable",
    [
        *("HOSTLER_DEBUG", "HOSTLER_SECRET_DEFAULT_DEMO__userData"),
        *("HOSTLER_FUZZ_SEED", "HOSTLER_FAULTS", "HOSTLER_VERSION"),  # another program's
        *("HOSTLER_SERVICE_HOST", "HOSTLER_PORT", "HOSTLER_WORKER_SERVICE_PORT_METRICS"),  # a Service's, in its Pods
        *("HOSTLER_PORT_8081_TCP_ADDR", "HOSTLER_WORKER_PORT_8081_TCP"),
    ],
)
def test_a_variable_that_is_not_meant_as_one(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "tcp://10.0.0.1:8081")
    monkeypatch.setenv("HOSTLER_LOG_FORMAT", "json")
    assert load_settings().log_format == "json"
