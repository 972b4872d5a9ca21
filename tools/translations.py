"""Prints docs/openshift-specs.md: what becomes of each field of OpenShift's machine specs, as their models say.

    python tools/translations.py > docs/openshift-specs.md

tests/unit/test_control_plane_doc.py holds the file to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from resources.clouds import PROVIDERS, Provider
from resources.clouds.openshift import Becomes, Fate, Rejected, Unused, marks

HEAD = """\
# OpenShift's machine specs

What becomes of each field of `providerSpec.value` in a [control plane](control-plane.md) as OpenShift writes it. The
result is the MachineClass `controlplane`. The models are in `resources/clouds/<cloud>/openshift.py`; this page is made
from them (`make translations`), and `hostler explain` says the same:

```text
hostler explain controlplane.spec.template.machines_v1beta1_machine_openshift_io.spec.providerSpec.value --provider aws
```

- A field that is *rejected* stops `hostler apply`, with its path and what to do. Empty values (`""`, `0`, `false`,
  `[]`) are not given: Go writes them for nothing.
- Nothing is looked up while manifests are read: AMI, subnets and security groups by ARN or by filters are rejected.
  `aws ec2 describe-subnets --filters …` has the ids.
- Machines are registered at no load balancer, so fields that ask for it are rejected: a control plane whose new
  machines get no traffic would lose its API with the last old one. Something else has to do that, and then the field
  goes.
- What the class that comes out would be refused for is told as `as a MachineClass: providerSpec.…`.
- Secrets are named only. Credentials may have OpenShift's keys: `aws_access_key_id` and `aws_secret_access_key`,
  `azure_subscription_id`, `azure_tenant_id`, `azure_client_id` and `azure_client_secret`, `service_account.json`. A
  Secret without a namespace is in the set's own.
"""


def page() -> str:
    return "\n".join([HEAD, *(line for name in sorted(PROVIDERS) for line in _section(PROVIDERS[name]))])


def _section(provider: Provider) -> Iterator[str]:
    yield f"## {provider.openshift.KIND}"
    yield ""
    yield "| field | becomes | |"
    yield "|---|---|---|"
    for path, fate in marks(provider.openshift):
        yield _row(path, fate)
    yield ""


def _row(path: str, fate: Fate | None) -> str:
    match fate:
        case Becomes(path=there, but=but):
            cells = (", ".join(f"`{p}`" for p in there.split(", ")), but)
        case Unused(why=why):
            cells = ("*without effect*", why)
        case Rejected(why=why):
            cells = ("*rejected*", why)
        case None:
            raise ValueError(f"{path} has no mark")
    return f"| `{path}` | {cells[0]} | {cells[1].replace('<', chr(92) + '<')} |"


def main() -> None:
    sys.stdout.write(page())


if __name__ == "__main__":
    main()
