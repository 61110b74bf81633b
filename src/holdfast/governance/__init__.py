"""What needs permission: grants, approvals, leases, switches, quarantine, releases, procedures, registry, replay."""
