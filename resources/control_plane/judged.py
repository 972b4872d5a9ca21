"""A control plane with OpenShift's template: what can be said of it before it is applied."""

from __future__ import annotations

from typing import Any

from resources.clouds.openshift import OpenShiftSpec, rejected, unused
from resources.control_plane import translation
from resources.control_plane.manifest import MACHINE_TYPE, ControlPlaneMachineSet
from resources.judged import Judged, judge_document, judge_provider_spec, lines_of


def judge_openshift_spec(document: Any, where: str, judged: Judged) -> None:
    """What can be said of OpenShift's machine spec on its own."""
    here = document
    for step in ("spec", "template", MACHINE_TYPE, *translation.PROVIDER_SPEC.split(".")):
        here = here.get(step) if isinstance(here, dict) else None
    if not isinstance(here, dict):
        return  # the model says so
    prefix = f"spec.template.{MACHINE_TYPE}.{translation.PROVIDER_SPEC}."
    try:
        model = translation.provider_of_kind(here.get("kind")).openshift
    except ValueError as e:
        judged.errors += lines_of(where, [f"{prefix}kind: {e}"])
        return
    read = judge_document(model, here, prefix, where, judged)
    if isinstance(read.model, OpenShiftSpec):
        wrong = (f"{prefix}{path}: {words}" for path, words in rejected(read.model) if read.judges(path))
        judged.errors += lines_of(where, wrong)
        judged.warnings += lines_of(
            where, (f"{prefix}{path}: without effect: {why}" for path, why in unused(read.model))
        )


def judge_translation(manifest: ControlPlaneMachineSet, where: str, judged: Judged) -> None:
    """What can only be said of OpenShift's machine spec together with its failure domains, and of what it becomes."""
    template = manifest.spec.template
    theirs = template.machines_v1beta1_machine_openshift_io
    if theirs is None:
        return
    path = f"spec.{template.path}.{translation.PROVIDER_SPEC}"
    value = theirs.spec.provider_spec.value
    if not value:
        judged.errors += lines_of(where, [f"{path}: missing: it says what the VMs are made from"])
        return
    provider = translation.provider_of_kind(value.get("kind"))
    given = provider.openshift.model_validate(value)
    if template.platform not in ("", provider.name):
        at = f"spec.{template.path}.failureDomains.platform"
        judged.errors += lines_of(where, [f"{at}: the machines are on {provider.name}"])
        return
    wrong = [f"{path}.{at}: {words}" for at, words in translation.mistakes(template, given)]
    judged.errors += lines_of(where, wrong)
    if wrong:
        return
    made = translation.translate(theirs, provider, given, manifest.metadata.namespace)
    of_class = Judged()
    judge_provider_spec(made.provider, made.provider_spec, f"{where}: {path}: as a MachineClass", of_class)
    judged.errors += of_class.errors
