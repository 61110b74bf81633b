"""Examples for the help of the commands, and how to undo a command that changes something.

Invariants: an example is a command line that the command accepts; a command that only reads has no `undo`.
"""

from typing import NamedTuple

import click


class Example(NamedTuple):
    """A command line after `holdfast`, and how to undo it if it changes something."""

    line: str
    undo: str | None = None


FINAL = "This cannot be undone."
WORK = "--db work.db"
EXAMPLES = {
    "init": Example(f"init {WORK}", "To undo it, delete the new file, or drop the schema."),
    "migrate": Example(f"migrate {WORK}", "This cannot be undone: create a snapshot first."),
    "machines": Example("machines job"),
    "submit": Example("""submit thumbnail '{"path": "a.png"}' --client web --key a.png""", "Undo: holdfast cancel ID"),
    "jobs": Example("jobs --state failed --queue mail"),
    "show": Example("show 558 --traceback"),
    "explain": Example("explain 558"),
    "worker": Example(
        "worker shop:ledger --concurrency 16", "Stop it with Ctrl-C: running jobs end or are given back."
    ),
    "cancel": Example("cancel 558 --reason 'ordered twice'", "Undo: holdfast quarantine release 558"),
    "revoke": Example(
        "revoke 558 --reason 'it hangs'", "This cannot be undone; the job runs again if attempts are left."
    ),
    "retry": Example("retry 558 --reason 'the disk is back'", "Undo, while it is pending: holdfast cancel 558"),
    "pause": Example("pause --queue mail --reason 'the service is down'", "Undo: holdfast resume --queue mail"),
    "resume": Example("resume --queue mail --reason 'the service is back'", "Undo: holdfast pause --queue mail"),
    "limit": Example("limit --queue mail --depth 10000", "Undo: holdfast limit --queue mail --off"),
    "erase": Example("erase 558 --reason 'request 12 of the user'", FINAL),
    "queues": Example("queues"),
    "workers": Example("workers --all"),
    "metrics": Example(f"metrics {WORK}"),
    "status": Example(f"status {WORK}"),
    "health": Example(f"health {WORK} --json"),
    "top": Example(f"top {WORK} --every 5"),
    "doctor": Example(f"doctor {WORK}"),
    "config show": Example("config show"),
    "stats": Example("stats --at '2h ago'"),
    "stalled": Example("stalled"),
    "recover": Example("recover", FINAL),
    "gc": Example("gc --dry-run", "Archived rows stay in the archive; what was deleted cannot be brought back."),
    "check": Example("check --cheap"),
    "prove": Example("prove --trace work.snapshot"),
    "repair": Example("repair", "A repair cannot be undone; it keeps what was there before as evidence."),
    "environment": Example("environment stage --reason 'going live'", FINAL),
    "snapshot create": Example("snapshot create work.snapshot"),
    "snapshot restore": Example(
        "snapshot restore work.snapshot --db new.db --reason 'moved' --operator ann", "Undo: delete the new ledger."
    ),
    "snapshot diff": Example("snapshot diff a.snapshot b.snapshot"),
    "snapshot verify": Example("snapshot verify work.snapshot"),
    "audit verify": Example("audit verify --head head.json"),
    "audit head": Example("audit head --json"),
    "audit keygen": Example("audit keygen bob", "Undo: delete the two files."),
    "audit export": Example("audit export --out history.jsonl"),
    "schedules list": Example("schedules list"),
    "schedules add": Example(
        """schedules add nightly '0 3 * * *' report '{}' --reason 'for sales'""", "Undo: holdfast schedules remove"
    ),
    "schedules pause": Example("schedules pause nightly --reason 'holiday'", "Undo: holdfast schedules resume nightly"),
    "schedules resume": Example("schedules resume nightly --reason 'back'", "Undo: holdfast schedules pause nightly"),
    "schedules trigger": Example("schedules trigger nightly", "Undo, while it is pending: holdfast cancel ID"),
    "schedules remove": Example("schedules remove nightly --reason 'not needed'", "Undo: holdfast schedules add"),
    "schedules history": Example("schedules history nightly"),
    "grant request": Example(
        "grant request snapshot.restore ledger --executor ann --reason 'incident 7' --rollback-plan 'delete it'",
        "Undo: holdfast grant revoke ID",
    ),
    "grant approve": Example(
        "grant approve 2 --as bob --reason 'looked'", "Undo, until it is used: holdfast grant revoke 2"
    ),
    "grant revoke": Example("grant revoke 2 --reason 'not needed'", "This cannot be undone: request another grant."),
    "quarantine list": Example("quarantine list --limit 20"),
    "quarantine show": Example("quarantine show 558"),
    "quarantine add": Example(
        "quarantine add 558 --code manual --reason 'poison'", "Undo: holdfast quarantine release 558"
    ),
    "quarantine release": Example(
        "quarantine release 558 --reason 'mended' --operator ann", "Undo, while it is pending: holdfast cancel 558"
    ),
    "quarantine purge": Example("quarantine purge --older-than 90d", FINAL),
    "switch throw": Example("switch throw operation:mail --reason 'it floods'", "Undo: holdfast switch lift"),
    "switch lift": Example("switch lift operation:mail --reason 'mended'", "Undo: holdfast switch throw"),
    "switch list": Example("switch list"),
    "queues limit": Example(
        "queues limit mail --running 4 --reason 'the relay is slow'", "Undo: holdfast queues limit QUEUE --off"
    ),
    "queues weight": Example(
        "queues weight orders 3 --reason 'before reports'", "Undo: holdfast queues weight QUEUE --off"
    ),
    "queues step": Example("queues step 300 --reason 'urgent work waits too long'", "Undo: holdfast queues step --off"),
    "limits set": Example(
        "limits set operation:mail --running 4 --reason 'slow relay'", "Undo: holdfast limits remove"
    ),
    "limits remove": Example("limits remove operation:mail --reason 'not needed'", "Undo: holdfast limits set"),
    "console": Example(f"console {WORK} --port 8080", "Stop it with Ctrl-C."),
    "console users add": Example("console users add ann --role operator", "Undo: holdfast console users disable ann"),
    "console users disable": Example("console users disable ann", FINAL),
    "console users passwd": Example("console users passwd ann", "Undo: set another password."),
    "console users key": Example("console users key ann ann.pub", "Undo: delete the file."),
    "console tokens add": Example(
        "console tokens add shop --owner ann --role submitter", "Undo: holdfast console tokens revoke shop"
    ),
    "console tokens revoke": Example("console tokens revoke shop", FINAL),
    "grant slip": Example(
        "grant slip --action snapshot.restore --target 5e88 --executor ann --reason 'disk' --rollback-plan 'delete it'",
        "Undo: delete the file, until it is used.",
    ),
    "grant approvers add": Example(
        "grant approvers add bob --public-key bob.pub --reason 'on call'", "Undo: holdfast grant approvers revoke bob"
    ),
    "grant approvers revoke": Example(
        "grant approvers revoke bob --reason 'left'", "This cannot be undone: register another key."
    ),
    "procedure run": Example(
        "procedure run move --root 'move 7' --reason 'incident 7'", "Undo: holdfast procedure undo ROOT"
    ),
    "procedure resume": Example(
        "procedure resume 'move 7' --reason 'the disk is back'", "Undo: holdfast procedure undo ROOT"
    ),
    "procedure undo": Example("procedure undo 'move 7' --reason 'not needed'", FINAL),
    "registry draft": Example("registry draft --app shop:ledger --authority 'change 12'", "Undo: delete the file."),
    "registry request": Example(
        "registry request values.json --rollback-plan 'retire them' --reason 'change 12'",
        "Undo: holdfast grant revoke ID",
    ),
    "registry build": Example(
        "registry build values.json --reason 'change 12'", "Undo: holdfast registry retire, or supersede"
    ),
    "registry hold": Example("registry hold on --reason 'audit'", "Undo: holdfast registry hold off"),
    "registry supersede": Example(
        "registry supersede mail 1 2 --reason 'new layout'", "Undo: supersede it by another version."
    ),
    "registry retire": Example("registry retire mail 1 --reason 'not needed'", "Undo: build it again."),
    "registry dismantle": Example("registry dismantle trial --reason 'ended'", "Undo: build it again."),
    "replay from-spec": Example(
        "replay from-spec selection.yaml --reason manual_replay", "Undo, for the rest: holdfast replay stop"
    ),
    "replay stop": Example("replay stop replay-0123456789ab --reason 'it floods'", "Undo: run it again; it continues."),
    "nodd backfill": Example(
        "nodd backfill gfs --from 2026-11-13 --to 2026-11-14", "Undo, while they are pending: holdfast cancel ID"
    ),
    "nodd reconcile": Example(
        "nodd reconcile gfs --date 2026-11-14", "With --admit; undo, while they are pending: holdfast cancel ID"
    ),
    "nodd drain-dlq": Example(
        "nodd drain-dlq --queue http://localhost/dlq --reason 'mended'",
        "This cannot be undone: the messages are deleted, and their records are in the ledger.",
    ),
    "nodd runs": Example("nodd runs gfs --date 2026-11-14"),
    "nodd subscribe": Example("nodd subscribe gfs", "With --apply; undo: delete the resources that it printed."),
    "nodd admit": Example("nodd admit notices.json", "Undo, while they are pending: holdfast cancel ID"),
    "nodd run": Example(
        "nodd run --queue http://localhost/gfs", "Stop it with Ctrl-C: running units end or are given back."
    ),
    "nodd rejected": Example("nodd rejected", "With --replay; undo, while they are pending: holdfast cancel ID"),
    "nodd publish": Example("nodd publish --catalog catalogue", "Undo: delete its files; the ledger has everything."),
    "nodd pause": Example("nodd pause gfs --reason 'bad cycle'", "Undo: holdfast nodd resume gfs"),
    "nodd resume": Example("nodd resume gfs --reason 'mended'", "Undo: holdfast nodd pause gfs"),
    "replay dry-run": Example("replay dry-run --created-after '2h ago' --queue mail"),
    "replay run": Example(
        "replay run --created-after '2h ago' --queue mail --reason manual_replay",
        "Undo, for the rest: holdfast replay stop",
    ),
}


def example_of(command: click.Command, path: str) -> list[str]:
    """Return the example of the command at a path such as `grant approve`, and how it is undone."""
    example = EXAMPLES.get(path) or Example(_usual(command, path))
    return [f"Example: holdfast {example.line}", *filter(None, [example.undo])]


def _usual(command: click.Command, path: str) -> str:
    """Return a command line with the required arguments and options of a command."""
    words = [path]
    for param in command.params:
        if param.required:
            value = (getattr(param, "metavar", None) or param.name or "").strip("[]{}").upper()
            words.append(value if param.param_type_name == "argument" else f"{param.opts[0]} {value}")
    return " ".join(words)
