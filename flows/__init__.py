"""What runs, and in which order: the stage flows, the pipeline that composes them, and the CLI."""
