"""Reading VMs: states, impairment, console, providerIDs, volume ids."""

from __future__ import annotations

import base64
from typing import Any, ClassVar

import pytest
from clouds.drivers import AwsCloud, calls, fault, machine, mark, until

from drivers.aws import instances
from drivers.aws.calls import Ec2 as Ec2Calls
from drivers.aws.calls import Ec2Connection
from drivers.base import GetVolumeIDsRequest, VmState
from drivers.errors import DriverError
from resources.errors import ErrorClass


def test_states_and_impairment(cloud: AwsCloud, ec2: Any) -> None:
    cloud.set_delays(boot=60.0, terminate=60.0)
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    vm = made.provider_id.rsplit("/", 1)[-1]
    before = mark(cloud)

    def state() -> VmState:
        return cloud.driver.get_machine_status(given.status(made.provider_id)).state

    assert state() is VmState.PENDING
    assert len(calls(cloud, since=before)) == 1  # a booting VM cannot be impaired: one call per poll
    cloud.set_delays(boot=0.0, terminate=0.0)
    ec2.terminate_instances(InstanceIds=[vm])
    until(lambda: cloud.living(given.machine.uid) == [])

    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    vm = made.provider_id.rsplit("/", 1)[-1]
    assert state() is VmState.RUNNING
    cloud.do(lambda: cloud.ec2.impair(vm, True))
    assert cloud.driver.get_machine_status(given.status(made.provider_id)).impaired is None  # nobody asked
    impaired = cloud.driver.get_machine_status(given.status(made.provider_id, diagnose=True)).impaired
    assert impaired == "instance status impaired (reachability failed)"
    cloud.set_delays(boot=0.0, terminate=60.0)
    ec2.stop_instances(InstanceIds=[vm])
    assert state() is VmState.STOPPING
    ec2.terminate_instances(InstanceIds=[vm])
    assert state() is VmState.TERMINATING


def test_a_vm_on_its_way_out_does_not_hide_a_living_one(cloud: AwsCloud, ec2: Any) -> None:
    cloud.set_delays(boot=0.0, terminate=60.0)
    given = machine(cloud)
    first, second = (cloud.driver.create_machine(given.creation(token=t)) for t in ("attempt-1", "attempt-2"))
    ec2.terminate_instances(InstanceIds=[first.provider_id.rsplit("/", 1)[-1]])
    found = cloud.driver.get_machine_status(given.status())
    assert (found.provider_id, found.state) == (second.provider_id, VmState.RUNNING)


def test_a_vm_that_died_says_why(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    cloud.do(lambda: cloud.ec2.kill(made.provider_id.rsplit("/", 1)[-1]))
    with pytest.raises(DriverError, match=r"terminated \(Server.InternalError: ") as gone:
        cloud.driver.get_machine_status(given.status(made.provider_id))
    assert gone.value.error_class is ErrorClass.NOT_FOUND


def test_the_console_is_its_last_lines_without_the_token(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    vm = made.provider_id.rsplit("/", 1)[-1]
    text = "".join(f"line {n}\n" for n in range(100)) + "join with abcdef.0123456789abcdef failed\n"
    cloud.do(lambda: cloud.ec2.set_console(vm, text))
    console = cloud.driver.get_machine_status(given.status(made.provider_id, diagnose=True)).console
    assert console is not None
    lines = console.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (25, "line 76", "join with abcdef.*** failed")
    assert cloud.driver.get_machine_status(given.status(made.provider_id)).console is None


def test_p13_a_long_console_is_its_end_and_a_cut_token_stays_hidden(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    vm = made.provider_id.rsplit("/", 1)[-1]
    secret = "0123456789uvwxyz"
    blob = base64.b64encode(f"#cloud-config\ntoken: abcdef.{secret}\n".encode() * 9).decode()
    # Wherever the cut falls, it falls into a token.
    line = f"T_abcdef.{secret}_x" * 100
    for noise in range(30):
        text = f"{blob}\n{line}{'.' * noise}\nAKIA0123456789ABCDEF {'e' * 30} end\n"
        cloud.do(lambda t=text: cloud.ec2.set_console(vm, t))  # type: ignore[misc]
        console = cloud.driver.get_machine_status(given.status(made.provider_id, diagnose=True)).console or ""
        assert console.endswith(f"*** {'e' * 30} end")
        assert console.startswith("…")
        assert len(console) == instances.CONSOLE_LENGTH
        assert not any(part in console for part in (secret, secret[-6:], "AKIA", blob[:20]))


def test_a_console_that_cannot_be_read_does_not_hide_the_status(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, "GetConsoleOutput", "UnsupportedOperation")  # an older type: no `Latest`
    status = cloud.driver.get_machine_status(given.status(made.provider_id, diagnose=True))
    assert status.console == ""
    fault(cloud, "GetConsoleOutput", "UnauthorizedOperation")
    status = cloud.driver.get_machine_status(given.status(made.provider_id, diagnose=True))
    assert status.state is VmState.RUNNING
    assert "UnauthorizedOperation" in (status.console or "")


def test_status_checks_that_lag_behind_their_vm_are_no_trouble(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    rule = fault(cloud, "DescribeInstanceStatus", "InvalidInstanceID.NotFound")
    assert cloud.driver.get_machine_status(given.status(made.provider_id, diagnose=True)).impaired is None
    assert rule.hits == 1


def test_an_empty_page_is_not_the_last() -> None:
    class Pages:
        """Answers as EC2 gives them when a filter leaves nothing on a page."""

        asked: ClassVar[list[dict[str, Any]]] = []

        def describe_volumes(self, **parameters: Any) -> dict[str, Any]:
            self.asked.append(parameters)
            if "NextToken" not in parameters:
                return {"Volumes": [], "NextToken": "more"}
            return {"Volumes": [{"VolumeId": "vol-1"}], "NextToken": ""}

    def connect() -> Ec2Connection:
        return Ec2Connection(None, ec2=Pages(), sts=None)

    found = list(Ec2Calls(connect, "eu-west-1", fixed=True).find("DescribeVolumes", "Volumes", {"status": "available"}))
    assert found == [{"VolumeId": "vol-1"}]
    assert [p.get("NextToken") for p in Pages.asked] == [None, "more"]


@pytest.mark.parametrize("provider_id", ["i-0123456789abcdef0", "aws:///eu-west-1/", "gce:///p/z/n", "aws:///x/vol-1"])
def test_a_provider_id_of_another_form_is_invalid(cloud: AwsCloud, provider_id: str) -> None:
    given = machine(cloud)
    with pytest.raises(DriverError, match="does not have the form") as refused:
        cloud.driver.get_machine_status(given.status(provider_id))
    assert refused.value.error_class is ErrorClass.INVALID


def test_the_cloud_controller_managers_provider_id_is_understood(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    zonal = made.provider_id.replace("eu-west-1", "eu-west-1a")
    assert cloud.driver.get_machine_status(given.status(zonal)).provider_id == made.provider_id
    # and its region serves where the spec has none
    assert cloud.driver.get_machine_status(given.status(zonal, provider_spec={})).provider_id == made.provider_id


def test_volume_ids_of_persistent_volumes(cloud: AwsCloud) -> None:
    specs: list[dict[str, Any]] = [
        {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}},
        {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1"}},
        {"awsElasticBlockStore": {"volumeID": "aws://eu-west-1a/vol-2"}},
        {"awsElasticBlockStore": {"volumeID": "vol-3"}},
        {"nfs": {"server": "x"}},
        {"csi": {"driver": "ebs.csi.aws.com"}},
    ]
    found = cloud.driver.get_volume_ids(GetVolumeIDsRequest(persistent_volume_specs=specs))
    assert found.volume_ids == ["vol-1", "vol-2", "vol-3"]
