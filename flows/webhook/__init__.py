"""The webhook receiver: a signed request starts a deployment that the rules allow, once per delivery."""
