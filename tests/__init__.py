"""Tests of virtscale."""
