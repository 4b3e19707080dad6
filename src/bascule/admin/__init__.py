"""The daemon's own methods: status, cleaning up, the ledger, the person, approvals, the policy in force."""
