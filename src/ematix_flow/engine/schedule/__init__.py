"""What runs when: the scheduler, slots, leases, backfills, triggers and status."""
