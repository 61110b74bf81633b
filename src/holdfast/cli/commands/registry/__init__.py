"""`holdfast registry`: manages which operations a governed ledger accepts."""

from holdfast.cli.command import group
from holdfast.cli.commands.registry.build import build, draft, request
from holdfast.cli.commands.registry.changes import retire, rollback_check, supersede
from holdfast.cli.commands.registry.dispatch import dismantle, dispatch
from holdfast.cli.commands.registry.hold import hold
from holdfast.cli.commands.registry.values import list_values, show, verify

registry = group("Manage which operations a governed ledger accepts.", "registry")

registry.subcommand("list")(list_values)
for _one in (show, verify, draft, request, build, hold, supersede, retire, dismantle, dispatch):
    registry.subcommand()(_one)
registry.subcommand("rollback-check")(rollback_check)
