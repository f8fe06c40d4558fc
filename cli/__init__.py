"""The command line of aitc; installed as ``aitc_cli``."""
