"""Results of a run: an object store, the spool, the commit protocol, manifests, and reading it all back."""
