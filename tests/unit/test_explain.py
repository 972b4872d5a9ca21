"""`hostler explain`: fields as the models have them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from resources.clouds import PROVIDERS
from resources.effects import Effect, effects
from starter.commands.explaining import ROOTS, Field, explain, fields_of
from starter.main import app
from starter.sdk.errors import NotFound, Refused

OF_CLOUD = ("ControlPlaneMachineSet", "Infrastructure", "MachineClass", "WorkerPool")
"""Kinds that have fields which depend on the cloud."""


def run(*args: str) -> str:
    done = CliRunner().invoke(app, ["explain", *args], prog_name="hostler")
    assert done.exit_code == 0, done.output
    return done.stdout


def below(path: str, provider: str | None = None) -> dict[str, Field]:
    return {f.name: f for f in explain(path, provider).fields}


def test_types_defaults_and_constraints() -> None:
    spec = below("machine.spec")
    assert (spec["class"].required, spec["class"].type_name) == (True, "ClassRef")
    assert (spec["creationTimeout"].type_name, spec["creationTimeout"].default) == ("duration", "20m")
    assert spec["creationTimeout"].constraints == ("more than 0s", "at most 87600h")
    assert spec["nodeConditions"].type_name == "[]string"
    assert spec["nodeConditions"].default.startswith("[KernelDeadlock, ")
    assert spec["nodeConditions"].description.startswith("Conditions of the Node that must be False")
    assert spec["nodeTemplate"].description.startswith("Labels, annotations and taints")  # the model's
    assert below("machine.metadata")["labels"].type_name == "map[string]string"
    assert below("machine.spec.nodeTemplate.spec.taints")["effect"].constraints == (
        "one of NoSchedule, PreferNoSchedule, NoExecute",
    )
    aws = below("machineclass.providerSpec", "AWS")
    assert (aws["networkInterfaces"].type_name, aws["networkInterfaces"].constraints) == (
        "[]NetworkInterface",
        ("not empty",),
    )
    assert explain("machineclass.providerSpec.placement.partitionNumber", "AWS").field.constraints == (
        "at least 1",
        "at most 7",
    )
    worker = below("settings.worker")
    assert (worker["maxCachedWorkflows"].type_name, worker["maxCachedWorkflows"].default) == ("integer", "1000")
    assert worker["strictSandbox"].default == "false"
    assert "file" not in below("settings")
    assert below("machine.status.lastOperation")["errorCode"].description.startswith("cluster-autoscaler reads")


def test_what_a_change_does() -> None:
    spec = below("machineclass.providerSpec", "AWS")
    assert spec["vmTags"].effects == (Effect.HOT,)
    assert spec["ami"].effects == (Effect.HASH,)
    assert spec["srcAndDstChecksEnabled"].effects == (Effect.POST_START,)
    assert spec["monitoring"].effects == (Effect.NONE,)
    assert set(spec["networkInterfaces"].effects) == {Effect.HASH, Effect.POST_START}
    assert below("machine.spec")["providerID"].effects == ()
    value = below("cpms.spec.template.machines_v1beta1_machine_openshift_io.spec.providerSpec.value", "AWS")
    assert {f: value[f].effects for f in ("tags", "ami", "loadBalancers")} == {  # of what they become
        "tags": (Effect.HOT,),
        "ami": (Effect.HASH,),
        "loadBalancers": (),
    }
    assert value["tags"].description.endswith(
        "Becomes vmTags, nicTags, diskTags (with kubernetes.io/cluster/<id>: owned)."
    )


def tree(fields: tuple[Field, ...], provider: str) -> Iterator[Field]:
    for field in fields:
        yield field
        yield from tree(tuple(fields_of(field, provider)), provider)


@pytest.mark.parametrize("kind", sorted(ROOTS))
def test_every_field_has_a_description(kind: str) -> None:
    for provider in sorted(PROVIDERS) if kind in OF_CLOUD else [None]:
        found = explain(kind.lower(), provider)
        assert found.field.description or kind == "Settings"
        fields = list(tree(found.fields, found.provider))
        assert len(fields) > 3
        assert [f.path for f in fields if not f.description] == []


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_every_field_of_a_provider_spec_has_the_effect_of_the_table(provider: str) -> None:
    found = explain("machineclass.providerSpec", provider)
    leaves = {f.path: f.effects for f in tree(found.fields, provider) if f.model is None}
    wanted = {path.replace("[]", ""): (effect,) for path, effect in effects(PROVIDERS[provider].spec)}
    assert leaves == {f"providerSpec.{path}": effect for path, effect in wanted.items()}
    for path in leaves:  # and each can be asked for by its path
        assert explain(f"machineclass.{path}", provider).field.path == path


@pytest.mark.parametrize("kind", sorted(ROOTS))
def test_everything_can_be_shown(kind: str) -> None:
    shown = run(kind.lower(), "--recursive", "--provider", "AWS")
    every = list(tree(explain(kind, "AWS").fields, "AWS"))
    assert len(every) > 5
    for field in every:
        assert f"{field.name}\t<{field.type_name}>" in shown
    assert "any" not in {f.type_name for f in every} - {"map[string]any"}  # a type that the table does not know


def test_the_page() -> None:
    shown = run("machineclass.providerSpec.blockDevices.ebs", "--provider", "aws")
    for words in (
        "KIND:      MachineClass",
        "PROVIDER:  AWS",
        "FIELD:     providerSpec.blockDevices.ebs <Ebs>",
        "EFFECT:    hash",
        "  throughput\t<integer>\n    MiB/s, gp3 only. At least 0. Effect: hash.\n",
    ):
        assert words in shown
    assert "EFFECT:    hash, none: see the fields" in run("machineclass.providerSpec.blockDevices", "--provider", "aws")
    one = run("MachineClass.providerSpec.vmTags", "--provider", "AWS")
    assert "EFFECT:    hot: Updatable: changed in place, no machine is replaced." in one
    assert "FIELDS" not in one
    assert "-required-" in run("machine")


def test_names_typed_wrong() -> None:
    for path, words in (
        ("mashine", "did you mean Machine"),
        (
            "machine.spec.drainTimout",
            "Machine.spec has no field 'drainTimout'; it has class, .*did you mean drainTimeout",
        ),
        ("machine.spec.drainTimeout.x", "Machine.spec.drainTimeout is of type duration: it has no field 'x'"),
        ("machineclass.providerSpec.AMI", "did you mean ami"),
        ("machine.zzz", "it has apiVersion, kind, metadata, spec, status$"),
    ):
        with pytest.raises(NotFound, match=words):
            explain(path, "AWS")
    with pytest.raises(Refused, match="which providerSpec"):
        explain("machineclass.providerSpec.ami")
    with pytest.raises(Refused, match=r"provider 'awz' has no driver.*did you mean AWS"):
        explain("machineclass.providerSpec", "awz")
    done = CliRunner().invoke(app, ["explain", "machine.spek"], prog_name="hostler")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: Machine has no field 'spek'; it has ")
