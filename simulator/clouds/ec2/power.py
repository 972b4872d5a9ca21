"""Operations on instances that exist: terminate, stop, start, attributes, status, console."""

from __future__ import annotations

import base64
import time

from simulator.clouds.ec2.errors import Ec2Error, unsupported
from simulator.clouds.ec2.identifiers import INSTANCE, find_one
from simulator.clouds.ec2.instances import USER_SHUTDOWN, Instance, Instances, State, state_row
from simulator.clouds.ec2.launch_options import read_metadata
from simulator.clouds.ec2.listing import describe
from simulator.clouds.ec2.network import Interface
from simulator.clouds.ec2.wire import Params, Row, timestamp

CONSOLE_BYTES = 64 * 1024
"""How much of the console EC2 keeps (EC2 API reference, GetConsoleOutput)."""
STATUS_FILTERS = {
    "availability-zone": "AvailabilityZone",
    "instance-state-code": "InstanceState.Code",
    "instance-state-name": "InstanceState.Name",
    "instance-status.status": "InstanceStatus.Status",
    "instance-status.reachability": "InstanceStatus.Details.Status",
    "system-status.status": "SystemStatus.Status",
    "system-status.reachability": "SystemStatus.Details.Status",
}


class InstancePower:
    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    # ------------------------------------------------------------------------------------------------ states

    def terminate_instances(self, params: Params) -> Row:
        """Idempotent as long as the instance is still described.

        A protected one fails the call, and keeps those of its own zone (EC2 user guide, termination protection).
        """
        instances = self._instances.find(params["InstanceIds"])
        protected = [i for i in instances if i.protected and i.state != "terminated"]
        kept = {i.zone for i in protected}
        going = [i for i in instances if i.zone not in kept]
        changes = [self._change(i, "shutting-down", i.state not in ("shutting-down", "terminated")) for i in going]
        if protected:
            raise Ec2Error(
                "OperationNotPermitted",
                f"The instance '{protected[0].id}' may not be terminated. "
                "Modify its 'disableApiTermination' instance attribute and try again.",
            )
        return {"TerminatingInstances": changes}

    def stop_instances(self, params: Params) -> Row:
        instances = self._instances.find(params["InstanceIds"])
        for i in instances:
            if i.state in ("pending", "shutting-down", "terminated"):
                raise _incorrect_state(i, "stopped")
            if i.spot == "one-time":
                raise Ec2Error("UnsupportedOperation", f"The one-time Spot instance '{i.id}' cannot be stopped.")
        return {"StoppingInstances": [self._change(i, "stopping", i.state == "running") for i in instances]}

    def start_instances(self, params: Params) -> Row:
        instances = self._instances.find(params["InstanceIds"])
        for i in instances:
            if i.state in ("stopping", "shutting-down", "terminated"):
                raise _incorrect_state(i, "started")
        changes = [self._change(i, "pending", i.state == "stopped") for i in instances]
        return {"StartingInstances": changes}

    def _change(self, instance: Instance, state: State, needed: bool) -> Row:
        before = instance.state
        if needed and state == "pending":
            instance.launch_time = time.time()
            self._instances.enter(instance, state, "pending: pending")
        elif needed:
            self._instances.enter(
                instance,
                state,
                reason=f"{USER_SHUTDOWN}: {USER_SHUTDOWN}: User initiated shutdown",
                transition=f"User initiated ({timestamp(time.time())})",
            )
        return {
            "InstanceId": instance.id,
            "PreviousState": state_row(before),
            "CurrentState": state_row(instance.state),
        }

    # -------------------------------------------------------------------------------------------- attributes

    def describe_instance_attribute(self, params: Params) -> Row:
        instance = self._find(params)
        row = self._instances.row(instance)
        match params["Attribute"]:
            case "userData":
                value: Row = {"UserData": {"Value": instance.user_data or None}}
            case "disableApiTermination":
                value = {"DisableApiTermination": {"Value": instance.protected}}
            case "sourceDestCheck":
                value = {"SourceDestCheck": {"Value": self._only_interface(instance).source_dest_check}}
            case "instanceType":
                value = {"InstanceType": {"Value": instance.instance_type}}
            case "ebsOptimized":
                value = {"EbsOptimized": {"Value": row["EbsOptimized"]}}
            case "rootDeviceName":
                value = {"RootDeviceName": {"Value": instance.root_device_name}}
            case "groupSet":
                value = {"Groups": row["SecurityGroups"]}
            case other:
                raise unsupported(f"the instance attribute '{other}'")
        return {"InstanceId": instance.id, **value}

    def modify_instance_attribute(self, params: Params) -> Row:
        """One attribute a call, as EC2 wants it."""
        instance = self._find(params)
        given = [name for name in ("SourceDestCheck", "DisableApiTermination") if name in params]
        if len(given) != 1:
            raise Ec2Error("InvalidParameterCombination", "Exactly one attribute must be specified.")
        value = params[given[0]].get("Value")
        if value is None:
            raise Ec2Error("MissingParameter", f"The request must contain the parameter {given[0]}.Value")
        if given[0] == "DisableApiTermination":
            if value and instance.spot:  # EC2 user guide: not for Spot Instances
                raise Ec2Error(
                    "UnsupportedOperation",
                    f"Termination protection is not supported for the Spot instance {instance.id}",
                )
            instance.protected = value
        else:
            self._only_interface(instance).source_dest_check = value
        return {}

    def modify_instance_metadata_options(self, params: Params) -> Row:
        """The answer says `pending`; describe calls say `applied` at once (EC2 applies it within seconds)."""
        instance = self._find(params)
        if instance.state in ("shutting-down", "terminated"):
            raise _incorrect_state(instance, "modified")
        given = {k: v for k, v in params.items() if k not in ("InstanceId", "DryRun")}
        if not given:
            raise Ec2Error("MissingParameter", "The request must contain at least one metadata option.")
        options = read_metadata(given, instance.echoed["MetadataOptions"])
        instance.echoed = {**instance.echoed, "MetadataOptions": options}
        return {"InstanceId": instance.id, "InstanceMetadataOptions": {**options, "State": "pending"}}

    def _find(self, params: Params) -> Instance:
        return find_one(INSTANCE, params["InstanceId"], self._instances.lookup)

    def _only_interface(self, instance: Instance) -> Interface:
        interfaces = self._instances.interfaces(instance)
        if instance.state == "terminated" or not interfaces:
            raise _incorrect_state(instance, "modified")
        if len(interfaces) > 1:
            raise Ec2Error(
                "InvalidInstanceID",
                f"There are multiple interfaces attached to instance '{instance.id}'. "
                "Please specify an interface ID for the operation instead.",
            )
        return interfaces[0]

    # ------------------------------------------------------------------------------------ status and console

    def describe_instance_status(self, params: Params) -> Row:
        """The running instances only, unless IncludeAllInstances."""
        every = params.get("IncludeAllInstances", False)
        rows = [self._status(i) for i in self._instances.listed(params) if every or i.state == "running"]
        return describe("InstanceStatuses", rows, params, STATUS_FILTERS, ("InstanceId",), "InstanceIds")

    def _status(self, instance: Instance) -> Row:
        running = instance.state == "running"
        bad = running and instance.impaired
        reached = [{"Name": "reachability", "Status": "failed" if bad else "passed"}] if running else []
        status = "not-applicable" if not running else "impaired" if bad else "ok"
        return {
            "InstanceId": instance.id,
            "AvailabilityZone": instance.zone,
            "InstanceState": state_row(instance.state),
            "InstanceStatus": {"Status": status, "Details": reached},
            "SystemStatus": {
                "Status": "ok" if running else "not-applicable",
                "Details": [{"Name": "reachability", "Status": "passed"}] if running else [],
            },
        }

    def get_console_output(self, params: Params) -> Row:
        instance = self._find(params)
        output = instance.console.encode()[-CONSOLE_BYTES:]
        return {
            "InstanceId": instance.id,
            "Output": base64.b64encode(output).decode() if output else None,
            "Timestamp": instance.console_at or instance.launch_time,
        }


def _incorrect_state(instance: Instance, participle: str) -> Ec2Error:
    return Ec2Error(
        "IncorrectInstanceState",
        f"The instance '{instance.id}' is not in a state from which it can be {participle}. ({instance.state})",
    )
