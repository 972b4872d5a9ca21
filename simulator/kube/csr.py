"""Certificate signing requests: how a machine that joined with a bootstrap token gets an identity of its own.

The flow is a real cluster's (bootstrap token, CSR, approval, signing). What is issued is not: a bearer token in place
of a certificate, because the server looks callers up in a table. A client that finds a CERTIFICATE block instead talks
to a real API server and uses client TLS.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from simulator.kube.errors import FieldErrors
from simulator.kube.objects import Obj, condition, set_condition

KUBELET_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
TOKEN_BLOCK = "HOSTLER BEARER TOKEN"
NODE_PREFIX = "system:node:"
NODES_GROUP = "system:nodes"
BOOTSTRAPPERS_GROUP = "system:bootstrappers"
# Exactly these; key encipherment is for RSA keys, and not looked at further (ValidateKubeletClientCSR).
_USAGES = ({"digital signature", "client auth"}, {"digital signature", "key encipherment", "client auth"})
_FOR_ANY_NODE = {BOOTSTRAPPERS_GROUP, "system:masters"}
_DECISIONS = ("Approved", "Denied")


def _parse(request: Any) -> x509.CertificateSigningRequest | None:
    try:
        parsed = x509.load_pem_x509_csr(base64.b64decode(request, validate=True))
        return parsed if parsed.is_signature_valid else None
    except (binascii.Error, TypeError, ValueError):
        return None


def prepare(csr: Obj, old: Obj | None, errors: FieldErrors) -> None:
    spec = csr.setdefault("spec", {})
    csr.setdefault("status", {})
    if not spec.get("signerName"):
        errors.required("spec.signerName")
    if not spec.get("usages"):
        errors.required("spec.usages")
    if _parse(spec.get("request")) is None:
        errors.invalid("spec.request", "", "PEM block type must be CERTIFICATE REQUEST")
    if old is None:
        return
    # The author is part of the spec: nobody may use the approval of this request for another one.
    if spec != old["spec"]:
        errors.invalid("spec", "", "field is immutable")
    before, after = _decisions(old), _decisions(csr)
    if before - after:
        errors.forbidden("status.conditions", f"{' '.join(sorted(before - after))} condition cannot be removed")
    if len(after) > 1:
        errors.invalid("status.conditions", "", "Approved and Denied conditions are mutually exclusive")
    issued = old["status"].get("certificate")
    if issued and csr["status"].get("certificate") != issued:
        errors.invalid("status.certificate", "", "field is immutable once it is set")


def _decisions(csr: Obj) -> set[str]:
    return {kind for kind in _DECISIONS if condition(csr, kind) is not None}


def node_of(csr: Obj) -> str | None:
    """The node of a well-formed kubelet client request: signer, usages and subject are checked (isNodeClientCert)."""
    spec = csr["spec"]
    if spec.get("signerName") != KUBELET_SIGNER or set(spec.get("usages") or ()) not in _USAGES:
        return None
    request = _parse(spec.get("request"))
    if request is None:
        return None
    organizations = [a.value for a in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    names = [a.value for a in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if organizations != [NODES_GROUP] or len(names) != 1:
        return None
    name = str(names[0])  # nobody looks at what follows the prefix, not even whether there is anything
    return name.removeprefix(NODE_PREFIX) if name.startswith(NODE_PREFIX) else None


def may_be_approved(csr: Obj) -> bool:
    """The approving controller's rule: bootstrappers and administrators for any node, a node for itself.

    Everything else stays Pending.
    """
    node = node_of(csr)
    if node is None:
        return False
    spec = csr["spec"]
    return not _FOR_ANY_NODE.isdisjoint(spec["groups"]) or spec["username"] == NODE_PREFIX + node


def approve(csr: Obj) -> None:
    message = "Auto approving kubelet client certificate after SubjectAccessReview."
    set_condition(csr, "Approved", "True", "AutoApproved", message)
    csr["status"]["conditions"][-1]["lastUpdateTime"] = csr["status"]["conditions"][-1]["lastTransitionTime"]


def awaits_signing(csr: Obj) -> bool:
    """Whether the signing controller has work: approved, for its signer, neither issued nor failed."""
    return (
        csr["spec"].get("signerName") == KUBELET_SIGNER
        and _decisions(csr) == {"Approved"}
        and not csr["status"].get("certificate")
        and condition(csr, "Failed") is None
    )


def issue(csr: Obj, token: str) -> None:
    block = f"-----BEGIN {TOKEN_BLOCK}-----\n{token}\n-----END {TOKEN_BLOCK}-----\n"
    csr["status"]["certificate"] = base64.b64encode(block.encode()).decode()


def fail(csr: Obj) -> None:
    why = "the request is not a kubelet client request: subject or usages do not fit the signer"
    set_condition(csr, "Failed", "True", "SignerValidationFailure", why)
