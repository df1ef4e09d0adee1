"""Analysis: hand-computed sets and properties."""
