"""A pod that tests print with templates, as kubectl prints it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: p-1
  labels: {k.x/y: v, z: "1"}
  annotations: {secret: aGk=}
spec:
  containers:
  - {name: a, image: i1, ports: [{containerPort: 80, protocol: TCP}, {containerPort: 8080}], tty: true}
  - {name: b, image: i2}
  nodeName: n1
  priority: 3
"""
THING = yaml.safe_load(POD)


def kubectl_prints(output: str, folder: Path) -> str:
    """What the real kubectl makes of the pod with this `-o`."""
    file = folder / "pod.yaml"
    file.write_text(POD)
    kubectl = [Path(sys.executable).parent / "kubectl", "label", "--local", "-f", file, "z=1", "--overwrite"]
    return subprocess.run([*kubectl, f"-o={output}"], capture_output=True, text=True, check=True).stdout
