"""Go templates of `-o go-template`: each is shown to the real kubectl too, and both print the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from apiserver.pods import THING, kubectl_prints

from starter.gotemplates import read
from starter.templates import TemplateError

ALIKE = [
    "{{.metadata.name}}",
    r'{{range .spec.containers}}{{.name}}{{"\t"}}{{.image}}{{"\n"}}{{end}}',
    "{{range $i, $c := .spec.containers}}{{if $i}},{{end}}{{$c.name}}{{end}}",
    '{{index .metadata.labels "k.x/y"}} {{index .metadata.labels "nope"}}',
    "{{range $k, $v := .metadata.labels}}{{$k}}={{$v}} {{end}}",
    "{{.status.phase}} {{.metadata.nope.deep}}",
    "{{.spec.priority}} {{(index .spec.containers 0).tty}} {{.metadata.labels}}",
    '{{range .spec.containers}}{{if eq .name "a"}}yes{{else if .tty}}x{{else}}no{{end}}{{end}}',
    "{{range .spec.containers}}{{range .ports}}{{.containerPort}} {{else}}none{{end}}{{end}}",
    "{{with .spec.nope}}x{{else}}none{{end}}{{with .spec.nodeName}}{{.}}{{end}}",
    r'{{printf "%s:%-4s|%v" .kind "x" .spec.priority}} {{len .spec.containers}} {{.kind | printf "%q"}}',
    '{{- /* why */ -}} {{ .kind -}} x{{define "t"}}[{{.}}]{{end}}{{template "t" .spec.nodeName}}',
    "{{and .kind .spec.nodeName}} {{or .nope .kind}} {{not .kind}}",
    "{{base64decode .metadata.annotations.secret}} {{html .kind}} {{slice .kind 1 2}}",
    "{{$n := .metadata.name}}{{range .spec.containers}}{{$n}}/{{.name}} {{end}}",
]


@pytest.mark.parametrize("template", ALIKE)
def test_kubectl_prints_the_same(template: str, tmp_path: Path) -> None:
    told = kubectl_prints(f"go-template={template}", tmp_path)
    assert read(template)(THING) == told


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{range .items}}x", "error parsing template {{range .items}}x, template: output:1: unexpected EOF"),
        ("{{foo}}", "template: output:1: function 'foo' not defined"),
        ("{{.kind", "template: output:1: "),
    ],
)
def test_one_that_cannot_be_read_is_refused_before_anything_is_asked(template: str, words: str) -> None:
    with pytest.raises(TemplateError) as refused:
        read(template)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ('{{index .nope "x"}}', "index of untyped nil"),
        ("{{index .spec.containers 9}}", "out of range"),
        ("{{range .kind}}{{end}}", "range cannot iterate"),
        ("{{.kind.upper}}", "not allowed"),
        ('{{base64decode "?"}}', "base64"),
    ],
)
def test_what_the_object_does_not_have_is_said(template: str, words: str) -> None:
    with pytest.raises(TemplateError, match="error executing template: template: output:1: ") as refused:
        read(template)(THING)
    assert words in str(refused.value)


def test_no_value_acts_on_a_terminal() -> None:
    assert read("{{.a}}")({"a": "x\n\x1b[31m"}) == r"x\n\x1b[31m"
