"""kubectl's templates: each is shown to the real kubectl too, and both print the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from apiserver.pods import THING, kubectl_prints

from starter.templates import Template, TemplateError, cell, custom_columns, custom_columns_file, relaxed, sort_keys

ALIKE = [
    "{.spec.containers[*].name}",
    '{range .spec.containers[*]}{.name}{"\\t"}{.image}{"\\n"}{end}',
    "{range .spec.containers[*]}{.name}:{range .ports[*]}{.containerPort} {end};{end}.",
    "{range .spec.containers[*].name}{@},{end}",
    "{range .spec.containers[*]}<{$.spec.nodeName}>{end}",
    "{.spec.containers[?(@.name=='a')].image}",
    '{.spec.containers[?(@.name != "a")].image}',
    "{.spec.containers[?(.name=='b')].image}",
    "{.spec.containers[?(@.tty)].name}{.spec.containers[?(@.tty==true)].name}",
    "{.spec.containers[?(@.ports[0].containerPort>79)].name}",
    "{.spec.containers[*]['name', 'image']}",
    "{.metadata['labels.z']}{.spec['containers']}",
    r"{.metadata.labels.k\.x/y} {.metadata.labels['k\.x/y']}",
    "{.spec..containerPort} {..containers[*].name}",
    "{.spec.containers[-1].name}{.spec.containers[-1:].name}{.spec.containers[0,1].name}{.spec.containers[0:1].name}",
    "{@.spec.priority}{$.spec.nodeName}{ .spec.nodeName }",
    "{.metadata.labels}{.spec.containers[*].ports}",
    "a{.nope}b{.spec.containers[?(@.name=='c')].image}c",
    "{'lit'}x{.metadata.name}\\n",
]


@pytest.mark.parametrize("template", ALIKE)
def test_kubectl_prints_the_same(template: str, tmp_path: Path) -> None:
    told = kubectl_prints(f"jsonpath={template}", tmp_path)
    assert Template(template).render(THING) == told
    assert told


def test_beyond_kubectl() -> None:
    assert Template("{.spec.containers[?(@.name=='b' || @.tty && !@.nope)].name}").render(THING) == "a b"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{.spec.containers[*].name", "is not closed"),
        ("{'x}", "does not end"),
        ("{range .items[*]}{.x}", "has no {end}"),
        ("{end}", "without a {range}"),
        ("{foo}", "is missing before 'foo'"),
        ("{.a b}", "is missing before 'b'"),
        ("{.items[x]}", "is missing before 'x]'"),
        ("{.items[0}", "] is missing at its end"),
        ("{.a..}", "a name is missing at its end"),
        ("{.items[?(@.a=x)]}", "is missing before '=x)]'"),
        ("{.items[?(@.a==1]}", "is missing before ']'"),
        ("{.items[?(@['a','b']==1)]}", "compares one field"),
        ("{.items[?(@.a==)]}", "is not a path"),
    ],
)
def test_a_wrong_template_says_where(template: str, words: str) -> None:
    with pytest.raises(TemplateError) as refused:
        Template(template)
    assert words in str(refused.value)


def test_custom_columns() -> None:
    columns = custom_columns("N:.metadata.name,C:{.spec.containers[0,1].name},I:spec.containers[?(@.name=='a')].image")
    assert [(name, cell(path, THING)) for name, path in columns] == [("N", "p-1"), ("C", "a,b"), ("I", "i1")]
    assert custom_columns_file("N   C\n.metadata.name  spec.priority\n") == [
        ("N", relaxed(".metadata.name")),
        ("C", relaxed("spec.priority")),
    ]
    for wrong in ("N", "N:", ":x", ""):
        with pytest.raises(TemplateError):
            custom_columns(wrong)
    with pytest.raises(TemplateError, match="two lines"):
        custom_columns_file("A B\n.x\n")


def test_sorting_mixes_nothing_up() -> None:
    things = [{"v": v} for v in ("m-10", "m-9", 2, 10, None, "a", {"x": 1})] + [{}]
    order = sorted(range(len(things)), key=lambda i: sort_keys(relaxed("v"), things)[i])
    assert [things[i].get("v") for i in order] == [None, None, 2, 10, "a", "m-9", "m-10", {"x": 1}]
