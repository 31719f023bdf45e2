"""Failing calls: the disk refuses the n-th call, or the process is killed there; nothing acknowledged is lost."""
