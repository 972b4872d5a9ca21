"""YAML as kubectl reads it (sigs.k8s.io/yaml v1.4: goyaml.v2, resolve.go), which is not as PyYAML does."""

from __future__ import annotations

import math
from typing import Any

import pytest

from resources.documents import DocumentError, documents
from resources.manifests import ManifestError, load_manifests
from starter.output import dump

READ: list[tuple[str, Any]] = [
    # no numbers of base 60 and no dates: text
    ("22:30", "22:30"),
    ("190:20:30", "190:20:30"),
    ("02:42:11:00:02:03", "02:42:11:00:02:03"),
    ("2026-03-25", "2026-03-25"),
    ("2026-03-25T10:00:00Z", "2026-03-25T10:00:00Z"),
    ("2026-03-25 10:00:00", "2026-03-25 10:00:00"),
    ("!!timestamp 2026-03-25", "2026-03-25"),
    ("1.2.3", "1.2.3"),
    ("=", "="),
    # YAML 1.1's words
    *((word, True) for word in ("y", "Yes", "on", "TRUE", "true")),
    *((word, False) for word in ("n", "NO", "Off", "False")),
    ("'yes'", "yes"),
    ("yEs", "yEs"),
    # numbers as Go reads them
    ("1_000", 1000),
    ("0x1F", 31),
    ("0b11", 3),
    ("0o10", 8),
    ("010", 8),
    ("08", 8.0),
    ("+5", 5),
    ("-0b11", -3),
    ("1e3", 1000.0),
    ("1.", 1.0),
    (".5", 0.5),
    (".inf", math.inf),
    ("-.Inf", -math.inf),
    ("_1", "_1"),
    ("0x", "0x"),
    ("1e", "1e"),
    ("!!str 12", "12"),
    ("", None),
    ("~", None),
    ("Null", None),
]


@pytest.mark.parametrize(("text", "wanted"), READ, ids=[t or "nothing" for t, _ in READ])
def test_a_scalar_is_what_kubectl_makes_of_it(text: str, wanted: Any) -> None:
    (found,) = documents(f"a: {text}")
    assert found == {"a": wanted}
    assert type(found["a"]) is type(wanted)


def test_keys_are_text_and_no_word_for_true_or_false() -> None:
    assert documents("{1: a, 1.5: b, 2026-03-25: c}") == [{"1": "a", "1.5": "b", "2026-03-25": "c"}]
    assert documents("a: &a {b: 1}\nc:\n  <<: *a\n  d: 2") == [{"a": {"b": 1}, "c": {"b": 1, "d": 2}}]
    with pytest.raises(DocumentError, match="a key reads as true or false; put it in quotes"):
        documents("on: push")


MACHINE = """
apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {{name: m-1}}
spec:
  class: {{name: c-1}}
  nodeTemplate: {{metadata: {{annotations: {{example.com/it: {value}}}}}}}
"""


def test_an_annotation_is_text_or_refused_in_words() -> None:
    (machine,) = load_manifests(MACHINE.format(value="22:30"), "here").machines
    assert machine.spec.node_template.metadata.annotations == {"example.com/it": "22:30"}
    for value, what in (("yes", "true or false"), ("1e3", "a number"), ("7", "a number")):
        with pytest.raises(ManifestError, match=f"YAML reads it as {what}: put it in quotes") as refused:
            load_manifests(MACHINE.format(value=value), "here")
        assert "spec.nodeTemplate.metadata.annotations.example.com/it" in str(refused.value)


def test_what_is_printed_is_read_again_as_it_was() -> None:
    """Labels that look like numbers to Kubernetes and not to PyYAML: `hostler get -o yaml` quotes them."""
    texts = ["1e3", "12e45", "08", "0o10", "y", "n", "1.", "22:30", "2026-03-25", "", "null", "on", "a", "1.2.3", "7"]
    given = {"text": texts, "keys": {text: text for text in texts}, "true": [True, 5, 1.5, None]}
    assert documents(dump([given], "yaml", single=True)) == [given]
    assert "- 1.2.3\n" in dump([given], "yaml", single=True)  # no more quotes than needed
