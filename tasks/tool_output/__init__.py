"""PURE. What guests' tools write, bytes in, checked numbers out; anything doubtful is a ToolOutputError."""
