"""`holdfast quarantine`: lists, adds, releases and purges quarantined jobs."""

from holdfast.cli.command import group
from holdfast.cli.commands.quarantine.act import add, purge
from holdfast.cli.commands.quarantine.look import history, list_quarantined, show, statistics
from holdfast.cli.commands.quarantine.release import release

quarantine = group("List, add, release and purge quarantined jobs.", "quarantine")

quarantine.subcommand("list")(list_quarantined)
for _one in (show, statistics, history, add, release, purge):
    quarantine.subcommand()(_one)
