"""`hostler simulator …`: make the simulated cloud and cluster misbehave, and see what was asked of them."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from resources.clouds import simulations
from resources.visible import visible_json
from resources.words import cause
from starter.commands.common import asking
from starter.outlet import say, say_text
from starter.sdk.errors import HostlerError, Unreachable

app = typer.Typer(
    help="The simulator that `hostler up` runs: faults, lag, knobs, calls.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
faults = typer.Typer(help="Faults of calls.", no_args_is_help=True, rich_markup_mode=None)
knobs = typer.Typer(help="Behavior of the machines' kubelets.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(faults, name="faults")
app.add_typer(knobs, name="knobs")


ANY = "*"
SERVICES = [*(simulation.service for simulation in simulations().values()), "kubernetes", ANY]
Service = StrEnum("Service", {name: name for name in SERVICES})  # type: ignore[misc]  # its members are SERVICES, once


def admin(ctx: typer.Context, method: str, path: str, body: Any = None, **query: Any) -> Any:
    """Makes one call of the simulator's admin API. Raises HostlerError with its own words when it refuses."""
    address = asking(ctx).settings.simulator
    if address is None:
        raise HostlerError(
            "these settings name no simulator; `hostler up` writes settings that do: <its --dir>/settings.yaml"
        )
    given = {k: str(v).lower() if isinstance(v, bool) else v for k, v in query.items() if v is not None}
    url = f"{address}{path}" + (f"?{urllib.parse.urlencode(given)}" if given else "")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        # It is on this machine's loopback: no proxy can reach it.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        raise HostlerError(f"the simulator refuses: {json.load(e)['error']}") from None
    except OSError as e:
        raise Unreachable(f"the simulator at {address} does not answer ({cause(e)}): start it (hostler up)") from None


# -- faults -----------------------------------------------------------------------------------------------------------


@faults.command("list")
def list_faults(ctx: typer.Context) -> None:
    """List the rules that are still active, in the order in which they are tried."""
    for rule in admin(ctx, "GET", "/faults"):
        say(fault_words(rule))


@faults.command("add")
def add_fault(
    ctx: typer.Context,
    operation: Annotated[
        str, typer.Argument(help="A shell pattern: RunInstances, 'Describe*', 'patch nodes', 'create pods/eviction'.")
    ],
    code: Annotated[
        str | None, typer.Option(help="Answer with this error: InsufficientInstanceCapacity, TooManyRequests, …")
    ] = None,
    status: Annotated[int | None, typer.Option(help="The HTTP status. Default: the usual one for the code.")] = None,
    message: Annotated[str | None, typer.Option(help="Its message.")] = None,
    delay: Annotated[float, typer.Option(help="Seconds before the call is handled.")] = 0.0,
    drop: Annotated[
        bool, typer.Option("--drop", help="Execute the call, and cut the connection before the answer.")
    ] = False,
    times: Annotated[int, typer.Option(help="How many calls it affects.", min=1)] = 1,
    always: Annotated[bool, typer.Option("--always", help="Until it is removed.")] = False,
    match: Annotated[str | None, typer.Option(help="Only calls whose request matches this regular expression.")] = None,
    service: Annotated[Service, typer.Option(help="Only calls to this service.")] = Service(ANY),
) -> None:
    """Make calls fail, make them slow, or drop their answers."""
    if not (code or delay or drop):
        raise typer.BadParameter("give --code, --delay or --drop", ctx)
    rule = {
        "service": service.value,
        "operation": operation,
        "match": match,
        "code": code,
        "status": status,
        "message": message,
        "times": None if always else times,
        "delay": delay,
        "drop": drop,
    }
    for added in admin(ctx, "POST", "/faults", rule):
        say(f"added {fault_words(added)}")


@faults.command("clear")
def clear_faults(
    ctx: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of the rules. Default: all.", show_default=False)] = None,
) -> None:
    """Remove rules."""
    for rule in ids or ():
        admin(ctx, "DELETE", f"/faults/{urllib.parse.quote(rule, safe='')}")
    if not ids:
        admin(ctx, "DELETE", "/faults")
    say("cleared")


def fault_words(rule: dict[str, Any]) -> str:
    """`4f1c2d3e  RunInstances (ec2): InsufficientInstanceCapacity, 2 of 3 times struck`."""
    effects = [rule["code"]] if rule["code"] else []
    effects += [f"{rule['delay']:g} s late"] if rule["delay"] else []
    effects += ["answer lost"] if rule["drop"] else []
    where = f" ({rule['service']})" if rule["service"] != "*" else ""
    only = f" with /{rule['match']}/" if rule["match"] else ""
    times = "always" if rule["times"] is None else f"{rule['hits']} of {rule['times']} times used"
    return f"{rule['id']}  {rule['operation']}{where}{only}: {', '.join([*effects, times])}"


# -- calls ------------------------------------------------------------------------------------------------------------


@app.command()
def calls(
    ctx: typer.Context,
    operation: Annotated[str | None, typer.Argument(help="A shell pattern.", show_default=False)] = None,
    service: Annotated[Service, typer.Option(help="Only calls to this service.")] = Service(ANY),
    since: Annotated[int, typer.Option(help="Only calls after this number.")] = 0,
    mutating: Annotated[bool, typer.Option("--mutating", help="Only calls that change something.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
) -> None:
    """List the calls to the cloud and the cluster, oldest first."""
    one = None if service.value == ANY else service.value
    only = True if mutating else None
    found = admin(ctx, "GET", "/calls", service=one, operation=operation, since=since, mutating=only)["calls"]
    if output == "json":
        say_text(visible_json(found, indent=2))
        return
    for call in found:
        say(call_words(call))


def call_words(call: dict[str, Any]) -> str:
    """`17  12:00:01  ec2  RunInstances  200  by AKIA…: instanceIds=['i-1']`."""
    outcome = call["error"] or ("done, answer lost" if call["dropped"] else call["status"])
    result = ", ".join(f"{k}={v}" for k, v in call["result"].items() if v)
    at = datetime.fromtimestamp(call["time"]).strftime("%H:%M:%S")
    words = f"{call['n']}  {at}  {call['service']}  {call['operation']}  {outcome}  by {call['caller'] or 'nobody'}"
    return words + (f": {result}" if result else "")


# -- the rest ---------------------------------------------------------------------------------------------------------


@app.command()
def lag(
    ctx: typer.Context,
    describe_after_create: Annotated[
        float | None, typer.Option(help="Seconds for which a cloud does not show what it has just created.", min=0)
    ] = None,
    tags: Annotated[
        float | None, typer.Option(help="Seconds until a cloud shows tags that were written.", min=0)
    ] = None,
) -> None:
    """Show how long reads lag behind writes; with an option, change it."""
    wanted = {"describe_after_create": describe_after_create, "tags": tags}
    given = {k: v for k, v in wanted.items() if v is not None}
    for name, seconds in admin(ctx, "POST" if given else "GET", "/lag", given or None).items():
        say(f"{name}: {seconds:g} s")


@app.command()
def kill(ctx: typer.Context, instance: Annotated[str, typer.Argument(help="i-…")]) -> None:
    """Kill a VM, as if somebody else had deleted it."""
    admin(ctx, "POST", "/vms/kill", {"instanceId": instance})
    say(f"{instance} was killed")


@app.command()
def reset(ctx: typer.Context) -> None:
    """Forget faults, lag, knobs and the journal of calls. Cloud and cluster stay as they are."""
    admin(ctx, "POST", "/reset")
    say("reset")


@knobs.command("list")
def list_knobs(ctx: typer.Context) -> None:
    """List the rules, by pattern of machine name or instance id."""
    for rule in admin(ctx, "GET", "/knobs"):
        say(knob_words(rule))


@knobs.command("set")
def set_knobs(
    ctx: typer.Context,
    match: Annotated[str, typer.Argument(help="A shell pattern of machine names or instance ids: 'demo-*'.")],
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="KNOB=VALUE...",
            help="never_joins=true, unready=true, join_delay=30, dies_after=5, config_fails=true, …",
        ),
    ],
) -> None:
    """Set the knobs of the machines that match; a second rule with the same pattern replaces the first."""
    wanted: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise typer.BadParameter(f"{setting!r}: write KNOB=VALUE, e.g. never_joins=true", ctx)
        wanted[name] = yaml.safe_load(value)
    for rule in admin(ctx, "POST", "/knobs", {"match": match, "knobs": wanted}):
        say(knob_words(rule))


@knobs.command("clear")
def clear_knobs(ctx: typer.Context) -> None:
    """Remove all rules."""
    admin(ctx, "DELETE", "/knobs")
    say("cleared")


def knob_words(rule: dict[str, Any]) -> str:
    return f"{rule['match']}: " + ", ".join(f"{k}={json.dumps(v)}" for k, v in rule["knobs"].items())
