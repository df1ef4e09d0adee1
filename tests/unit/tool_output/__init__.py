"""Parsers of guest tools: real files, damaged files, made-up runs."""
