"""template: chat templates, rendered in a child process.

What a template can show is found by trying it, and user text cannot become a control token.
"""
