"""`holdfast quarantine`: what was taken out of automatic flows, and the governed way back."""

from holdfast.cli.command import group
from holdfast.cli.commands.quarantine.act import add, purge, release
from holdfast.cli.commands.quarantine.look import history, list_quarantined, show, statistics

quarantine = group("Look at what was taken out; release it.", "quarantine")

quarantine.command(name="list")(list_quarantined)
for _one in (show, statistics, history, add, release, purge):
    quarantine.command()(_one)
