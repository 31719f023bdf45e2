"""io: what touches the disk and other processes for every other room.

Files and folders of our own (disk.py), their lock between processes (lock.py), files of the user (files.py), requests
to other servers (http.py), and a child process for work that might never end (sandbox.py). Nothing here knows what a
model is.
"""
