"""How each stage is done, and the pure parts: profile, records, analysis, charts, report."""
