"""Environments: the protocol, the names, and the bridges to other libraries."""
