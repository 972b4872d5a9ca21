"""What differs, field by field, and how it is said."""

from __future__ import annotations

from typing import Any

import pytest
from cli.place import class_yaml

from resources.machine.state import ClassSnapshot
from resources.machine_class.state import ClassPreview
from resources.manifests import MachineClass
from starter.sdk.apply.diff import HOT, NOTHING, REFUSED, REPLACE, FieldChange, ManifestDiff, changes, class_changes
from starter.sdk.results import Verb


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", "1", "2")]),
        ({"a": {"b": True}}, {"a": {}}, [("a.b", "true", "(none)")]),
        ({}, {"a": {"b": "x", "c": {"d": ""}}}, [("a.b", "(none)", "x"), ("a.c.d", "(none)", '""')]),
        ({"a": {"k8s.io/x": "1"}}, {}, [('a["k8s.io/x"]', "1", "(none)")]),
        ({"l": [1, 2]}, {"l": [1, 3, 4]}, [("l[1]", "2", "3"), ("l[2]", "(none)", "4")]),
        ({}, {"l": [{"n": 1}]}, [("l[0].n", "(none)", "1")]),
        ({"a": {}}, {"a": "x"}, [("a", "{}", "x")]),  # of another kind
        ({}, {"a": {}}, [("a", "(none)", "{}")]),  # an empty field is not an absent one: it replaces `tags`
        ({"a": "x" * 100}, {}, [("a", "x" * 60 + "…", "(none)")]),
    ],
)
def test_what_differs(before: Any, after: Any, found: list[tuple[str, str, str]]) -> None:
    assert list(changes(before, after)) == found
    assert [path for path, _, _ in changes(after, before)] == [path for path, _, _ in found]


def snapshot(**changed: Any) -> ClassSnapshot:
    manifest = class_yaml()
    if "vm_tags" in changed:
        del manifest["providerSpec"]["vmTags"]
    for key, value in changed.items():
        (manifest if key in ("provider", "secretRef") else manifest["providerSpec"])[key] = value
    return ClassSnapshot.of(MachineClass.model_validate(manifest))


@pytest.mark.parametrize(
    ("changed", "preview", "effects"),
    [
        ({"vmTags": {"team": "b"}}, ClassPreview(hot=["vmTags"]), {"providerSpec.vmTags.team": HOT}),
        (
            {"vm_tags": {"k8s.io/x": "b"}},
            ClassPreview(hot=["vmTags"]),
            {'providerSpec.vm_tags["k8s.io/x"]': HOT, "providerSpec.vmTags.team": HOT},
        ),
        ({"ami": "ami-2"}, ClassPreview(rolls=["ami"]), {"providerSpec.ami": REPLACE}),
        (
            {"blockDevices": [{"ebs": {"iops": 5}}]},
            ClassPreview(rolls=["blockDevices[0].ebs.iops"]),
            {"providerSpec.blockDevices[0].ebs.iops": REPLACE},
        ),
        ({"amiName": "x"}, ClassPreview(rolls=["ami"]), {"providerSpec.amiName": NOTHING}),  # no field of that name
        ({"monitoring": True}, ClassPreview(), {"providerSpec.monitoring": NOTHING}),
        ({"secretRef": {"name": "s2"}}, ClassPreview(), {"secretRef.name": NOTHING}),
        ({"provider": "GCP"}, ClassPreview(refused=["no"]), {"provider": REFUSED}),
        (
            {"vmTags": {"team": "a", "k8s.io/x": "b", "k8s.io/xy": "b"}},
            ClassPreview(hot=["vmTags"], refused=["the tag k8s.io/xy may not be added: words"]),
            {'providerSpec.vmTags["k8s.io/x"]': HOT, 'providerSpec.vmTags["k8s.io/xy"]': REFUSED},
        ),
        ({"ami": "ami-2"}, None, {"providerSpec.ami": "hot update or replacement? nobody polls q"}),
    ],
)
def test_what_a_field_does(changed: dict[str, Any], preview: ClassPreview | None, effects: dict[str, str]) -> None:
    found = class_changes(snapshot(), snapshot(**changed), preview, "nobody polls q")
    assert {c.path: c.effect for c in found} == effects


def test_how_it_is_said() -> None:
    field = FieldChange("providerSpec.ami", "ami-1", "ami-2", REPLACE)
    machines = tuple(f"m{n}" for n in range(1, 8))
    found = ManifestDiff("machineclass", "c1", Verb.CONFIGURED, (field,), ("no",), machines, "generation 1 -> 2")
    assert found.lines() == [
        "machineclass/c1 configured: generation 1 -> 2",
        "  providerSpec.ami: ami-1 -> ami-2: needs replacement (Outdated)",
        "  refused: no",
        "  touches 7 machines (m1, m2, m3, m4, m5, …)",
    ]
    assert ManifestDiff("machine", "m1", Verb.CREATED).lines() == ["machine/m1 created"]
