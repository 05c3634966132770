"""The commands of `rollax`."""
