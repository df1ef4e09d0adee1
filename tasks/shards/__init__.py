"""One batch in several processes: who takes which share, one release for all, one batch again in the end."""
