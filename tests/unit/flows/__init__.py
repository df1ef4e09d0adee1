"""Tests of the command line and the order of a run."""
