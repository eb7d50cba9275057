"""State that several agents share: leases, fencing tokens, versions, snapshots."""
